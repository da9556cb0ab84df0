"""A user's program that touches the whole public surface; pyright reads it strictly, nothing runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, assert_type

import dragoman
from dragoman import (
    AgentEngine,
    AuthRequiredError,
    Budget,
    CallDeniedError,
    CallTimeoutError,
    ConfigError,
    ConnectError,
    Diagnosis,
    DragomanError,
    Handlers,
    HostRegistry,
    Http,
    HttpStatusError,
    InvalidArgumentsError,
    McpManager,
    MissingVariableError,
    Profile,
    Prompt,
    ProtocolError,
    Provenance,
    Resource,
    ServerError,
    ServerSpec,
    ServerState,
    ServerStatus,
    Settings,
    Sse,
    Stdio,
    Texts,
    Tls,
    ToolDef,
    ToolExecutionError,
    ToolFailedError,
    ToolRegistry,
    ToolResult,
    ToolUnavailableError,
    UnknownServerError,
    UnknownToolError,
    diagnose,
    tool,
)
from dragoman.blocking import McpManager as BlockingManager
from dragoman.model import ReadyReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dragoman.events import Event


class OwnRegistry:
    """A registry of the application."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}

    def register(self, tool: ToolDef) -> None:
        """Take a server's tool."""
        self.functions[tool.name] = tool.func

    def unregister(self, name: str) -> None:
        """Forget one."""
        del self.functions[name]


def own_registry() -> str:
    """Use a registry of the application, without `await`."""
    own: HostRegistry = OwnRegistry()
    with BlockingManager({"files": {"command": "npx"}}, registry=own) as mcp:
        (first, *_) = mcp.tools()
        assert_type(first.execute({"path": "x"}), ToolResult)
        assert_type(mcp.registry.resolve("read").execute(), ToolResult)
        assert_type(mcp.registry.resolve("openai", "read"), str | None)
        return first.name


def filtered(mcp: McpManager) -> list[AgentEngine]:
    """Give agents some of the tools."""
    view = mcp.registry.view(allow=["files:*"])
    model = "openai:gpt-5-mini"
    by_view = AgentEngine(model, mcp, tools=view)
    return [by_view, AgentEngine(model, view), AgentEngine(model, mcp, allow=["files:*"], deny=["*rm"])]


