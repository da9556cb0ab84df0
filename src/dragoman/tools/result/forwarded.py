"""Answers that are passed on to another client: the server's own blocks, and what the library would add.

A client behind the gateway gets what the server sent. Where the library adds something to the text of a
result (sources, a note that a fallback answered), it is added as a block of its own and in `_meta`.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import InvalidResultError, ToolFailedError
from dragoman.model import ToolResult
from dragoman.struct import asdict
from dragoman.tools.result.budget import fit
from dragoman.tools.result.build import sources_of
from dragoman.tools.result.render import attribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.result.build import ResultContext
    from dragoman.tools.result.render import ServerAnswer
    from dragoman.tools.schema.validate import Validators

FALLBACK = "dragoman/fallback"
"""The key in a result's `meta` that names the server or tool that answered instead."""
SOURCES = "dragoman/sources"
"""The key in the `_meta` of an answer with the sources that it rests on."""


def forwarded_result(answer: ServerAnswer, by: ResultContext, *, renders: bool) -> ToolResult:
    """Return an answer for another client, with its text for the call log only.

    Args:
        answer: What the server sent.
        by: The tool and the rules for its results.
        renders: Whether sources are added, and texts cut, by those rules.
    """
    raw: Mapping[str, Any] = answer.raw
    if renders and by.budget is not None:
        raw = _within_budget(raw, by, by.budget)
    if renders and by.sources_in_text and not answer.is_error and (sources := sources_of(answer, by)):
        given = [{key: text for key, text in asdict(source).items() if text} for source in sources]
        raw = _with_block(raw, attribution(sources, by.texts).strip("\n"), {SOURCES: given})
    text = "\n".join(part.text for part in answer.parts if part.kind == "text")
    failure = None
    if answer.is_error:
        text = text or "the tool failed without a message"
        failure = ToolFailedError(text, tool=by.tool.name, server=by.tool.server)
    return ToolResult(
        success=failure is None,
        text=text,
        error=None if failure is None else text,
        exception=failure,
        raw=raw,
        call_id=by.call_id,
        duration=by.duration,
    )


def forwarded_fallback(
    result: ToolResult, tool: ToolDef, validators: Validators, *, name: str, note: str
) -> ToolResult:
    """Return the answer of a fallback for another client, which knows the schema of the tool that it called.

    Args:
        result: The fallback's result.
        tool: The tool that was called.
        validators: Check results.
        name: The fallback.
        note: What says so.

    Raises:
        InvalidResultError: The answer does not fit the output schema of the tool.
    """
    raw = result.raw or {"content": [{"type": "text", "text": result.text}], "isError": False}
    if raw.get("resultType", "complete") != "complete":
        return result
    if tool.output_schema is not None and not raw.get("isError"):
        structured = raw.get("structuredContent")
        problems = ["it has no structured content"]
        if structured is not None:
            problems = validators.of(tool.output_schema).problems(structured)
        if problems:
            msg = f"`{name}` answered for `{tool.name}`, but not by its output schema: {problems[0]}"
            raise InvalidResultError(msg, tool=tool.name, server=tool.server, problems=problems)
    return result.replace(raw=_with_block(raw, note, {FALLBACK: name}, first=True))


def _with_block(
    raw: Mapping[str, Any], text: str, meta: Mapping[str, Any], *, first: bool = False
) -> dict[str, Any]:
    content, given = raw.get("content"), raw.get("_meta")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    block: dict[str, Any] = {"type": "text", "text": text}
    known = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    shown = [block, *blocks] if first else [*blocks, block]
    return {**raw, "content": shown, "_meta": {**known, **meta}}


def _within_budget(raw: Mapping[str, Any], by: ResultContext, budget: TextBudget) -> Mapping[str, Any]:
    """Return an answer whose texts are cut to the budget; what is cut is kept for `read_result`."""
    blocks: list[Any] = []
    for block in cast("list[Any]", raw.get("content") or []):
        fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        text = fields.get("text")
        if not isinstance(text, str) or budget.holds(text):
            blocks.append(block)
            continue
        kept = by.keeper.keep_text(text) if by.keeper is not None else None
        # The client may be on another machine: only the name of the file means something to it.
        whole = (
            f"the file `{PurePath(str(kept)).name}`, which `read_result` reads" if kept is not None else ""
        )
        blocks.append({**fields, "text": fit(text, budget, whole=whole)})
    return {**raw, "content": blocks} if blocks else raw
