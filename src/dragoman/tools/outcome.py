"""What becomes of a call's two ends: arguments that may be sent, and the result that its caller gets.

Arguments are checked, and mended if that is wanted; what does not fit is an error with every problem in it.
An answer becomes a `ToolResult`: sources found, pieces described and saved, the text within its budget,
structured content checked. A result that breaks its own schema is an error, but stays whole, and is attached
to it. Time and the place for files are arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import InvalidArgumentsError, InvalidResultError, ToolExecutionError, ToolFailedError
from dragoman.model import Provenance, ToolResult
from dragoman.tools.budget import fit, raised
from dragoman.tools.content import FILE
from dragoman.tools.mending import mend
from dragoman.tools.provenance import find_sources, may_cite
from dragoman.tools.rendering import describe, pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import Part, SourceRef, ToolDef
    from dragoman.tools.budget import Budget
    from dragoman.tools.content import Answer
    from dragoman.tools.mending import Change
    from dragoman.tools.validation import Validator, Validators

UNSTRUCTURED = "dragoman/unstructured"
"""The key in a result's `meta` that says why its output schema was not checked."""
LARGE_CHARS = 100_000
"""Settling an answer with more text, or with bytes to save, is worth a thread."""


class Keeper(Protocol):
    """Where large and binary pieces are kept; `dragoman.spill.Spill` is one."""

    def keep(self, data: bytes, *, mime_type: str = "") -> object | None:
        """Keep bytes; return the file's path, or nothing if that fails."""
        ...

    def keep_text(self, text: str) -> object | None:
        """Keep a text; return the file's path, or nothing if that fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """What a call's answer is settled with."""

    tool: ToolDef
    validators: Validators
    call_id: str = ""
    server_version: str = ""
    at: float = 0.0
    """Seconds since the epoch, when the answer came."""
    duration: float = 0.0
    attribution: Mapping[str, str] | None = None
    """The pointers of the server's configuration."""
    budget: Budget | None = None
    keeper: Keeper | None = None
    """Gets what is over the budget, and pieces that are bytes."""


def check(
    validator: Validator, tool: ToolDef, arguments: object, *, mends: bool = False
) -> tuple[dict[str, Any], Sequence[Change]]:
    """Return the arguments to send, and what was mended in them.

    Raises:
        InvalidArgumentsError: They do not fit; its problems are those of what was given.
    """
    if arguments is None:
        arguments = {}
    if isinstance(arguments, Mapping):
        fields = dict(cast("Mapping[str, Any]", arguments))
        problems = validator.problems(fields)
        if not problems:
            return fields, ()
    else:
        problems = [f"the arguments have to be an object, not {type(arguments).__name__}"]
    mended = mend(validator, cast("object", arguments), only_nulls=not mends)
    if mended is not None:
        return mended.arguments, mended.changes
    msg = f"`{tool.name}` was not called, its arguments do not fit:{_listed(problems)}"
    raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=problems)


def is_large(answer: Answer, by: Settling) -> bool:
    """Tell whether settling an answer takes long enough to be done beside the event loop."""
    saved = by.keeper is not None and any(part.data for part in answer.parts)
    return saved or sum(len(part.text) for part in answer.parts) > LARGE_CHARS


def size_of(answer: Answer) -> int:
    """Return how much an answer holds, about: characters of texts, bytes of everything else."""
    size = sum(len(part.text) + len(part.data) for part in answer.parts)
    if size or answer.structured is None:
        # A text beside structured content says the same, and writing that out takes long.
        return size
    return len(json.dumps(answer.structured, default=str))


def settle(answer: Answer, by: Settling) -> ToolResult:
    """Turn an answer into a result."""
    sources = _sources(answer, by)
    parts = [part if part.kind == "text" else _described(part, by.keeper) for part in answer.parts]
    text, meta = _text(answer, parts, sources, by), answer.meta
    if by.tool.output_schema is not None and answer.structured is None and not answer.is_error:
        meta = {**meta, UNSTRUCTURED: "the tool declares an output schema but gave no structured content"}
    result = ToolResult(
        success=True,
        text=text,
        structured=answer.structured,
        parts=parts,
        meta=meta,
        provenance=Provenance(
            server=by.tool.server,
            tool=by.tool.original_name,
            server_version=by.server_version,
            at=by.at,
            sources=sources,
        ),
        call_id=by.call_id,
        duration=by.duration,
    )
    failure = _failure(result, answer, by)
    if failure is None:
        return result
    if answer.is_error:
        return replace(result, success=False, text=str(failure), error=str(failure), exception=failure)
    return replace(result, success=False, error=str(failure), exception=failure)


def _failure(result: ToolResult, answer: Answer, by: Settling) -> ToolExecutionError | None:
    tool = by.tool
    if answer.is_error:
        text = result.text or "the tool failed and did not say why"
        return ToolFailedError(text, tool=tool.name, server=tool.server)
    if tool.output_schema is None or answer.structured is None:
        return None
    problems = by.validators.of(tool.output_schema).problems(answer.structured)
    if not problems:
        return None
    msg = f"`{tool.name}` ran, but its result breaks its own output schema: {_listed(problems)}"
    return InvalidResultError(msg, tool=tool.name, server=tool.server, problems=problems, result=result)


def _sources(answer: Answer, by: Settling) -> Sequence[SourceRef]:
    plain = answer.structured is None and not answer.meta and not by.attribution
    plain = plain and all(part.kind == "text" and not part.meta for part in answer.parts)
    if plain and not may_cite(answer.parts):
        return ()
    return find_sources(answer.structured, answer.meta, parts=answer.parts, attribution=by.attribution)


def _text(answer: Answer, parts: Sequence[Part], sources: Sequence[SourceRef], by: Settling) -> str:
    body, end = pieces(parts, sources)
    if by.budget is None:
        return body + end
    budget = raised(by.budget, answer.meta)
    if budget.holds(body + end):
        return body + end
    path = by.keeper.keep_text(body + end) if by.keeper is not None else None
    return fit(body, budget, end=end, whole=f"the file `{path}`" if path is not None else "")


def _described(part: Part, keeper: Keeper | None) -> Part:
    """Give a piece the words that stand for it, and its bytes a file if there is a place for them."""
    if part.kind == "structured":
        return part
    if keeper is not None and part.data and part.kind in ("audio", "resource", "image"):
        path = keeper.keep(part.data, mime_type=part.mime_type)
        if path is not None:
            part = replace(part, meta={**part.meta, FILE: str(path)})
    return part if part.text else replace(part, text=describe(part))


def _listed(problems: list[str]) -> str:
    return f" {problems[0]}" if len(problems) == 1 else "".join(f"\n- {problem}" for problem in problems)
