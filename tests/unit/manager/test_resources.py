from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman import McpManager
from dragoman.errors import ServerError, ToolExecutionError
from dragoman.manager.resources import MAX_LISTED, prompt_message, prompt_tools, resource_tools, result_tool
from dragoman.model import Part, Prompt, Resource
from dragoman.storage.results import ResultStore
from dragoman.testing import ScriptedServer
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.result.budget import TextBudget

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dragoman.testing.servers import MemoryWire

pytestmark = pytest.mark.requirement("otter-p2.resources", "kode-resources.list", "kode-resources.read")


ACT = Resource(
    server="law",
    uri="law://act",
    name="act",
    title="The Act",
    description="All\nof it",
    mime_type="text/plain",
    annotations={"lastModified": "2026"},
)
ARTICLE = Resource(server="law", uri="law://act/{n}", is_template=True)


class Servers:
    """Stands for a manager: two servers, one of which is down."""

    def __init__(self) -> None:
        self.listed = [ACT, ARTICLE]

    async def resources(self, server: str | None = None) -> list[Resource]:
        if server == "down":
            msg = "server `down` is not ready"
            raise ServerError(msg, server=server)
        return [one for one in self.listed if server in (None, one.server)]

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        return [Part(kind="resource", uri=uri, text="x" * 500)] if uri == "law://act" else []

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        arguments = [{"name": "topic", "required": True}, {"name": "tone"}]
        return [Prompt(server="law", name="brief", description="Write a\nbrief", arguments=arguments)]

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        if name != "brief":
            return []
        return [
            {"role": "user", "content": {"type": "text", "text": f"About {dict(arguments or {})['topic']}"}},
            {"role": "assistant", "content": {"type": "resource_link", "uri": "law://act", "name": "act"}},
        ]


@pytest.fixture
def registry() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all([*resource_tools(Servers()), *prompt_tools(Servers())])
    return registry


async def test_resources_are_listed_with_what_is_known_of_them(registry: ToolRegistry) -> None:
    assert await registry.call("list_resources") == (
        "- law://act (resource of `law`): The Act, text/plain, All of it, updated 2026\n"
        "- law://act/{n} (template of `law`)"
    )
    assert await registry.call("list_resources", {"query": "ALL OF", "server": "law"}) == (
        "- law://act (resource of `law`): The Act, text/plain, All of it, updated 2026"
    )
    assert await registry.call("list_resources", {"query": "zzz"}) == "no resources contain `zzz`; 2 in total"
    assert await registry.call("list_resources", {"server": "other"}) == "no resources"


async def test_long_listing_says_how_many_more_there_are() -> None:
    servers = Servers()
    servers.listed = [ACT] * (MAX_LISTED + 5)
    listing = await resource_tools(servers)[0].func()  # type: ignore[misc]
    assert listing.count("\n") == MAX_LISTED
    assert listing.endswith("… and 5 more: narrow them down with `query`")


async def test_resource_is_read_within_the_budget() -> None:
    registry = ToolRegistry()
    registry.register_all(resource_tools(Servers(), budget=TextBudget(limit=300)))
    text = await registry.call("read_resource", {"uri": "law://act"})
    assert text.startswith("[resource: law://act, 500 characters]\nxxx")
    assert len(text) <= 300
    assert (
        await registry.call("read_resource", {"uri": "law://none"}) == "[the resource `law://none` is empty]"
    )


async def test_server_that_cannot_answer_is_an_error_of_the_tool(registry: ToolRegistry) -> None:
    with pytest.raises(ToolExecutionError, match="`list_resources` failed: server `down` is not ready"):
        await registry.call("list_resources", {"server": "down"})


async def test_prompts_are_listed_and_given_as_messages(registry: ToolRegistry) -> None:
    assert await registry.call("list_prompts") == "- brief(topic, tone?) of `law`: Write a brief"
    said = await registry.call(
        "get_prompt", {"name": "brief", "server": "law", "arguments": {"topic": "rent"}}
    )
    assert said == "user: About rent\n\nassistant: [resource link: act, law://act]"
    assert await registry.call("get_prompt", {"name": "no", "server": "law"}) == "[the prompt `no` is empty]"


async def test_message_of_a_prompt_may_have_several_blocks_or_none() -> None:
    blocks = [{"type": "text", "text": "a"}, "b", 3]
    assert prompt_message({"role": "user", "content": blocks}) == ("user", "a\nb")
    assert prompt_message({"role": 3}) == ("user", "")


async def test_result_that_was_cut_can_be_read_on(tmp_path: Path) -> None:
    spill = ResultStore(tmp_path / "results")
    registry = ToolRegistry()
    registry.register(result_tool(spill))
    path = spill.keep_text("0123456789")
    text = await registry.call("read_result", {"file": str(path), "offset": 4, "limit": 3})
    assert text == "456\n[characters 4 to 7 of 10; go on with offset 7]"
    with pytest.raises(ToolExecutionError, match="is not a kept result"):
        await registry.call("read_result", {"file": "/etc/passwd"})


async def test_tools_are_read_only_builtins_with_closed_schemas(registry: ToolRegistry) -> None:
    assert [tool.name for tool in registry] == [
        "get_prompt",
        "list_prompts",
        "list_resources",
        "read_resource",
    ]
    for tool in registry:
        assert tool.source == "builtin"
        assert tool.annotations["readOnlyHint"] is True
        assert tool.input_schema["additionalProperties"] is False


class Shelf(ScriptedServer):
    """A server with its resources on two pages, and with a picture."""

    async def answer(self, wire: MemoryWire, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "resources/list" and "cursor" not in params:
            entry = {"uri": "a:1", "name": "one", "title": "The first", "mimeType": "image/png", "size": 3}
            return {"resources": [{**entry, "annotations": {"audience": ["user"]}}], "nextCursor": "2"}
        if method == "resources/list":
            return {"resources": [{"uri": "a:2", "name": "two"}]}
        if method == "resources/read":
            return {"contents": [{"uri": "a:1", "mimeType": "image/png", "blob": "AAEC"}]}
        return await super().answer(wire, method, params)


async def test_every_page_is_listed_with_its_metadata_and_binary_content_is_decoded() -> None:
    async with McpManager([Shelf("shelf", resources={"a:1": ""}).spec()], cache=False) as mcp:
        await mcp.wait_ready()
        first, second = await mcp.resources()
        assert (first.uri, first.name, first.title, first.mime_type) == (
            "a:1",
            "one",
            "The first",
            "image/png",
        )
        assert (first.annotations, second.uri, second.title) == ({"audience": ["user"]}, "a:2", "")
        (part,) = await mcp.read("a:1")
        assert (part.data, part.mime_type, part.uri) == (b"\x00\x01\x02", "image/png", "a:1")