def answer(server: str, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a server that asks."""
    return {"action": "decline", "asked": f"{server}: {request}"}


async def find_out(spec: ServerSpec) -> str:
    """Diagnose a server."""
    found = await diagnose(spec, timeout=5)
    assert_type(found, Diagnosis)
    return found.hint if not found.ok else ", ".join(stage.name for stage in found.stages)


async def read_on(mcp: McpManager) -> None:
    """Use what servers offer beside tools."""
    resources = await mcp.resources()
    assert_type(resources, list[Resource])
    for part in await mcp.read(resources[0].uri, server=resources[0].server):
        print(part.kind, part.text)
    prompts = await mcp.prompts("files")
    assert_type(prompts, list[Prompt])
    print(await mcp.prompt(prompts[0].name, {"topic": "x"}, server="files"), mcp.instructions())
    try:
        await mcp.session.complete({"name": prompts[0].name}, "topic", "a", server="files")
    except HttpStatusError as error:
        print(error.status, error.retry_after)


def managed() -> McpManager:
    """Make a manager that answers servers."""
    return McpManager(specs(), handlers=Handlers(elicitation=answer, roots=["file:///srv/project"]))


def specs() -> list[ServerSpec]:
    """Describe servers of each transport."""
    child = ServerSpec(
        "files",
        Stdio(
            "npx", ["-y", "server", "."], env={"TOKEN": "${TOKEN}", "GONE": None}, cwd="~", env_file=[".env"]
        ),
        required=True,
        lazy=True,
        timeouts={"connect": 5.0, "call": 10.0, "idle": 60.0},
        allowed_tools=["read_*"],
        denied_tools=("read_secret",),
        max_concurrency=4,
        naming="{server}__{tool}",
        fallback=["mirror"],
        trust="strict",
        protocol="auto",
    )
    own = Tls(ca="ca.pem")
    remote = ServerSpec(
        "web", Http("https://example.com/mcp", headers={"Authorization": "Bearer ${KEY}"}, tls=own)
    )
    legacy = ServerSpec("old", Sse("https://example.com/sse", alternate=True), reconnect=False)
    return [child, remote, legacy]


def where_it_runs(spec: ServerSpec) -> str:
    """Tell the transports apart; a new kind would be a type error here."""
    match spec.transport:
        case Stdio(command=command, args=args):
            return " ".join([command, *args])
        case Http(url=url) | Sse(url=url):
            return url
        case _:
            assert_never(spec.transport)


def upper(text: str) -> str:
    """Be a built-in tool."""
    return text.upper()


async def double(number: int) -> int:
    """Be a built-in tool that waits."""
    await asyncio.sleep(0)
    return 2 * number


@tool
def halve(number: float, *, digits: int = 2) -> float:
    """Be a built-in tool that describes itself."""
    return round(number / 2, digits)


@tool(name="greet", title="Greet", annotations={"readOnlyHint": True})
async def greet_person(name: str) -> str:
    """Be one that waits."""
    return f"hello, {name}"


class Counter:
    """Have a method that is a tool."""

    def __init__(self) -> None:
        self.count = 0

    @tool
    def add(self, number: int) -> int:
        """Count."""
        self.count += number
        return self.count


async def decorated(registry: ToolRegistry) -> None:
    """Register what the decorator made, and call it as the function it still is."""
    definitions: list[ToolDef] = [halve, greet_person, Counter().add]
    registry.register_all(definitions)
    assert_type(halve(3.0, digits=1), float)
    assert_type(await greet_person("you"), str)
    assert_type(Counter().add(2), int)
    halve("three")  # pyright: ignore[reportArgumentType]
    Counter().add()  # pyright: ignore[reportCallIssue]


def tool_set() -> ToolRegistry:
    """Register built-in tools beside the remote ones."""
    registry = ToolRegistry()
    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
    added = registry.register(
        ToolDef(name="upper", description="Shout.", input_schema=schema, func=upper, source="builtin")
    )
    assert_type(added, bool)
    more = ToolDef(name="double", description="Double.", input_schema={}, func=double, source="builtin")
    assert_type(registry.register_all([more]), list[ToolDef])
    assert_type(registry.get("upper"), ToolDef | None)
    assert_type(registry.exposed_name("files", "read"), str | None)
    assert_type(registry.suggest("uper"), list[str])
    assert_type(registry.to_openai_schema(), list[dict[str, Any]])
    assert_type(registry.to_openai(), list[dict[str, Any]])
    names = [tool.name for tool in registry if tool.name in registry]
    registry.unregister(names[0])
    assert_type(registry.unregister_server("files"), list[ToolDef])
    assert_type(len(registry), int)
    return registry


async def use(mcp: McpManager) -> None:
    """Do everything that a manager can do."""
    report = await mcp.wait_ready()
    assert_type(report, ReadyReport)
    assert_type(await mcp.wait_ready(["files"], timeout=5), ReadyReport)
    if not report:
        assert_type(report.not_ready, Mapping[str, str])
    assert_type(mcp.tools(), list[ToolDef])
    assert_type(mcp.settings, Settings)
    assert_type(mcp.registry, ToolRegistry)

    result = await mcp.call("mcp_files_read", {"path": "README.md"}, timeout=5)
    assert_type(result, ToolResult)
    show(result)
    assert_type(await mcp.registry.call("upper", {"text": "x"}), str)
    found = mcp.registry.resolve("files.read")
    assert_type(found, ToolDef)
    assert_type(await found.execute({"path": "README.md"}, timeout=5), ToolResult)
    assert_type(mcp.registry.find("files__read"), ToolDef | None)

    for name, status in mcp.status().items():
        assert_type(status, ServerStatus)
        print(name, describe(status), status.tools, status.last_error)
    events: AsyncIterator[Event] = mcp.events()
    async for event in events:
        print(event)
        break
    await mcp.add(specs()[0])
    await mcp.restart("files")
    await mcp.remove("files")
    await mcp.reload()


def describe(status: ServerStatus) -> str:
    """Answer for the states that a program cares about."""
    if status.state is ServerState.READY:
        return f"{status.server_name} {status.server_version}, protocol {status.protocol_version}"
    return f"{status.state.value}, again in {status.retry_in}" if status.retry_in else str(status.state)


def show(result: ToolResult) -> None:
    """Read a result in every way."""
    if not result.success:
        assert_type(result.error, str | None)
        assert_type(result.exception, DragomanError | None)
    for part in result.parts:
        if part.kind == "image":
            print(part.mime_type, len(part.data))
    provenance = result.provenance
    assert_type(provenance, Provenance | None)
    if provenance is not None:
        print(provenance.server, provenance.tool, [(one.title, one.updated) for one in provenance.sources])
    print(result.text, result.output, result.structured, result.duration, result.call_id)
    assert_type(result.raise_for_error(), ToolResult)


async def catch(mcp: McpManager) -> str:
    """Catch every error by its type, and use what it carries."""
    try:
        (await mcp.call("tool")).raise_for_error()
        await mcp.restart("files")
    except UnknownToolError as exc:
        return ", ".join(exc.suggestions)
    except ToolUnavailableError as exc:
        return "it may have run" if exc.may_have_run else "it has not run"
    except InvalidArgumentsError as exc:
        return "; ".join(exc.problems)
    except CallDeniedError as exc:
        return exc.rule
    except CallTimeoutError as exc:
        return f"{exc.seconds:g} s"
    except ProtocolError as exc:
        return str(exc.rpc_code)
    except ToolFailedError as exc:
        return exc.tool
    except ToolExecutionError as exc:
        return exc.call_id
    except UnknownServerError as exc:
        return ", ".join(exc.suggestions)
    except AuthRequiredError as exc:
        return exc.url
    except ConnectError as exc:
        return f"{exc.stage}: {exc.exit_code} {exc.stderr_tail}"
    except ServerError as exc:
        return exc.server
    except MissingVariableError as exc:
        return exc.variable
    except ConfigError as exc:
        return f"{exc.source}:{exc.line} {exc.pointer}"
    except DragomanError as exc:
        return f"{exc.code}: {exc.message} {exc.hint}"
    return ""


def timeouts_are_timeouts(error: CallTimeoutError) -> TimeoutError:
    """A caller who catches `TimeoutError` gets ours too."""
    return error


async def main() -> None:
    """Make managers in every way."""
    async with McpManager(specs(), registry=tool_set(), inputs={"key": "x"}, trust_project=True) as mcp:
        await use(mcp)
        print(await catch(mcp))
    configured = McpManager.from_config(
        Profile(app="myagent", naming="{server}:{tool}", texts=Texts(image="[image]")),
        root=Path(),
        config="mcp.json",
        registry=ToolRegistry(),
    )
    assert_type(configured, McpManager)
    problems: Sequence[DragomanError] = configured.settings.problems
    print(problems, [where_it_runs(spec) for spec in configured.settings.servers])
    async with McpManager.from_config(profile="otter"):
        pass
    connected = await McpManager.connect_all(Settings(servers=specs()))
    assert_type(connected, McpManager)
    await connected.shutdown()
    print(dragoman.__all__)


async def talk(mcp: McpManager) -> str:
    """Let a model use the tools."""
    async with AgentEngine("openai:gpt-5-mini", mcp, budget=Budget(steps=5)) as agent:
        answer = await agent.run("What is new?")
    return answer.text


class Agent:
    """Own a manager, as an application does."""

    def __init__(self, mcp: McpManager) -> None:
        self.mcp = mcp

    def offered(self) -> list[dict[str, Any]]:
        """Return what a model is told."""
        return self.mcp.registry.to_openai_schema()


if __name__ == "__main__":
    asyncio.run(main())


def first_tries() -> None:
    """Make managers in every form that people try first."""
    entry: dict[str, Any] = {"command": "npx", "args": ["-y", "package"]}
    for made in (
        McpManager("mcp.json", missing_ok=True),
        McpManager(Path("mcp.json"), missing_ok=True),
        McpManager({"mcpServers": {"files": entry}}),
        McpManager({"files": entry}),
        McpManager({"files": ServerSpec("files", Stdio("npx"))}),
        McpManager.from_config("mcp.json", missing_ok=True),
        McpManager.from_config(Path("mcp.json"), missing_ok=True),
    ):
        assert_type(made, McpManager)
    assert_type(BlockingManager("mcp.json", missing_ok=True), BlockingManager)
    assert_type(BlockingManager({"mcpServers": {}}).wait_ready(), ReadyReport)
    ServerSpec("x", "http://127.0.0.1")  # pyright: ignore[reportArgumentType]


async def ends(mcp: McpManager, result: ToolResult) -> None:
    """Close by either name, and show a result."""
    await mcp.close()
    BlockingManager([]).close()
    assert_type(mcp.registry.to_openai(), list[dict[str, Any]])
    assert_type(str(await mcp.wait_ready()), str)
    assert_type(result.raise_for_error(), ToolResult)


async def facets(mcp: McpManager, result: ToolResult) -> None:
    """Use what few applications need."""
    await mcp.start(["files"])
    assert_type(await mcp.auth.begin("files"), str)
    assert_type(await mcp.auth.complete("https://app.example/callback?code=x"), str)
    assert_type(await mcp.auth.logout("files"), bool)
    await mcp.trust.approve("files", fingerprint=mcp.trust.changes("files").fingerprint)
    for task in await mcp.tasks.list():
        assert_type(await mcp.tasks.resume(task), ToolResult)
        await mcp.tasks.cancel(task)
    assert_type((await mcp.apps.open(result)).app.html, str)
    assert_type([one.name for one in await mcp.skills.all()], list[str])
    await mcp.session.set_log_level("error")
    assert_type(mcp.as_user("alice"), McpManager)


def facets_that_wait(mcp: BlockingManager, result: ToolResult) -> None:
    """Use the same without `await`."""
    mcp.start(["files"])
    mcp.auth.login("files", paste=input)
    assert_type(mcp.auth.begin("files"), str)
    mcp.trust.approve("files", fingerprint=mcp.trust.changes("files").fingerprint)
    for task in mcp.tasks.list():
        assert_type(mcp.tasks.resume(task), ToolResult)
        mcp.tasks.cancel(task)
    assert_type(mcp.apps.open(result).call("refresh"), ToolResult)
    assert_type([one.name for one in mcp.skills.all()], list[str])
    assert_type(mcp.session.complete({"name": "p"}, "topic", "a", server="files"), list[str])
    assert_type(mcp.as_user("alice"), BlockingManager)
    assert_type(mcp.registry.view(allow=["files:*"]).call("read"), str)
    for event in mcp.events():
        assert_type(event.server, str)
    assert_type(mcp.map("read", [{"path": "x"}]).wait().ok, int)
