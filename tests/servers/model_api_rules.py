"""What the real APIs refuse, so that a test cannot pass with a body that only our own server would take.

Each function returns the API's complaint, or nothing for a body that is legal.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = "cache_control"


def check_chat(body: dict[str, Any]) -> str:
    """Chat Completions: every call answered at once by `tool` messages, in which only text may stand."""
    if problem := _check_head(body, "messages"):
        return problem
    for tool in body.get("tools", ()):
        if tool.get("type") != "function" or not NAME.fullmatch(tool.get("function", {}).get("name", "")):
            return "Invalid 'tools[0].function.name': string does not match pattern."
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            waiting.remove(message["tool_call_id"])
            if not isinstance(content, str) and any(part.get("type") != "text" for part in content):
                return f"Invalid 'messages[{at}].content': tool messages take text only."
            continue
        if waiting:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
        if role == "assistant":
            calls = message.get("tool_calls")
            if calls == [] or (not calls and not content):
                return f"Invalid 'messages[{at}]': an assistant message needs content or tool calls."
            for call in calls or ():
                if call.get("type") != "function" or not isinstance(call["function"].get("arguments"), str):
                    return f"Invalid 'messages[{at}].tool_calls': arguments have to be a string."
                if not is_object(call["function"]["arguments"]):
                    return f"Invalid 'messages[{at}].tool_calls': arguments have to hold an object."
            waiting = [call["id"] for call in calls or ()]
            if len(set(waiting)) != len(waiting) or not all(waiting):
                return f"Invalid 'messages[{at}].tool_calls': duplicate or empty ids."
        elif role not in {"system", "developer", "user"} or content is None:
            return f"Invalid value: 'messages[{at}].role'."
    return f"tool_call_ids did not have response messages: {waiting}" if waiting else ""


def check_responses(body: dict[str, Any]) -> str:
    """Responses: an output for each call and a call for each output; stored thoughts are not there."""
    if problem := _check_head(body, "input"):
        return problem
    for tool in body.get("tools", ()):
        if tool.get("type") == "function" and not NAME.fullmatch(tool.get("name", "")):
            return "Invalid 'tools[0].name': string does not match pattern."
    waiting: list[str] = []
    for at, item in enumerate(body["input"]):
        kind = item.get("type", "message")
        if kind == "tool_search_call":
            if not isinstance(item.get("arguments"), dict) or item.get("execution") != "client":
                return f"Invalid 'input[{at}]': a search needs its arguments and where it runs."
            waiting.append(item["call_id"])
        elif kind == "tool_search_output":
            if item.get("call_id") not in waiting:
                return f"No tool search found for output with call_id {item.get('call_id')}."
            waiting.remove(item["call_id"])
            if not all(tool.get("type") == "function" and tool.get("name") for tool in item["tools"]):
                return f"Invalid value: 'input[{at}].tools'."
        elif kind == "additional_tools":
            if item.get("role") != "developer" or not item.get("tools"):
                return f"Invalid value: 'input[{at}]'."
        elif kind == "function_call":
            if not isinstance(item.get("arguments"), str) or not item.get("call_id"):
                return f"Invalid 'input[{at}]': a call needs its call_id and its arguments as a string."
            if not is_object(item["arguments"]):
                return f"Invalid 'input[{at}].arguments': expected an object in JSON."
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            if item.get("call_id") not in waiting:
                return f"No tool call found for function call output with call_id {item.get('call_id')}."
            waiting.remove(item["call_id"])
            output = item.get("output")
            kinds = {"input_text", "input_image", "input_file"}
            if not isinstance(output, str) and not all(part.get("type") in kinds for part in output):
                return f"Invalid value: 'input[{at}].output'."
        elif kind == "reasoning" and not item.get("encrypted_content") and not body.get("store", True):
            return f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
        elif kind == "message" and item.get("role") not in {"user", "assistant", "system", "developer"}:
            return f"Invalid value: 'input[{at}].role'."
    return f"No tool output found for function call {waiting[0]}." if waiting else ""


def check_anthropic(body: dict[str, Any]) -> str:
    """Messages: results first, all in the one message after their turn; nothing empty; four cache marks."""
    if problem := _check_head(body, "messages"):
        return problem
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    for tool in body.get("tools", ()):
        if not NAME.fullmatch(tool.get("name", "")) or tool.get("input_schema", {}).get("type") != "object":
            return "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"
    marks = json.dumps([body.get("tools"), body.get("system"), body["messages"]]).count(f'"{_MARK}"')
    if marks > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    if body["messages"][0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    known = {tool["name"] for tool in body.get("tools", ())}
    if known and all(tool.get("defer_loading") for tool in body["tools"]):
        return "tools: at least one tool must not be deferred"
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        content = message["content"]
        blocks: list[dict[str, Any]] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        if not blocks:
            return f"messages.{at}: all messages must have non-empty content"
        if message["role"] == "system" and {block["type"] for block in blocks} == {"tool_addition"}:
            known |= {block["tool"]["definition"]["name"] for block in blocks}
            continue
        if message["role"] not in {"user", "assistant"}:
            return f"messages.{at}.role: Input should be 'user' or 'assistant'"
        if problem := _check_references(blocks, known):
            return f"messages.{at}: {problem}"
        if problem := _check_blocks(blocks, at):
            return problem
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        leading = [block["type"] for block in blocks[: len(results)]]
        if waiting and (set(results) != set(waiting) or set(leading) != {"tool_result"}):
            missing = ", ".join(waiting)
            return (
                f"messages.{at - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{missing}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        if not waiting and results:
            return f"messages.{at}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {results[0]}."
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if waiting and message["role"] != "assistant":
            return f"messages.{at}: `tool_use` blocks can only be in `assistant` messages"
    return f"messages: `tool_use` ids were found without `tool_result` blocks: {waiting}" if waiting else ""


def _check_references(blocks: list[dict[str, Any]], known: set[str]) -> str:
    for block in blocks:
        content: Any = block.get("content") if block["type"] == "tool_result" else None
        pieces = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
        for piece in pieces:
            if piece.get("type") == "tool_reference" and piece.get("tool_name") not in known:
                return f"Tool reference '{piece.get('tool_name')}' not found in available tools"
    return ""


def _check_blocks(blocks: list[dict[str, Any]], at: int) -> str:
    for block in blocks:
        kind = block.get("type")
        if kind == "text" and not block.get("text", "").strip():
            return f"messages.{at}: text content blocks must be non-empty"
        if kind in {"thinking", "redacted_thinking"} and _MARK in block:
            return f"messages.{at}: thinking blocks cannot have cache_control"
        if kind == "thinking" and not block.get("signature"):
            return f"messages.{at}.content.0.thinking.signature: Field required"
        if kind == "tool_use" and not isinstance(block.get("input"), dict):
            return f"messages.{at}.content.0.tool_use.input: Input should be a valid dictionary"
        if kind == "tool_result" and block.get("is_error") and not block.get("content"):
            return f"messages.{at}: content cannot be empty if `is_error` is true"
    return ""


def is_object(text: str) -> bool:
    """What OpenAI itself may take, but not the servers that decode it for their template."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _check_head(body: dict[str, Any], items: str) -> str:
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "you must provide a model parameter"
    if not isinstance(body.get(items), list) or not body[items]:
        return f"{items}: at least one message is required"
    if body.get("tools") == []:
        return "[] is too short - 'tools'"
    if "tool_choice" in body and not body.get("tools"):
        return "tool_choice is only allowed when tools are specified"
    if not body.get("stream"):
        return "this server only streams"
    return ""


