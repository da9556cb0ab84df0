"""Resources, prompts, completion and instructions, through the manager; and what servers ask."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.warm import server_command

from dragoman import DragomanError, Handlers, McpManager, ServerSpec, Stdio, UnknownServerError
from dragoman.demo.legal import LegalDesk
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.requirement(
    "otter-p2.prompts",
    "otter-p2.resources",
    "kode-resources.list",
    "kode-resources.read",
)

SERVERS = Path(__file__).resolve().parents[1] / "servers"


def legal(**more: Any) -> ServerSpec:
    return ServerSpec("legal", Stdio(sys.executable, ["-m", "dragoman.demo.legal"]), **more)


def asking(**more: Any) -> ServerSpec:
    command, *words = server_command(SERVERS / "asking.py")
    return ServerSpec("asking", Stdio(command, words), **more)


@pytest.mark.requirement("kode-resources.list")
@pytest.mark.requirement("kode-resources.read")
@pytest.mark.requirement("otter-p2.resources")
@pytest.mark.usefixtures("pipes")
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_resources_are_listed_and_read(protocol: Any) -> None:
    with anyio.fail_after(30):
        async with McpManager([legal(protocol=protocol)]) as mcp:
            assert await mcp.wait_ready()
            resources = await mcp.resources()
            about = next(resource for resource in resources if resource.uri == "sample://legal/about")
            assert (about.server, about.name, about.is_template) == ("legal", "about", False)
            assert about.description == inspect.getdoc(LegalDesk.about)
            assert about.mime_type == "text/plain"
            assert about.annotations["lastModified"]
            [template] = [resource for resource in resources if resource.is_template]
            assert template.uri == "sample://legal/statutes/{law}/{article}"
            [part] = await mcp.read(about.uri)
            assert part.kind == "resource"
            assert "sample" in part.text.lower()


@pytest.mark.requirement("kode-resources.list")
async def test_size_of_a_resource_is_kept_if_the_server_says_it(offering: Callable[..., ServerSpec]) -> None:
    with anyio.fail_after(30):
        async with McpManager([offering("shop", resources=["x://123"]), legal()]) as mcp:
            assert await mcp.wait_ready()
            for _ in range(2):
                sizes = {one.uri: one.size for one in await mcp.resources()}
                assert sizes["x://123"] == 7
                assert sizes["sample://legal/about"] is None


@pytest.mark.requirement("otter-p2.prompts")
async def test_prompts_are_listed_and_got_and_instructions_known() -> None:
    with anyio.fail_after(30):
        async with McpManager([legal()]) as mcp:
            assert await mcp.wait_ready()
            [prompt] = [one for one in await mcp.prompts() if one.name == "draft_opinion"]
            assert prompt.arguments[0]["name"] == "question"
            messages = await mcp.prompt(
                "draft_opinion", {"question": "May I keep the deposit?"}, server="legal"
            )
            assert "May I keep the deposit?" in str(messages)
            assert mcp.instructions()["legal"]


def offering(name: str, **offer: Any) -> ServerSpec:
    given = json.dumps({"label": name, **offer})
    return ServerSpec(name, Stdio(sys.executable, [str(SERVERS / "offering.py"), given]))


async def test_prompts_and_resources_come_in_order_with_all_their_parts() -> None:
    specs = [offering("b", prompts=["y", "x"], resources=["r://2", "r://1"], templates=["r://{n}"])]
    specs.append(offering("a", prompts=["z"], resources=["s://1"], parts=2, meta={"from": "a"}))
    with anyio.fail_after(30):
        async with McpManager(specs) as mcp:
            assert await mcp.wait_ready()
            assert [(one.server, one.name) for one in await mcp.prompts()] == [
                ("a", "z"),
                ("b", "x"),
                ("b", "y"),
            ]
            assert [(one.uri, one.is_template) for one in await mcp.resources()] == [
                ("s://1", False),
                ("r://1", False),
                ("r://2", False),
                ("r://{n}", True),
            ]
            assert [one.meta for one in await mcp.resources("a")] == [{"from": "a"}]
            roles = [message["role"] for message in await mcp.prompt("z", {"n": "1"}, server="a")]
            assert roles == ["user", "assistant"]
            assert [part.text for part in await mcp.read("s://1")] == ["a read s://1", "a read it again"]


async def test_a_resource_that_two_servers_list_is_read_from_neither_without_a_name() -> None:
    specs = [offering(name, resources=["r://1"]) for name in ("a", "b")]
    with anyio.fail_after(30):
        async with McpManager(specs) as mcp:
            assert await mcp.wait_ready()
            with pytest.raises(
                DragomanError, match="several servers may have the resource `r://1`: `a`, `b`"
            ):
                await mcp.read("r://1")
            assert (await mcp.read("r://1", server="b"))[0].text == "b read r://1"


async def test_resource_that_cannot_be_read_is_a_typed_error() -> None:
    with anyio.fail_after(30):
        async with McpManager([legal()]) as mcp:
            await mcp.wait_ready()
            with pytest.raises(DragomanError):
                await mcp.read("sample://legal/nothing-here", server="legal")
            with pytest.raises(UnknownServerError):
                await mcp.read("sample://legal/about", server="leagl")


async def test_server_that_asks_for_a_form_gets_what_the_handler_says() -> None:
    asked: list[tuple[str, str]] = []

    async def fill_in(server: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append((server, request["message"]))
        return {"action": "accept", "content": {"seats": 4, "name": "Ada"}}

    with anyio.fail_after(30):
        specs = [asking(protocol="legacy")]
        async with McpManager(specs, handlers=Handlers(elicitation=fill_in)) as mcp:
            await mcp.wait_ready()
            result = await mcp.call("mcp_asking_book")
            assert "'seats': 4" in result.text
            assert asked == [("asking", "A table for how many?")]


def test_time_of_a_call_does_not_run_while_a_person_fills_in_a_form() -> None:
    shop = ScriptedServer("shop")

    @shop.tool
    async def book() -> str:
        """Book a table."""
        form = {"message": "For how many?", "requestedSchema": {"type": "object", "properties": {}}}
        answer = await shop.current.ask("elicitation/create", form)
        return f"booked for {answer['content']['seats']}"

    async def think(_server: str, _request: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(300)
        return {"action": "accept", "content": {"seats": 4}}

    async def main() -> None:
        spec = shop.spec(timeouts={"call": 5})
        async with McpManager([spec], cache=False, handlers=Handlers(elicitation=think)) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_shop_book")).text == "booked for 4"

    InstantClock().run(main())


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://shop.example/pay", ["https://shop.example/pay"]),
        ("https://\u0433ithub.com/", ["https://xn--ithub-mwe.com/"]),
        ("http://127.0.0.1:1/pay", ["http://127.0.0.1:1/pay"]),
        ("http://shop.example/pay", []),
        ("https://evil.example\\@github.com", []),
        ("https://github.com@evil.example/", []),
        ("file:///etc/passwd", []),
        ("javascript:alert(1)", []),
        ("ms-msdt:/id", []),
        ("-new-window", []),
    ],
)
async def test_address_that_a_server_wants_opened_reaches_the_handler_only_if_it_is_plain(
    url: str, seen: list[str]
) -> None:
    shop = ScriptedServer("shop")
    asked: list[str] = []

    @shop.tool
    async def pay() -> str:
        """Have the person pay."""
        visit = {"mode": "url", "message": "Pay", "url": url, "elicitationId": "1"}
        return str((await shop.current.ask("elicitation/create", visit))["action"])

    def answer(_server: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["url"])
        return {"action": "accept"}

    with anyio.fail_after(30):
        async with McpManager([shop.spec()], cache=False, handlers=Handlers(elicitation=answer)) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_shop_pay")).text == ("accept" if seen else "decline")
    assert asked == seen


async def test_handler_that_fails_refuses_the_request_and_harms_nothing_else() -> None:
    def broken(_server: str, _request: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("no form today")

    with anyio.fail_after(30):
        async with McpManager([asking(protocol="legacy")], handlers=Handlers(elicitation=broken)) as mcp:
            await mcp.wait_ready()
            assert not (await mcp.call("mcp_asking_book")).success
            assert (await mcp.call("mcp_asking_steps", {"count": 1})).text == "done"


@pytest.mark.requirement("otter-later.sampling")
async def test_server_may_ask_for_a_completion_where_there_is_a_handler() -> None:
    def answer(_server: str, request: dict[str, Any]) -> dict[str, Any]:
        said = request["messages"][0]["content"]["text"].upper()
        return {"role": "assistant", "content": {"type": "text", "text": said}, "model": "scripted"}

    with anyio.fail_after(30):
        specs = [asking(protocol="legacy")]
        async with McpManager(specs, handlers=Handlers(sampling=answer)) as mcp:
            await mcp.wait_ready()
            result = await mcp.call("mcp_asking_summarise", {"text": "long"})
            assert result.text == "the model said: LONG"
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            assert not (await mcp.call("mcp_asking_summarise", {"text": "long"})).success


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_progress_reaches_the_handler_in_order(protocol: Any) -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    with anyio.fail_after(30):
        async with McpManager([asking(protocol=protocol)]) as mcp:
            await mcp.wait_ready()
            result = await mcp.call(
                "mcp_asking_steps", {"count": 3}, on_progress=lambda *report: seen.append(report)
            )
            assert result.text == "done"
            assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


class Noting(ScriptedServer):
    """One that notes what it is asked."""

    asked: dict[str, Any]

    async def answer(self, wire: Any, method: str, params: Any) -> Any:
        self.asked = {**getattr(self, "asked", {}), method: dict(params)}
        return await super().answer(wire, method, params)


async def test_prompt_is_asked_for_with_the_arguments_that_are_given_and_no_others() -> None:
    server = Noting("law", prompts={"brief": "Be brief.", "about": "About {topic}."})
    async with McpManager([server.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        await mcp.prompt("brief", server="law")
        assert not server.asked["prompts/get"].get("arguments")
        await mcp.prompt("about", {"topic": "rent"}, server="law")
        assert server.asked["prompts/get"]["arguments"] == {"topic": "rent"}


async def test_resources_of_several_servers_are_listed_server_by_server() -> None:
    servers = [
        ScriptedServer(name, resources={f"{uri}://{name}": "x" for uri in ("a", "b")})
        for name in ("two", "one")
    ]
    async with McpManager([one.spec() for one in servers], cache=False) as mcp:
        await mcp.wait_ready()
        listed = [(one.server, one.uri) for one in await mcp.resources()]
    assert listed == [("one", "a://one"), ("one", "b://one"), ("two", "a://two"), ("two", "b://two")]
