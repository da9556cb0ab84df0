"""A server on the official SDK's low-level side that uses every feature, in both protocol generations."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

PIXEL = base64.b64encode(b"\x89PNG pixel").decode()
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
FORM: dict[str, Any] = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
TOOLS = (
    *("echo", "image", "fail", "refuse", "progress", "wait", "was_cancelled", "log", "link"),
    *("form", "url", "sample", "roots", "roots_changed", "change", "touch"),
)
bus = InMemorySubscriptionBus()
cancelled = asyncio.Event()
new_roots = asyncio.Event()
extra: list[str] = []
levels = ["warning"]


def fields(given: Any) -> dict[str, Any]:
    return given or {}


def text(said: Any) -> Any:
    return types.CallToolResult(content=[types.TextContent(text=said)])


async def list_tools(_ctx: Any, params: Any) -> Any:
    schema = {**OBJECT, "properties": {"said": {"type": "string"}}}
    structured = {"type": "object", "properties": {"said": {"type": "string"}}}
    tools = [
        types.Tool(
            name=name,
            description=f"The tool {name}.",
            input_schema=schema,
            output_schema=structured if name == "echo" else None,
            annotations=types.ToolAnnotations(read_only_hint=True) if name == "echo" else None,
            _meta={"vendor/x": {"deep": [1, None]}, "ui": {"resourceUri": "ui://view/echo"}}
            if name == "echo"
            else None,
        )
        for name in (*TOOLS, *extra)
    ]
    # Two pages, so that a client has to follow the cursor.
    if params is not None and params.cursor == "second":
        return types.ListToolsResult(tools=tools[5:])
    return types.ListToolsResult(tools=tools[:5], next_cursor="second")


async def call_tool(ctx: Any, params: Any) -> Any:
    name, arguments = params.name, fields(params.arguments)
    match name:
        case "echo":
            return types.CallToolResult(
                content=[types.TextContent(text=arguments.get("said", ""), _meta={"block": 1})],
                structured_content={"said": arguments.get("said", "")},
                _meta={"vendor/result": {"seen": fields(ctx.meta).get("vendor/request")}},
            )
        case "image":
            return types.CallToolResult(content=[types.ImageContent(data=PIXEL, mime_type="image/png")])
        case "fail":
            return types.CallToolResult(content=[types.TextContent(text="it went wrong")], is_error=True)
        case "refuse":
            raise MCPError(code=-32099, message="not today", data={"why": ["rain"]})
        case "progress":
            for number in (1, 2, 3):
                await ctx.session.report_progress(number, 3, f"step {number}")
            return text("done")
        case "wait":
            await ctx.session.report_progress(0, None, "started")
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.set()
        case "was_cancelled":
            await cancelled.wait()
            cancelled.clear()
            return text("yes")
        case "log":
            await send_log(ctx, "debug", "not wanted")
            await send_log(ctx, "error", {"said": "wanted"})
            return text("logged")
        case "link":
            inside = types.TextResourceContents(uri="memo://inside", text="inside")
            return types.CallToolResult(
                content=[
                    types.ResourceLink(uri="memo://one", name="one"),
                    types.EmbeddedResource(resource=inside),
                ]
            )
        case "form":
            asked = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message="How many?", requested_schema=FORM)
            )
            answer = await ask(ctx, params, asked, types.ElicitResult)
            return answer if is_question(answer) else text(f"{answer.action} {answer.content}")
        case "url":
            asked = types.ElicitRequest(
                params=types.ElicitRequestURLParams(
                    message="Sign", url="https://example.com/sign", elicitation_id="e1"
                )
            )
            answer = await ask(ctx, params, asked, types.ElicitResult)
            if is_question(answer):
                return answer
            if not modern(ctx):
                await ctx.session.send_elicit_complete("e1")
            return text(answer.action)
        case "sample":
            said = types.SamplingMessage(role="user", content=types.TextContent(text="Say something"))
            asked = types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(messages=[said], max_tokens=9)
            )
            answer = await ask(ctx, params, asked, types.CreateMessageResult)
            return answer if is_question(answer) else text(f"{answer.model}: {answer.content.text}")
        case "roots":
            answer = await ask(ctx, params, types.ListRootsRequest(), types.ListRootsResult)
            return answer if is_question(answer) else text(" ".join(str(root.uri) for root in answer.roots))
        case "roots_changed":
            await new_roots.wait()
            new_roots.clear()
            return text("yes")
        case "change":
            extra.append("extra")
            if modern(ctx):
                for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
                    await bus.publish(event)
            else:
                await ctx.session.send_tool_list_changed()
                await ctx.session.send_resource_list_changed()
                await ctx.session.send_prompt_list_changed()
            return text("changed")
        case "touch":
            if modern(ctx):
                await bus.publish(ResourceUpdated(uri="memo://one"))
            else:
                await ctx.session.send_resource_updated("memo://one")
            return text("touched")
        case _ if name in extra:
            return text("extra")
        case _:
            raise MCPError(code=-32602, message=f"no tool {name}")


def modern(ctx: Any) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def is_question(answer: Any) -> bool:
    return isinstance(answer, types.InputRequiredResult)


async def ask(ctx: Any, params: Any, request: Any, kind: Any) -> Any:
    if not modern(ctx):
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        return await ctx.session.send_request(request, kind, metadata=related)
    if params.input_responses is None:
        return types.InputRequiredResult(input_requests={"q": request}, request_state="round-1")
    assert params.request_state == "round-1", params.request_state
    answer = params.input_responses["q"]
    return answer if isinstance(answer, kind) else kind.model_validate(answer.model_dump(by_alias=True))


async def send_log(ctx: Any, at: Any, data: Any) -> None:
    order = ("debug", "info", "notice", "warning", "error")
    wanted = fields(ctx.meta).get(types.LOG_LEVEL_META_KEY) if modern(ctx) else levels[0]
    if wanted is None or order.index(at) < order.index(wanted):
        return
    params = types.LoggingMessageNotificationParams(level=at, data=data, logger="all")
    await ctx.session.send_notification(
        types.LoggingMessageNotification(params=params), related_request_id=ctx.request_id
    )


async def set_level(_ctx: Any, params: Any) -> Any:
    levels[:] = [params.level]
    return types.EmptyResult()


async def list_resources(_ctx: Any, _params: Any) -> Any:
    found = [types.Resource(uri="memo://one", name="one", _meta={"vendor/r": 1})]
    found += [types.Resource(uri="ui://view/echo", name="view", mime_type="text/html;profile=mcp-app")]
    return types.ListResourcesResult(resources=found)


async def list_templates(_ctx: Any, _params: Any) -> Any:
    template = types.ResourceTemplate(uri_template="memo://{name}", name="memo")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Any, params: Any) -> Any:
    if params.uri == "memo://missing":
        raise MCPError(code=-32002, message="no such memo", data={"uri": params.uri})
    if params.uri == "memo://ask":
        asked = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="May I?", requested_schema=FORM)
        )
        answer = await ask(ctx, params, asked, types.ElicitResult)
        if is_question(answer):
            return answer
        said = f"{answer.action} {answer.content}"
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=said)])
    if params.uri.startswith("ui://"):
        view = types.TextResourceContents(uri=params.uri, text="<p>", mime_type="text/html;profile=mcp-app")
        return types.ReadResourceResult(contents=[view])
    blob = types.BlobResourceContents(uri=params.uri, blob=PIXEL, mime_type="image/png")
    said = types.TextResourceContents(uri=params.uri, text=f"memo {params.uri}")
    return types.ReadResourceResult(contents=[said, blob])


async def subscribe(_ctx: Any, _params: Any) -> Any:
    return types.EmptyResult()


async def list_prompts(_ctx: Any, _params: Any) -> Any:
    argument = types.PromptArgument(name="city", required=True)
    prompts = [types.Prompt(name="greet", arguments=[argument]), types.Prompt(name="ask")]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(ctx: Any, params: Any) -> Any:
    if params.name == "ask":
        form = types.ElicitRequestFormParams(message="May I?", requested_schema=FORM)
        answer = await ask(ctx, params, types.ElicitRequest(params=form), types.ElicitResult)
        if is_question(answer):
            return answer
        block = types.TextContent(text=f"{answer.action} {answer.content}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block)])
    said = f"Greet {fields(params.arguments).get('city')}"
    message = types.PromptMessage(role="user", content=types.TextContent(text=said))
    return types.GetPromptResult(description="a greeting", messages=[message])


async def complete(_ctx: Any, params: Any) -> Any:
    about = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
    known = fields(params.context.arguments if params.context else None)
    values = [f"{about}:{params.argument.name}={params.argument.value}", *known.values()]
    return types.CompleteResult(completion=types.Completion(values=values, total=7, has_more=True))


server: Server[Any] = Server(
    "all-features",
    version="1",
    instructions="Read the memos.",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=subscribe,
    on_subscriptions_listen=ListenHandler(bus),
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
)


async def roots_changed(_ctx: Any, _params: Any) -> None:
    new_roots.set()


server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
server.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, roots_changed)


async def main() -> None:
    every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(every))


anyio.run(main)
