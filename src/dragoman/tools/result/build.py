"""Check the arguments of a call, and build its result.

Arguments are validated, and coerced if wanted; if they do not fit, the error lists every problem. An answer
becomes a `ToolResult`: with its sources, with its parts described and saved, with text within the budget and
with structured content validated. A result that violates its own schema is an error that carries the whole
result. Time and the place for files are arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import InvalidArgumentsError, InvalidResultError, ToolExecutionError, ToolFailedError
from dragoman.model import App, Provenance, Texts, ToolResult
from dragoman.struct import MutableStruct, field
from dragoman.tools.result.budget import fit, raised
from dragoman.tools.result.provenance import find_sources, may_have_sources
from dragoman.tools.result.render import FILE, describe, pieces
from dragoman.tools.schema.coerce import coerce
from dragoman.tools.schema.problems import not_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dragoman.model import Part, SourceRef, ToolDef
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.result.render import ServerAnswer
    from dragoman.tools.schema.coerce import ArgumentChange
    from dragoman.tools.schema.validate import Validator, Validators

UNSTRUCTURED = "dragoman/unstructured"
"""The key in a result's `meta` that says why its output schema was not checked."""
LARGE_CHARS = 100_000
"""An answer with more text than this is processed in a thread."""


class ResultKeeper(Protocol):
    """Stores large and binary parts; `dragoman.storage.results.ResultStore` is one."""

    def keep(self, data: bytes, *, mime_type: str = "") -> object | None:
        """Store bytes; return the file's path, or `None` if that fails."""
        ...

    def keep_text(self, text: str) -> object | None:
        """Store a text; return the file's path, or `None` if that fails."""
        ...


class ResultContext(MutableStruct, kw_only=True):
    """Everything needed to build the result of a call."""

    tool: ToolDef
    validators: Validators
    call_id: str = ""
    server_version: str = ""
    at: float = 0.0
    """Seconds since the epoch, when the answer came."""
    duration: float = 0.0
    attribution: Mapping[str, str] | None = None
    """The `attribution` pointers of the server's configuration."""
    needs_source: bool = False
    """Whether the server is the source of an answer that names none."""
    sources_in_text: bool = False
    """Whether the text ends with the sources; they are in the provenance either way."""
    texts: Texts = field(default_factory=Texts)
    """The application's words for parts that are not text."""
    budget: TextBudget | None = None
    keeper: ResultKeeper | None = None
    """Stores text over the budget, and binary parts."""


def check(
    validator: Validator, tool: ToolDef, arguments: object, *, coerces: bool = False
) -> tuple[dict[str, Any], Sequence[ArgumentChange]]:
    """Return the arguments to send, and the changes made to them.

    Raises:
        InvalidArgumentsError: They do not fit; its problems are those of the original arguments.
    """
    if arguments is None:
        arguments = {}
    if isinstance(arguments, Mapping):
        fields = dict(cast("Mapping[str, Any]", arguments))
        problems = validator.problems(fields) or not_finite(fields)
        if not problems:
            return fields, ()
    else:
        problems = [f"the arguments must be an object, not {type(arguments).__name__}"]
    coerced = coerce(validator, cast("object", arguments), only_nulls=not coerces)
    if coerced is not None and not not_finite(coerced.arguments):
        return coerced.arguments, coerced.changes
    msg = f"invalid arguments for `{tool.name}` (nothing was sent):{_listed(problems)}"
    raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=problems)


RESERVED_META = frozenset({"progressToken"})
_RESERVED_OWNERS = (["modelcontextprotocol"], ["mcp"])


def check_meta(meta: Mapping[str, Any], tool: ToolDef) -> None:
    """Check the `_meta` that a caller gives for a call.

    The protocol reserves some keys for itself: `progressToken`, and all prefixes of which the second label is
    `mcp` or `modelcontextprotocol`. The session sets those itself.

    Raises:
        InvalidArgumentsError: A key is reserved, or the value is not JSON.
    """
    problems: list[str] = []
    for key in cast("Iterable[object]", meta):
        if not isinstance(key, str) or not key:
            problems.append(f"the key {key!r} of `meta` is not a name")
            continue
        labels = key.rpartition("/")[0].split(".")
        if key in RESERVED_META or labels[1:2] in _RESERVED_OWNERS:
            problems.append(f"the key `{key}` of `meta` is reserved for the protocol")
    if not problems:
        try:
            json.dumps(dict(meta), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            problems.append(f"`meta` is not JSON: {exc}")
    if problems:
        msg = f"`{tool.name}` was not called: {'; '.join(problems)}"
        raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=problems)


