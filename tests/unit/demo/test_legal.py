from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, TextContent, TextResourceContents
from tests.warm import interpreter

from dragoman.demo.legal import SOURCES_KEY, LegalIndex, build_server, main

pytestmark = pytest.mark.requirement("legal-law.tools")

TOOLS = ["fill_template", "list_templates", "lookup_statute", "search_cases", "search_statutes"]
OVERTIME = {
    "title": "Sample Labour Standards Act (SAMPLE, not real law)",
    "locator": "Art. 12",
    "url": "sample://legal/statutes/labour-standards/12",
}


@pytest.fixture(scope="module")
def index() -> Iterator[LegalIndex]:
    built = LegalIndex()
    yield built
    built.close()


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call(index: LegalIndex, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    with anyio.fail_after(30):
        async with Client(build_server(index)) as client:
            return await client.call_tool(tool, dict(arguments))


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_child_process_serves_both_eras_over_stdio(
    child_environment: dict[str, str], mode: str, version: str
) -> None:
    parameters = StdioServerParameters(
        command=interpreter(), args=["-m", "dragoman.demo.legal"], env=child_environment
    )
    with anyio.fail_after(60):
        async with Client(parameters, mode=mode) as client:
            assert client.protocol_version == version
            assert "样例" in (client.instructions or "")
            assert sorted(tool.name for tool in (await client.list_tools()).tools) == TOOLS
            result = await client.call_tool("search_statutes", {"query": "加班工资"})
            assert not result.is_error
            assert result.structured_content["results"][0]["source"] == OVERTIME
            assert text_of(result).endswith("updated 2026-03-01")


async def test_every_tool_is_read_only_and_has_an_output_schema(index: LegalIndex) -> None:
    async with Client(build_server(index)) as client:
        tools = (await client.list_tools()).tools
    assert sorted(tool.name for tool in tools) == TOOLS
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.output_schema is not None
        assert tool.output_schema["required"] == ["results"]


@pytest.mark.parametrize("law", ["labour-standards", "Sample Labour Standards Act", "样例劳动标准法"])
@pytest.mark.parametrize("article", ["12", "Art. 12", "第十二条"])
async def test_lookup_gives_text_structure_and_sources(index: LegalIndex, law: str, article: str) -> None:
    result = await call(index, "lookup_statute", {"law": law, "article": article})
    (found,) = result.structured_content["results"]
    assert found["source"] == OVERTIME
    assert found["updated"] == "2026-03-01"
    assert found["sample"] is True
    assert found["text"] in text_of(result)
    assert text_of(result).startswith("[SAMPLE]")
    assert text_of(result).endswith(f"{OVERTIME['locator']}, {OVERTIME['url']}, updated 2026-03-01")
    assert result.meta is not None
    assert result.meta[SOURCES_KEY] == [OVERTIME | {"updated": "2026-03-01"}]


@pytest.mark.parametrize(
    ("tool", "arguments", "hint"),
    [
        ("lookup_statute", {"law": "labor", "article": "12"}, "Nearest: `labour-standards`"),
        ("lookup_statute", {"law": "租赁", "article": "4"}, "Nearest: `residential-tenancy`"),
        ("lookup_statute", {"law": "zzz", "article": "4"}, "There are: `labour-standards`, `contract-code`"),
        ("lookup_statute", {"law": "", "article": ""}, "There are: `labour-standards`"),
        ("lookup_statute", {"law": "labour-standards", "article": "99"}, "12 (Overtime pay)"),
        ("fill_template", {"template_id": "nope", "values": {}}, "There are: `payment-demand`"),
        (
            "fill_template",
            {"template_id": "erasure-request", "values": {"name": "Li", "dta": "x"}},
            "missing: `controller`, `data`, `date`; unknown: `dta`.",
        ),
        (
            "fill_template",
            {
                "template_id": "erasure-request",
                "values": {"controller": "a", "name": "b", "data": "c", "date": "d", "fax": "e"},
            },
            "Cannot fill `erasure-request`; unknown: `fax`. It takes: `controller`, `name`, `data`, `date`.",
        ),
        ("search_statutes", {"query": "x", "limit": 0}, "greater than or equal to 1"),
    ],
)
async def test_failed_call_says_what_would_work(
    index: LegalIndex, tool: str, arguments: dict[str, Any], hint: str
) -> None:
    result = await call(index, tool, arguments)
    assert result.is_error
    assert hint in text_of(result)


async def test_case_search_keeps_to_the_court(index: LegalIndex) -> None:
    result = await call(index, "search_cases", {"query": "dismissal", "court": "仲裁"})
    assert [case["case_id"] for case in result.structured_content["results"]] == ["lt-2025-012"]
    assert "Held: A second probation period is void" in text_of(result)


async def test_search_without_a_match_is_an_empty_answer(index: LegalIndex) -> None:
    result = await call(index, "search_statutes", {"query": "xylophone"})
    assert not result.is_error
    assert result.structured_content == {"results": []}
    assert "Nothing in the samples matches `xylophone`" in text_of(result)


async def test_listed_templates_can_be_filled(index: LegalIndex) -> None:
    listed = (await call(index, "list_templates", {})).structured_content["results"]
    assert len(listed) == 5
    for template in listed:
        values = {name: f"<{name}>" for name in template["placeholders"]}
        arguments = {"template_id": template["template_id"], "values": values}
        result = await call(index, "fill_template", arguments)
        document = result.structured_content["results"][0]["text"]
        assert "{{" not in document
        assert all(value in document for value in values.values())
        assert text_of(result).endswith(f"updated {template['updated']}")


async def test_resources_and_prompt_are_served(index: LegalIndex) -> None:
    async with Client(build_server(index)) as client:
        (about,) = (await client.list_resources()).resources
        assert about.uri == "sample://legal/about"
        assert about.annotations is not None
        assert about.annotations.last_modified == "2026-06-01T00:00:00Z"
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "sample://legal/statutes/{law}/{article}"
        for uri, part in ((about.uri, "labour-standards"), (OVERTIME["url"], "150 percent")):
            (contents,) = (await client.read_resource(uri)).contents
            assert isinstance(contents, TextResourceContents)
            assert part in contents.text
        with pytest.raises(MCPError, match="has no article `99`"):
            await client.read_resource("sample://legal/statutes/labour-standards/99")
        (message,) = (await client.get_prompt("draft_opinion", {"question": "押金怎么退?"})).messages
        assert isinstance(message.content, TextContent)
        assert "押金怎么退?" in message.content.text


def test_unusable_index_file_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database\n" * 100)
    with pytest.raises(SystemExit) as stopped:
        main(["--index", str(path)])
    assert stopped.value.code == 2
    assert "cannot build the index" in capsys.readouterr().err