def check_gemini(body: dict[str, Any]) -> str:
    """Gemini: results at once after the calls, nothing beside them, and a signature for the first call."""
    contents = body.get("contents")
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified"
    for tools in body.get("tools", ()):
        for tool in tools["functionDeclarations"]:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", tool.get("name", "")):
                return "Invalid function name."
    if body.get("toolConfig") and not body.get("tools"):
        return "Function calling config is set without function_declarations."
    waiting: list[str] = []
    for at, content in enumerate(contents):
        parts = content.get("parts")
        if not parts or content.get("role") not in {"user", "model"}:
            return f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if waiting:
            if len(answers) != len(parts) or [answer["name"] for answer in answers] != waiting:
                return (
                    "Please ensure that the number of function response parts is equal to the number of function "
                    "call parts of the function call turn."
                )
        elif answers:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if any(not isinstance(answer.get("response"), dict) for answer in answers):
            return "Invalid value at 'function_response.response'."
        if any("text" in part and not isinstance(part["text"], str) for part in parts):
            return "Invalid value at 'parts.text'."
        calls = [part for part in parts if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            return "Function call is missing a thought_signature in functionCall parts."
        if any(not isinstance(part["functionCall"].get("args"), dict) for part in calls):
            return "Invalid value at 'function_call.args'."
        waiting = [part["functionCall"]["name"] for part in calls]
        if calls and content["role"] != "model":
            return "Function calls belong to the model."
    return "Please ensure that function call turns are answered." if waiting else ""


def check_ollama(body: dict[str, Any]) -> str:
    """Ollama: arguments are objects, and media are base64 in lists of their own."""
    if problem := _check_head(body, "messages"):
        return problem
    for message in body["messages"]:
        if message.get("role") not in {"system", "user", "assistant", "tool"}:
            return "invalid role"
        if not isinstance(message.get("content"), str):
            return "json: cannot unmarshal content into Go struct field of type string"
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"].get("arguments"), dict):
                return "json: cannot unmarshal arguments into Go struct field of type map"
    return ""


def check_openai(body: dict[str, Any]) -> str:
    """OpenAI's own rules, at OpenAI or Azure: one name of the limit."""
    if "max_tokens" in body:
        return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    return check_chat(body)


def check_keeping(body: dict[str, Any]) -> str:
    """DeepSeek and Kimi: the thoughts before a call go back, even if there were none."""
    if "max_completion_tokens" in body:
        return "unknown field: max_completion_tokens"
    for message in body["messages"]:
        if message.get("tool_calls") and "reasoning_content" not in message:
            return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return check_chat(body)


def check_glm(body: dict[str, Any]) -> str:
    """GLM: no options of the stream, and no choice of tools."""
    if unknown := {"stream_options", "max_completion_tokens", "parallel_tool_calls"} & set(body):
        return f"unsupported parameter: {sorted(unknown)}"
    if body.get("tool_choice", "auto") != "auto":
        return "tool_choice: only auto is supported"
    return check_keeping(body)


def check_groq(body: dict[str, Any]) -> str:
    """Groq: the newer name of the limit, and no thoughts in a request."""
    if "max_tokens" in body:
        return "'max_tokens' is deprecated in favour of 'max_completion_tokens'"
    return check_chat(body)


COMPATIBLE = {
    **dict.fromkeys(("deepseek", "kimi", "kimi-intl"), check_keeping),
    **dict.fromkeys(("glm", "glm-intl"), check_glm),
    **dict.fromkeys(("qwen", "qwen-intl", "openrouter", "vllm", "llamacpp", "lmstudio"), check_chat),
    "groq": check_groq,
}
"""What compatible servers refuse besides."""