def is_large(answer: ServerAnswer, by: ResultContext) -> bool:
    """Return whether building the result takes long enough to do it in a thread."""
    size = 0
    for part in answer.parts:
        if part.data and by.keeper is not None:
            return True
        size += len(part.text)
    return size > LARGE_CHARS


def size_of(answer: ServerAnswer) -> int:
    """Return the approximate size of an answer: characters of texts, bytes of everything else."""
    size = sum(len(part.text) + len(part.data) for part in answer.parts)
    if size or answer.structured is None:
        # Text next to structured content repeats it, and serialising that is slow.
        return size
    return len(json.dumps(answer.structured, default=str))


def build_result(answer: ServerAnswer, by: ResultContext) -> ToolResult:
    """Turn an answer into a result."""
    sources = sources_of(answer, by)
    parts = [part if part.kind == "text" else _described(part, by.keeper) for part in answer.parts]
    text, meta = _text(answer, parts, sources, by), answer.meta
    if by.tool.output_schema is not None and answer.structured is None and not answer.is_error:
        meta = {**meta, UNSTRUCTURED: "the tool declares an output schema but returned no structured content"}
    result = ToolResult(
        success=True,
        text=text,
        structured=answer.structured,
        parts=parts,
        meta=meta,
        provenance=Provenance(
            server=by.tool.server,
            tool=by.tool.own_name,
            server_version=by.server_version,
            at=by.at,
            sources=sources,
        ),
        call_id=by.call_id,
        duration=by.duration,
        app=_app(by.tool) if by.tool.meta else None,
    )
    failure = _failure(result, answer, by)
    if failure is None:
        return result
    if answer.is_error:
        return result.replace(success=False, text=str(failure), error=str(failure), exception=failure)
    return result.replace(success=False, error=str(failure), exception=failure)


def _app(tool: ToolDef) -> App | None:
    """Return the app of a tool, without its page."""
    return App(server=tool.server, uri=tool.app_uri, tool=tool.own_name) if tool.app_uri else None


def _failure(result: ToolResult, answer: ServerAnswer, by: ResultContext) -> ToolExecutionError | None:
    tool = by.tool
    if answer.is_error:
        text = result.text or "the tool failed without a message"
        return ToolFailedError(text, tool=tool.name, server=tool.server)
    if tool.output_schema is None or answer.structured is None:
        return None
    problems = by.validators.of(tool.output_schema).problems(answer.structured)
    if not problems:
        return None
    msg = f"`{tool.name}` ran, but its result violates its output schema: {_listed(problems)}"
    return InvalidResultError(msg, tool=tool.name, server=tool.server, problems=problems, result=result)


def sources_of(answer: ServerAnswer, by: ResultContext) -> Sequence[SourceRef]:
    """Return the sources that an answer rests on."""
    default = by.tool.server or by.tool.name if by.needs_source and not answer.is_error else ""
    has_more = answer.structured is not None or answer.meta or by.attribution or default
    if not has_more and not may_have_sources(answer.parts):
        return ()
    return find_sources(
        answer.structured, answer.meta, parts=answer.parts, attribution=by.attribution, default=default
    )


def _text(
    answer: ServerAnswer, parts: Sequence[Part], sources: Sequence[SourceRef], by: ResultContext
) -> str:
    body, end = pieces(parts, sources if by.sources_in_text else (), words=by.texts)
    if by.budget is None:
        return body + end
    budget = raised(by.budget, by.tool.meta, answer.meta)
    if budget.holds(body + end):
        return body + end
    path = by.keeper.keep_text(body + end) if by.keeper is not None else None
    return fit(body, budget, end=end, whole=f"the file `{path}`" if path is not None else "")


def _described(part: Part, keeper: ResultKeeper | None) -> Part:
    """Add a description to a part, and save its bytes to a file if there is a store."""
    if part.kind == "structured":
        return part
    if keeper is not None and part.data and part.kind in ("audio", "resource", "image"):
        path = keeper.keep(part.data, mime_type=part.mime_type)
        if path is not None:
            part = part.replace(meta={**part.meta, FILE: str(path)})
    return part if part.text else part.replace(text=describe(part))


def _listed(problems: list[str]) -> str:
    return f" {problems[0]}" if len(problems) == 1 else "".join(f"\n- {problem}" for problem in problems)
