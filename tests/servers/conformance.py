"""The tools, resources and prompts that the official conformance suite for servers asks for, in both generations.

`conformance.py` serves stdio; `conformance.py http` serves Streamable HTTP, and prints `serving at URL` to stderr.
What belongs to one HTTP connection alone (closing a stream in the middle of a call) is left out.
"""

from __future__ import annotations

import inspect
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE = 0.05
"""Seconds between two reports of a tool, as the suite's description has it."""
NEW = "test_new"
"""A tool and a prompt that come and go."""
bus = InMemorySubscriptionBus()
levels = ["info"]
EVERY = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT: dict[str, Any] = {"type": "string"}
YES: dict[str, Any] = {"type": "boolean"}
CHOICES = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
OPTIONS = ["option1", "option2", "option3"]
DEFAULTS = schema(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS = schema(
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": CHOICES},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option one", "Option two"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": CHOICES}},
)
JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": TEXT, "city": TEXT},
        }
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NO_ARGUMENTS = schema()
TOOLS: dict[str, dict[str, Any]] = {
    "test_simple_text": NO_ARGUMENTS,
    "test_image_content": NO_ARGUMENTS,
    "test_audio_content": NO_ARGUMENTS,
    "test_embedded_resource": NO_ARGUMENTS,
    "test_multiple_content_types": NO_ARGUMENTS,
    "test_error_handling": NO_ARGUMENTS,
    "test_tool_with_logging": NO_ARGUMENTS,
    "test_logging_tool": NO_ARGUMENTS,
    "test_tool_with_progress": NO_ARGUMENTS,
    "test_sampling": schema("prompt", prompt=TEXT),
    "test_elicitation": schema("message", message=TEXT),
    "test_elicitation_sep1034_defaults": NO_ARGUMENTS,
    "test_elicitation_sep1330_enums": NO_ARGUMENTS,
    "json_schema_2020_12_tool": JSON_SCHEMA_2020_12,
    "test_headers": schema(region={"type": "string", "x-mcp-header": "Region"}),
    "test_missing_capability": NO_ARGUMENTS,
    "test_streaming_elicitation": NO_ARGUMENTS,
    "test_trigger_tool_change": NO_ARGUMENTS,
    "test_trigger_prompt_change": NO_ARGUMENTS,
    "test_input_required_result_elicitation": NO_ARGUMENTS,
    "test_input_required_result_sampling": NO_ARGUMENTS,
    "test_input_required_result_list_roots": NO_ARGUMENTS,
    "test_input_required_result_request_state": NO_ARGUMENTS,
    "test_input_required_result_multiple_inputs": NO_ARGUMENTS,
    "test_input_required_result_multi_round": NO_ARGUMENTS,
    "test_input_required_result_tampered_state": NO_ARGUMENTS,
    "test_input_required_result_capabilities": NO_ARGUMENTS,
}


def modern(ctx: Any) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def said(*texts: str, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], is_error=is_error)


def embedded(uri: str, text: str, kind: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text, mime_type=kind))


def form(message: str, wanted: dict[str, Any]) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=message, requested_schema=wanted)
    return types.ElicitRequest(params=params)


def completion(prompt: str, tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=tokens)
    return types.CreateMessageRequest(params=params)


def name_form() -> types.ElicitRequest:
    return form("What is your name?", schema("name", name=TEXT))


def confirm_form() -> types.ElicitRequest:
    return form("Please confirm", schema("ok", ok=YES))


# ── Tools


