"""Servers that people really use, from npm and PyPI, all through one `McpManager`."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.real import servers
from tests.real.servers import everything_on
from tests.warm import interpreter

from dragoman import Http, McpManager, ServerSpec, ServerState, Sse, Stdio, ToolFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman import ToolResult

PATIENCE = 50.0


def spec_of(name: str, *arguments: str | Path) -> ServerSpec:
    command, *rest = servers.command(name, *arguments)
    return ServerSpec(name, Stdio(command, rest), timeouts={"connect": PATIENCE})


async def succeed(mcp: McpManager, tool: str, **arguments: Any) -> ToolResult:
    result = await mcp.call(tool, arguments, timeout=PATIENCE)
    return result.raise_for_error()


@pytest.mark.requirement(
    "otter-test.filesystem", "otter-p0.npx", "excel-2.3", "kode-connect.sse", "legal-config.many"
)
async def test_every_installed_server_connects_lists_and_answers_in_one_manager(
    tmp_path: Path, home: Path
) -> None:
    command, *arguments = servers.npx_command("filesystem", tmp_path)
    async with (
        everything_on("streamableHttp", "/mcp") as http,
        everything_on("sse", "/sse") as sse,
        McpManager(
            [
                ServerSpec(
                    "files", Stdio(command, arguments, cwd=str(servers.NPM)), timeouts={"connect": PATIENCE}
                ),
                spec_of("everything", "stdio"),
                ServerSpec("http", Http(http)),
                ServerSpec("sse", Sse(sse)),
                spec_of("time"),
                spec_of("git"),
                spec_of("excel"),
                spec_of("china-law").replace(sources_in_text=True, attribution={"updated": "2025-06-01"}),
            ]
        ) as mcp,
    ):
        assert await mcp.wait_ready(timeout=PATIENCE), mcp.status()
        status = mcp.status()
        assert {one.name: one.transport for one in status.values() if one.transport != "stdio"} == {
            "http": "http",
            "sse": "sse",
        }
        listed = [tool.server for tool in mcp.tools()]
        assert {name: listed.count(name) for name in status} == {
            name: one.tools for name, one in status.items()
        }
        assert all(one.tools for one in status.values())
        await files_are_read_inside_the_allowed_folder_only(mcp, tmp_path, home)
        for name in ("everything", "http", "sse"):
            await text_data_and_images_arrive(mcp, name)
        await the_time_is_told(mcp)
        await a_repository_is_read(mcp, tmp_path / "repository")
        await a_cell_is_written_and_read_back(mcp, tmp_path / "book.xlsx")
        await an_article_is_found_with_its_source(mcp)
    assert {one.state for one in mcp.status().values()} == {ServerState.CLOSED}


async def files_are_read_inside_the_allowed_folder_only(mcp: McpManager, inside: Path, outside: Path) -> None:
    (inside / "note.txt").write_text("您好, file\n", "utf-8")
    (outside / "secret.txt").write_text("hidden", "utf-8")
    read = await succeed(mcp, "mcp_files_read_text_file", path=str(inside / "note.txt"))
    assert "您好, file" in read.text
    refused = await mcp.call("mcp_files_read_text_file", {"path": str(outside / "secret.txt")})
    assert not refused.success
    assert isinstance(refused.exception, ToolFailedError)
    assert "outside allowed directories" in (refused.error or "")
    assert "hidden" not in refused.text
    await succeed(mcp, "mcp_files_write_file", path=str(inside / "new.txt"), content="written")
    assert (inside / "new.txt").read_text("utf-8") == "written"


async def text_data_and_images_arrive(mcp: McpManager, name: str) -> None:
    echoed = await succeed(mcp, f"mcp_{name}_echo", message="律师")
    assert echoed.text == "Echo: 律师"
    assert echoed.provenance is not None
    assert (echoed.provenance.server, echoed.provenance.tool) == (name, "echo")
    weather = await succeed(mcp, f"mcp_{name}_get-structured-content", location="Chicago")
    assert set(weather.structured) == {"temperature", "conditions", "humidity"}
    picture = await succeed(mcp, f"mcp_{name}_get-tiny-image")
    (image,) = [part for part in picture.parts if part.kind == "image"]
    assert image.mime_type == "image/png"
    assert image.data.startswith(b"\x89PNG")
    assert "[image: image/png, 20x20, 4033 bytes]" in picture.text


async def the_time_is_told(mcp: McpManager) -> None:
    result = await succeed(mcp, "mcp_time_get_current_time", timezone="Asia/Shanghai")
    told = datetime.fromisoformat(re.search(r'"datetime": "([^"]+)"', result.text)[1])  # type: ignore[index]
    offset = told.utcoffset()
    assert offset is not None
    assert offset.total_seconds() == 8 * 3600


async def a_repository_is_read(mcp: McpManager, folder: Path) -> None:
    make_repository(folder)
    log = await succeed(mcp, "mcp_git_git_log", repo_path=str(folder))
    assert "the first one" in log.text
    assert "Ann" in log.text
    state = await succeed(mcp, "mcp_git_git_status", repo_path=str(folder))
    assert "new.txt" in state.text


def make_repository(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "the first one"], check=True)
    (folder / "new.txt").touch()


async def a_cell_is_written_and_read_back(mcp: McpManager, book: Path) -> None:
    await succeed(mcp, "mcp_excel_create_workbook", path=str(book))
    await succeed(mcp, "mcp_excel_write_range", path=str(book), sheet="Sheet1", at="B2", rows=[["律", 42]])
    read = await succeed(mcp, "mcp_excel_read_range", path=str(book), sheet="Sheet1", range="B2:C2")
    assert read.structured["values"] == [["律", 42]]
    await succeed(
        mcp, "mcp_excel_write_range", path=str(book), sheet="Sheet1", at="C3", rows=[["=SUM(C2, 8)"]]
    )
    summed = await succeed(mcp, "mcp_excel_read_range", path=str(book), sheet="Sheet1", range="C3")
    assert summed.structured["values"] == [[50]]
    described = await succeed(mcp, "mcp_excel_list_workbooks", directory=str(book.parent))
    assert book.name in described.text


async def an_article_is_found_with_its_source(mcp: McpManager) -> None:
    found = await succeed(mcp, "mcp_china-law_get_article", law="民法典", article_no="第五百六十三条")
    article = found.structured["result"]
    assert (article["law"], article["article_no_arabic"]) == ("中华人民共和国民法典", 563)
    assert article["status"] == "现行有效"
    assert "当事人可以解除合同" in found.text
    assert found.provenance is not None
    assert (found.provenance.server, found.provenance.tool) == ("china-law", "get_article")
    searched = await succeed(mcp, "mcp_china-law_search_statutes", query="解除合同", top_k=2)
    checked = await succeed(mcp, "mcp_china-law_verify_citation", law="民法典", article_no="第五百六十三条")
    for result in (found, searched, checked):
        assert result.provenance is not None
        assert result.provenance.at > 0
        source = result.provenance.sources[0]
        assert source.title.startswith("中华人民共和国")
        assert source.locator.startswith("第")
        dated = f"- {source.title}, {source.locator} (updated 2025-06-01)"
        assert dated in result.text.partition("Sources:")[2]


@pytest.mark.requirement("legal-law.tools", "legal-law.attribution")
async def test_the_legal_server_finds_statutes_and_cases_and_fills_templates_with_sources() -> None:
    desk = ServerSpec("law", Stdio(interpreter(), ["-m", "dragoman.demo.legal"]))
    async with McpManager([desk]) as mcp:
        assert await mcp.wait_ready(timeout=PATIENCE)
        statute = await succeed(mcp, "mcp_law_lookup_statute", law="residential-tenancy", article="4")
        cases = await succeed(mcp, "mcp_law_search_cases", query="deposit")
        listed = await succeed(mcp, "mcp_law_list_templates")
        template = listed.structured["results"][0]
        values = {name: f"<{name}>" for name in template["placeholders"]}
        filled = await succeed(
            mcp, "mcp_law_fill_template", template_id=template["template_id"], values=values
        )
    assert "deposit shall not exceed two months' rent" in statute.text
    assert "Held: " in cases.text
    assert all(value in filled.text for value in values.values())
    for result in (statute, cases, filled):
        assert result.provenance is not None
        assert result.provenance.sources
        for source in result.provenance.sources:
            assert source.title
            assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", source.updated)
            assert source.title in result.text
            assert source.updated in result.text
