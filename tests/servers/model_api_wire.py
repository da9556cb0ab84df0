"""A turn of a script, as each API streams it: lists of server-sent events, ready to be cut or spoilt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

FINISHES = {
    "anthropic": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refused": "refusal"},
    "responses": {"length": "max_output_tokens", "refused": "content_filter"},
    "openai": {"refused": "content_filter"},
    "gemini": {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"},
    "ollama": {"tool_calls": "stop"},
}
USAGE = {"input": 100, "output": 20, "cached": 60}


@dataclass(frozen=True)
class Event:
    """One server-sent event, or one line."""

    data: str
    name: str = ""
    is_line: bool = False

    def encode(self) -> bytes:
        if self.is_line:
            return f"{self.data}\n".encode()
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {self.data}\n\n".encode()


def events(api: str, turn: dict[str, Any], model: str) -> list[Event]:
    wires = {
        "openai": chat,
        "responses": responses,
        "anthropic": anthropic,
        "gemini": gemini,
        "ollama": ollama,
    }
    return wires[api](turn, model)


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def finish_of(turn: dict[str, Any]) -> str:
    return turn.get("finish", "tool_calls" if turn.get("calls") else "stop")


def written(call: dict[str, Any]) -> str:
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def chat(turn: dict[str, Any], model: str) -> list[Event]:
    quirks = set(turn.get("quirks", ()))

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        fields = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        return Event(json.dumps({**fields, "choices": [choice]}))

    found = [chunk({"role": "assistant", "content": ""})]
    if "empty choices" in quirks:
        # Azure sends the verdict of its filter first.
        found.insert(
            0, Event(json.dumps({"id": "", "model": "", "choices": [], "prompt_filter_results": []}))
        )
    thought = next((quirk for quirk in ("reasoning", "thinking") if quirk in quirks), "reasoning_content")
    found += [chunk({thought: piece}) for piece in pieces(turn.get("thought", ""))]
    found += [chunk({"content": piece}) for piece in pieces(turn.get("text", ""))]
    for index, call in enumerate(turn.get("calls", ())):
        head: dict[str, Any] = {"index": index, "id": call.get("id", f"call_{call['name']}_{index}")}
        head["type"] = "function"
        if "no ids" in quirks:
            del head["id"]
        if "no index" in quirks:
            del head["index"]
        if "index 0" in quirks:
            head["index"] = 0
        if extra := call.get("extra"):
            head.update(extra)
        arguments: Any = written(call)
        if "whole calls" in quirks or "objects" in quirks:
            arguments = call.get("arguments", {}) if "objects" in quirks else arguments
            found.append(
                chunk({"tool_calls": [{**head, "function": {"name": call["name"], "arguments": arguments}}]})
            )
            continue
        found.append(chunk({"tool_calls": [{**head, "function": {"name": call["name"], "arguments": ""}}]}))
        for piece in pieces(arguments):
            tail = {key: value for key, value in head.items() if key == "index"}
            found.append(chunk({"tool_calls": [{**tail, "function": {"arguments": piece}}]}))
    finish = finish_of(turn)
    finish = "stop" if "stop with calls" in quirks else FINISHES["openai"].get(finish, finish)
    if turn.get("refusal"):
        found.append(chunk({"refusal": turn["refusal"]}))
    found.append(chunk({}, finish))
    if "no usage" not in quirks:
        usage = {
            "prompt_tokens": USAGE["input"],
            "completion_tokens": USAGE["output"],
            "total_tokens": USAGE["input"] + USAGE["output"],
            "prompt_tokens_details": {"cached_tokens": USAGE["cached"]},
        }
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        found.append(Event(json.dumps({**head, "choices": [], "usage": usage})))
    found.append(Event("[DONE]"))
    return found


def responses(turn: dict[str, Any], model: str) -> list[Event]:
    found: list[Event] = []

    def add(kind: str, **fields: Any) -> None:
        data = {"type": kind, "sequence_number": len(found), **fields}
        found.append(Event(json.dumps(data), kind))

    shell = {"id": "resp_1", "object": "response", "model": model, "status": "in_progress", "output": []}
    add("response.created", response=shell)
    add("response.in_progress", response=shell)
    output: list[dict[str, Any]] = []
    if thought := turn.get("thought"):
        item = {"type": "reasoning", "id": "rs_1", "summary": []}
        add("response.output_item.added", output_index=0, item=item)
        for piece in pieces(thought):
            add("response.reasoning_summary_text.delta", output_index=0, item_id="rs_1", delta=piece)
        item = {**item, "summary": [{"type": "summary_text", "text": thought}]}
        if sealed := turn.get("sealed"):
            item["encrypted_content"] = sealed
        add("response.output_item.done", output_index=0, item=item)
        output.append(item)
    for kind, key, text in (
        ("output_text", "text", turn.get("text")),
        ("refusal", "refusal", turn.get("refusal")),
    ):
        if not text:
            continue
        at = len(output)
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "status": "in_progress"}
        add("response.output_item.added", output_index=at, item=item)
        for piece in pieces(text):
            add(f"response.{kind}.delta", output_index=at, content_index=0, item_id="msg_1", delta=piece)
        content: dict[str, Any] = {"type": kind, key: text}
        item = {**item, "content": [content], "status": "completed"}
        add("response.output_item.done", output_index=at, item=item)
        output.append(item)
    for number, call in enumerate(turn.get("calls", ())):
        at = len(output)
        item = {"type": "function_call", "id": f"fc_{number}", "name": call["name"], "arguments": ""}
        item["call_id"] = call.get("id", f"call_{call['name']}_{number}")
        add("response.output_item.added", output_index=at, item=item)
        for piece in pieces(written(call)):
            add("response.function_call_arguments.delta", output_index=at, item_id=item["id"], delta=piece)
        add("response.function_call_arguments.done", output_index=at, arguments=written(call))
        item = {**item, "arguments": written(call), "status": "completed"}
        add("response.output_item.done", output_index=at, item=item)
        output.append(item)
    for item in turn.get("unknown", ()):
        add("response.output_item.done", output_index=len(output), item=item)
        output.append(item)
    finish = finish_of(turn)
    usage = {
        "input_tokens": USAGE["input"],
        "output_tokens": USAGE["output"],
        "input_tokens_details": {"cached_tokens": USAGE["cached"]},
    }
    quirks = set(turn.get("quirks", ()))
    last = {**shell, "output": [] if "empty output" in quirks else output, "status": "completed"}
    if "no usage" not in quirks:
        last["usage"] = usage
    if finish in FINISHES["responses"]:
        last |= {"status": "incomplete", "incomplete_details": {"reason": FINISHES["responses"][finish]}}
    add("response.incomplete" if last["status"] == "incomplete" else "response.completed", response=last)
    return found


def anthropic(turn: dict[str, Any], model: str) -> list[Event]:
    found: list[Event] = []

    def add(kind: str, **fields: Any) -> None:
        found.append(Event(json.dumps({"type": kind, **fields}), kind))

    usage = {"input_tokens": 40, "cache_read_input_tokens": USAGE["cached"], "cache_creation_input_tokens": 5}
    quirks = set(turn.get("quirks", ()))
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    add(
        "message_start",
        message={**start, "usage": {} if "no usage" in quirks else {**usage, "output_tokens": 1}},
    )
    add("ping")
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thought := turn.get("thought"):
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thought)]
        deltas.append({"type": "signature_delta", "signature": turn.get("sealed", "signed")})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if text := turn.get("text") or turn.get("refusal"):
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for number, call in enumerate(turn.get("calls", ())):
        head = {
            "type": "tool_use",
            "id": call.get("id", f"toolu_{call['name']}_{number}"),
            "name": call["name"],
        }
        if "objects" in quirks:
            blocks.append(({**head, "input": call.get("arguments", {})}, []))
            continue
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(written(call))]
        blocks.append(({**head, "input": {}}, deltas))
    blocks += [(block, []) for block in turn.get("unknown", ())]
    for index, (block, deltas) in enumerate(blocks):
        add("content_block_start", index=index, content_block=block)
        for delta in deltas:
            add("content_block_delta", index=index, delta=delta)
        add("content_block_stop", index=index)
    finish = "refused" if turn.get("refusal") else finish_of(turn)
    stop = {"stop_reason": FINISHES["anthropic"].get(finish, {"paused": "pause_turn"}.get(finish, finish))}
    add("message_delta", delta=stop, usage={} if "no usage" in quirks else {"output_tokens": USAGE["output"]})
    add("message_stop")
    return found


def gemini(turn: dict[str, Any], model: str) -> list[Event]:
    found: list[Event] = []

    def add(*parts: dict[str, Any], **fields: Any) -> None:
        content = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **fields}
        found.append(Event(json.dumps({"candidates": [content], "modelVersion": model})))

    for piece in pieces(turn.get("thought", "")):
        add({"text": piece, "thought": True})
    for piece in pieces(turn.get("text", "") or turn.get("refusal", "")):
        add({"text": piece})
    for number, call in enumerate(turn.get("calls", ())):
        given: dict[str, Any] = {"name": call["name"], "args": call.get("arguments", {})}
        if "ids" in turn.get("quirks", ()):
            given["id"] = f"fc_{number}"
        part: dict[str, Any] = {"functionCall": given}
        if number == 0:
            part["thoughtSignature"] = turn.get("sealed", "signed")
        add(part)
    for part in turn.get("unknown", ()):
        add(part)
    finish = "refused" if turn.get("refusal") else finish_of(turn)
    last: dict[str, Any] = {
        "candidates": [{"finishReason": FINISHES["gemini"].get(finish, finish), "index": 0}],
        "modelVersion": model,
    }
    if "no usage" not in turn.get("quirks", ()):
        last["usageMetadata"] = {
            "promptTokenCount": USAGE["input"],
            "candidatesTokenCount": USAGE["output"] - 5,
            "thoughtsTokenCount": 5,
            "cachedContentTokenCount": USAGE["cached"],
        }
    found.append(Event(json.dumps(last)))
    return found


def ollama(turn: dict[str, Any], model: str) -> list[Event]:
    found: list[Event] = []

    def add(*, done: bool = False, **fields: Any) -> None:
        message = {"role": "assistant", "content": "", **fields.pop("message", {})}
        data = {"model": model, "created_at": "2026-11-01T00:00:00Z", "message": message, "done": done}
        found.append(Event(json.dumps({**data, **fields}), is_line=True))

    for piece in pieces(turn.get("thought", "")):
        add(message={"thinking": piece})
    for piece in pieces(turn.get("text", "") or turn.get("refusal", "")):
        add(message={"content": piece})
    for call in turn.get("calls", ()):
        function = {"name": call["name"], "arguments": call.get("arguments", {})}
        add(message={"tool_calls": [{"function": function}]})
    finish = finish_of(turn)
    usage = {"prompt_eval_count": USAGE["input"], "eval_count": USAGE["output"]}
    add(
        done=True,
        done_reason=FINISHES["ollama"].get(finish, finish),
        **({} if "no usage" in turn.get("quirks", ()) else usage),
    )
    return found
