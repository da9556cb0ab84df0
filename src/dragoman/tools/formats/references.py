"""References of a schema: the ones that lead nowhere, and all of them written out for an API that takes none.

A schema may unfold to far more than it is long, so what is written out is counted, not only what is looked
at: each definition is written out once and shared, and its size is added wherever it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.tools.formats.root import as_object
from dragoman.tools.formats.schema import (
    ANNOTATIONS,
    MAX_DEPTH,
    MAX_EXPANDED,
    REFERENCES,
    References,
    Schema,
    UnfitError,
    rebuild,
)

if TYPE_CHECKING:
    from dragoman.tools.formats.schema import Fitted

Node: TypeAlias = Schema | bool

_STORES = ("$defs", "definitions")
# How many references stand inside one another, at most.
_HEIGHTS = (MAX_DEPTH, 4, 2, 1)


def mend(fitted: Fitted) -> None:
    """Take out the references that lead nowhere or out of the schema; the others stay."""
    references = References(fitted.schema)

    def visit(node: Any, where: str) -> Any:
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        for word in REFERENCES:
            if word in fields and references.resolve(fields[word]) is None:
                fitted.record(where, _lost(word, fields[word]))
                fields = {name: value for name, value in fields.items() if name != word}
        return rebuild(fields, lambda child, step: visit(child, where + step))

    fitted.schema = visit(fitted.schema, "")


def write_out(fitted: Fitted) -> None:
    """Replace every reference by what it leads to; one that leads to itself is cut there.

    Where that is too much, references within references are cut too, ever sooner.

    Raises:
        UnfitError: It is too much even then.
    """
    for height in _HEIGHTS:
        unfolding = _Unfolding(fitted.schema, height)
        try:
            schema = unfolding.run()
        except UnfitError:
            if height == _HEIGHTS[-1]:
                raise
            continue
        if schema is not fitted.schema:
            fitted.schema = schema
            fitted.record("", "references are written out: the API does not take all of them")
        for where, why in unfolding.changes:
            fitted.record(where, why)
        return


class _Unfolding:
    def __init__(self, root: Schema, height: int) -> None:
        self.changes: list[tuple[str, str]] = []
        self._root = root
        self._height = height
        self._references = References(root)
        self._size = 0
        self._cuts = 0
        self._written: dict[int, tuple[Schema | bool, int]] = {}

    def run(self) -> Schema:
        root = {name: value for name, value in self._root.items() if name not in _STORES}
        # The copy stands for the root: a reference to `#` from within is a circle.
        schema = as_object(self._unfold(root, "", (id(self._root),), 0))
        same = len(schema) == len(self._root) and all(schema[name] is self._root.get(name) for name in schema)
        return self._root if same else schema

    def _unfold(self, node: Any, where: str, chain: tuple[int, ...], depth: int) -> Any:
        self._size += 1
        if self._size > MAX_EXPANDED:
            msg = f"its input schema has more than {MAX_EXPANDED} parts once references are written out"
            raise UnfitError(msg)
        if depth > MAX_DEPTH:
            msg = f"its input schema is nested more than {MAX_DEPTH} deep once references are written out"
            raise UnfitError(msg)
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        if any(store in fields for store in _STORES) and depth:
            fields = {name: value for name, value in fields.items() if name not in _STORES}
        for word in REFERENCES:
            if word in fields:
                rest = {name: value for name, value in fields.items() if name != word}
                target = self._target(word, fields[word], where, chain, depth)
                beside = self._unfold(rest, where, chain, depth) if rest else rest
                return _joined(target, beside)
        return rebuild(fields, lambda child, step: self._unfold(child, where + step, chain, depth + 1))

    def _target(
        self, word: str, reference: object, where: str, chain: tuple[int, ...], depth: int
    ) -> Schema | bool:
        target = self._references.resolve(reference)
        if target is None:
            self.changes.append((where, _lost(word, reference)))
            return {}
        if isinstance(target, bool):
            return target
        if id(target) in chain or len(chain) > self._height:
            why = "it holds itself" if id(target) in chain else "all of it would be too much"
            self._cuts += 1
            self.changes.append((where, f"`{str(reference)[:80]}` is cut here: {why}"))
            return _cut(target)
        if (known := self._written.get(id(target))) is not None:
            self._size += known[1]
            return known[0]
        cuts, size = self._cuts, self._size
        written = self._unfold(target, where, (*chain, id(target)), depth + 1)
        if cuts == self._cuts:
            # One with a cut in it depends on where it stands.
            self._written[id(target)] = (written, self._size - size)
        return written


def _cut(target: Schema) -> Schema:
    """Return what is left of a schema whose own parts are not looked at once more."""
    kept = {name: target[name] for name in ("type", "title", "description") if name in target}
    title = target.get("title")
    name = f"`{title}`" if isinstance(title, str) and title else "the schema that it stands in"
    note = f"Of the same form as {name}."
    about = kept.get("description")
    return {**kept, "description": f"{about} {note}" if isinstance(about, str) and about else note}


def _joined(target: Node, beside: Schema) -> Node:
    if not beside:
        return target
    if target is True:
        return beside
    if isinstance(target, dict) and (beside.keys() <= ANNOTATIONS or target.keys().isdisjoint(beside)):
        return {**target, **beside}
    return {**beside, "allOf": [*cast("list[Any]", beside.get("allOf", [])), target]}


def _lost(word: str, reference: object) -> str:
    text = str(reference)
    where = "leads nowhere" if text.startswith("#") else "leads out of the schema, and nothing is fetched"
    return f"`{word}` to `{text[:80]}` is left out: it {where}"