async def list_tools(_ctx: Any, _params: Any) -> Any:
    tools = [
        types.Tool(name=name, description=f"The tool {name}.", input_schema=wanted)
        for name, wanted in TOOLS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Any, params: Any) -> Any:
    image = types.ImageContent(data=PIXEL, mime_type="image/png")
    arguments: dict[str, Any] = params.arguments or {}
    match params.name:
        case "test_simple_text":
            return said("This is a simple text response for testing.")
        case "test_image_content":
            return types.CallToolResult(content=[image])
        case "test_audio_content":
            return types.CallToolResult(content=[types.AudioContent(data=SOUND, mime_type="audio/wav")])
        case "test_embedded_resource":
            inside = embedded("test://embedded-resource", "This is an embedded resource content.")
            return types.CallToolResult(content=[inside])
        case "test_multiple_content_types":
            data = embedded(
                "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
            )
            text = types.TextContent(text="Multiple content types test:")
            return types.CallToolResult(content=[text, image, data])
        case "test_error_handling":
            return said("This tool intentionally returns an error for testing", is_error=True)
        case "test_tool_with_logging" | "test_logging_tool":
            for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                await log(ctx, text)
                await anyio.sleep(PAUSE)
            return said("logged")
        case "test_tool_with_progress":
            for number in (0, 50, 100):
                await ctx.session.report_progress(number, 100)
                await anyio.sleep(PAUSE)
            return said("reported")
        case "test_trigger_tool_change" | "test_trigger_prompt_change":
            await announce(ctx, is_tool="tool" in params.name)
            return said("changed")
        case "test_missing_capability":
            required = {"requiredCapabilities": {"sampling": {}}}
            if not declares(ctx, "sampling"):
                raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", required)
            return said("sampling is declared")
        case "json_schema_2020_12_tool" | "test_headers":
            return said(json.dumps(arguments))
        case "test_sampling":
            return await asked(ctx, params, completion(arguments["prompt"]), types.CreateMessageResult)
        case "test_elicitation":
            wanted = schema("username", "email", username=TEXT, email=TEXT)
            return await asked(ctx, params, form(arguments["message"], wanted), types.ElicitResult)
        case "test_elicitation_sep1034_defaults":
            return await asked(ctx, params, form("Who are you?", DEFAULTS), types.ElicitResult)
        case "test_elicitation_sep1330_enums":
            return await asked(ctx, params, form("Choose.", ENUMS), types.ElicitResult)
        case name if name.startswith("test_input_required_result_") or name == "test_streaming_elicitation":
            return rounds(ctx, params)
        case name:
            raise MCPError(types.INVALID_PARAMS, f"no tool {name}")


async def asked(ctx: Any, params: Any, request: Any, kind: Any) -> Any:
    """Ask in the way that the protocol has: in the middle of the request, or by its result."""
    if modern(ctx):
        answer = (params.input_responses or {}).get("asked")
        if answer is None:
            return types.InputRequiredResult(input_requests={"asked": request})
        return said(answer.model_dump_json(by_alias=True))
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(request, kind, metadata=related)
    return said(answer.model_dump_json(by_alias=True))


def rounds(ctx: Any, params: Any) -> Any:
    answers: Mapping[str, Any] = params.input_responses or {}
    state = params.request_state

    def ask(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
        return types.InputRequiredResult(input_requests=requests, request_state=state)

    def content(key: str) -> dict[str, Any]:
        answer = answers.get(key)
        return dict(answer.content or {}) if isinstance(answer, types.ElicitResult) else {}

    match params.name.removeprefix("test_input_required_result_"):
        case "elicitation" | "test_streaming_elicitation":
            name = content("user_name").get("name")
            return said(f"Hello, {name}!") if name else ask(user_name=name_form())
        case "sampling":
            question = completion("What is the capital of France?")
            return said("asked") if "capital_question" in answers else ask(capital_question=question)
        case "list_roots":
            known = "client_roots" in answers
            return said("Roots came.") if known else ask(client_roots=types.ListRootsRequest())
        case "request_state" | "tampered_state":
            if "confirm" in answers and state == "asked to confirm":
                return said("state-ok")
            return ask("asked to confirm", confirm=confirm_form())
        case "multiple_inputs":
            greeting = completion("Generate a greeting", 50)
            questions = {
                "user_name": name_form(),
                "greeting": greeting,
                "client_roots": types.ListRootsRequest(),
            }
            return said("All came.") if questions.keys() <= answers.keys() else ask("three", **questions)
        case "multi_round":
            if state == "second" and "step2" in answers:
                return said("Both steps came.")
            if state == "first" and "step1" in answers:
                color = form("Step 2: What is your favorite color?", schema("color", color=TEXT))
                return ask("second", step2=color)
            return ask("first", step1=form("Step 1: What is your name?", schema("name", name=TEXT)))
        case "capabilities":
            questions = {"elicitation": name_form(), "sampling": completion("Say something")}
            allowed = {key: asking for key, asking in questions.items() if declares(ctx, key)}
            return ask(**allowed) if allowed.keys() - answers.keys() else said("Asked what is declared.")
        case _:
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name}")


def declares(ctx: Any, capability: str) -> bool:
    if modern(ctx):
        return capability in ((ctx.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY) or {})
    return getattr(ctx.session.client_params.capabilities, capability, None) is not None


async def log(ctx: Any, text: str) -> None:
    order = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY) if modern(ctx) else levels[0]
    if wanted in order and order.index(wanted) <= order.index("info"):
        params = types.LoggingMessageNotificationParams(level="info", data=text, logger="conformance")
        message = types.LoggingMessageNotification(params=params)
        await ctx.session.send_notification(message, related_request_id=ctx.request_id)


