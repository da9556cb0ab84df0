"""YAML as plain data, with the lines of its keys. Tags that build other objects are refused."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, cast

import yaml

from dragoman.config.documents import DEPTH

if TYPE_CHECKING:
    from dragoman.config.documents import Pointer

MAX_MERGED = 100_000
MAX_YAML_DEPTH = 100
"""Nodes are built level by level, by functions that call themselves."""
MAX_LINES = 1_000_000
"""Aliases multiply keys; beyond this many, a key has the line of what is around it."""


def load(text: str, *, has_aliases: bool = True) -> tuple[Any, dict[Pointer, int]]:
    """Return the data of a text, and the keys that stand twice in one mapping, each with its last line.

    Args:
        text: The text.
        has_aliases: Whether it may have aliases, by which a few lines become gigabytes as JSON.

    Raises:
        yaml.YAMLError: It is not valid YAML, or not plain data.
    """
    loader = _Loader(text, has_aliases=has_aliases)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        # Building the data flattens merge keys into the nodes, so the nodes are looked at before.
        repeats: dict[Pointer, int] = {}
        _find_repeats(node, (), repeats, set(), _Lines(text))
        return loader.construct_document(node), repeats  # pyright: ignore[reportUnknownMemberType]
    finally:
        loader.dispose()


def lines(text: str) -> dict[Pointer, int]:
    """Return the line of every key and list item."""
    found: dict[Pointer, int] = {}
    loader = _Loader(text)
    try:
        _find_lines(loader.get_single_node(), (), found, _Lines(text))
    finally:
        loader.dispose()
    return found


class _Lines:
    """The line of each mark, counted as editors do: YAML also ends a line at U+0085, U+2028 and U+2029."""

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def of(self, node: yaml.Node) -> int:
        return bisect_left(self._ends, node.start_mark.index) + 1


# The parser in C is ten times as fast; where PyYAML was built without it, its own one does the same.
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """The safe loader; every failure has a place and quotes no value."""

    def __init__(self, text: str, *, has_aliases: bool = True) -> None:
        _check_events(text, has_aliases=has_aliases)
        super().__init__(text)
        self._merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what `<<` names; mappings that merge each other multiply."""
        super().flatten_mapping(node)
        self._merged += len(node.value)
        if self._merged > MAX_MERGED:
            problem = f"`<<` merges more than {MAX_MERGED:,} keys"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 -- as PyYAML has it
        try:
            return super().construct_object(node, deep=deep)  # pyright: ignore[reportUnknownMemberType]
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            problem = "a value does not match its tag"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _check_events(text: str, *, has_aliases: bool) -> None:
    """Refuse what is nested too deep, and aliases."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_YAML_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent) and not has_aliases:
            problem = "aliases are not allowed here"
            raise yaml.YAMLError(problem)


def _find_repeats(
    node: yaml.Node, path: Pointer, repeats: dict[Pointer, int], visited: set[int], numbers: _Lines
) -> None:
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: set[tuple[str, str]] = set()
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            inner = (*path, str(key.value))
            mark = (key.tag, str(key.value))
            if mark in keys:
                repeats[inner] = numbers.of(key)
            keys.add(mark)
            _find_repeats(value, inner, repeats, visited, numbers)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(cast("list[yaml.Node]", node.value)):
            _find_repeats(value, (*path, index), repeats, visited, numbers)


def _find_lines(node: yaml.Node | None, path: Pointer, found: dict[Pointer, int], numbers: _Lines) -> None:
    if len(path) >= DEPTH or len(found) > MAX_LINES:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            inner = (*path, str(key.value))
            found[inner] = numbers.of(key)
            _find_lines(value, inner, found, numbers)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(cast("list[yaml.Node]", node.value)):
            found[*path, index] = numbers.of(value)
            _find_lines(value, (*path, index), found, numbers)