async def announce(ctx: Any, *, is_tool: bool) -> None:
    listed: dict[str, Any] = TOOLS if is_tool else PROMPTS
    if listed.pop(NEW, None) is None:
        listed[NEW] = NO_ARGUMENTS if is_tool else ()
    if modern(ctx):
        await bus.publish(ToolsListChanged() if is_tool else PromptsListChanged())
    elif is_tool:
        await ctx.session.send_tool_list_changed()
    else:
        await ctx.session.send_prompt_list_changed()


# ── Resources and prompts


async def list_resources(_ctx: Any, _params: Any) -> Any:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    found = [types.Resource(uri=f"test://{name}", name=name, mime_type=kind) for name, kind in kinds.items()]
    return types.ListResourcesResult(resources=found)


async def list_templates(_ctx: Any, _params: Any) -> Any:
    template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_ctx: Any, params: Any) -> Any:
    uri, texts = params.uri, {"test://static-text": "A static text.", "test://watched-resource": "Watched."}
    if uri == "test://static-binary":
        blob = types.BlobResourceContents(uri=uri, blob=PIXEL, mime_type="image/png")
        return types.ReadResourceResult(contents=[blob])
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        data = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        found = types.TextResourceContents(uri=uri, text=data, mime_type="application/json")
        return types.ReadResourceResult(contents=[found])
    if uri not in texts:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    found = types.TextResourceContents(uri=uri, text=texts[uri], mime_type="text/plain")
    return types.ReadResourceResult(contents=[found])


PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_prompts(_ctx: Any, _params: Any) -> Any:
    prompts = [
        types.Prompt(
            name=name,
            description=f"The prompt {name}.",
            arguments=[types.PromptArgument(name=argument, required=True) for argument in needed],
        )
        for name, needed in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(_ctx: Any, params: Any) -> Any:
    given: dict[str, str] = params.arguments or {}
    contents: list[Any] = []
    match params.name:
        case "test_simple_prompt":
            contents = ["This is a simple prompt for testing."]
        case "test_prompt_with_arguments":
            contents = [f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"]
        case "test_prompt_with_embedded_resource":
            inside = embedded(given["resourceUri"], "Embedded resource content for testing.")
            contents = [inside, "Please process the embedded resource above."]
        case "test_prompt_with_image":
            image = types.ImageContent(data=PIXEL, mime_type="image/png")
            contents = [image, "Please analyze the image above."]
        case "test_input_required_result_prompt":
            if "user_context" not in (params.input_responses or {}):
                question = form("What context should the prompt use?", schema("context", context=TEXT))
                return types.InputRequiredResult(input_requests={"user_context": question})
            contents = ["The context came."]
        case name:
            raise MCPError(types.INVALID_PARAMS, f"no prompt {name}")
    blocks = [types.TextContent(text=one) if isinstance(one, str) else one for one in contents]
    messages = [types.PromptMessage(role="user", content=block) for block in blocks]
    return types.GetPromptResult(messages=messages)


async def complete(_ctx: Any, params: Any) -> Any:
    values = [value for value in ("test", "tested", "other") if value.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def nothing(_ctx: Any, _params: Any) -> Any:
    return types.EmptyResult()


async def set_level(_ctx: Any, params: Any) -> Any:
    levels[:] = [params.level]
    return types.EmptyResult()


# ── The server


class ConformanceServer(Server[Any]):
    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        return super().create_initialization_options(EVERY)


HEADER_SCHEMAS: dict[str, Any] = (
    {"get_tool_input_schema": TOOLS.get}
    if "get_tool_input_schema" in inspect.signature(Server.__init__).parameters
    else {}
)
"""Says which headers mirror arguments; SDK 2.0 does not check."""


def made() -> ConformanceServer:
    server = ConformanceServer(
        "conformance",
        version="1",
        **HEADER_SCHEMAS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    security = RequestStateSecurity(keys=[b"k" * 32])
    server.middleware.append(RequestStateBoundary(security, default_audience="conformance"))
    return server


async def serve_stdio() -> None:
    server = made()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost")]
    manager = StreamableHTTPSessionManager(
        made(),
        security_settings=TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
        ),
    )
    config = uvicorn.Config(
        manager.handle_request,
        log_config=None,
        interface="asgi3",
        lifespan="off",
        ws="none",
        http="h11",  # which takes white space around header values away
    )
    async with manager.run():
        sys.stderr.write(f"serving at http://127.0.0.1:{port}/mcp\n")
        sys.stderr.flush()
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    anyio.run(serve_http if sys.argv[1:] == ["http"] else serve_stdio)
