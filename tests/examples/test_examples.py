"""The programs in `examples/`: each is run as it stands, and prints what its page shows."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.real import servers
from tests.servers.model_api import ModelApi
from tests.warm import interpreter

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("excelmanus", "legal", "otter", "kode", "rrclaw")
PATIENCE = 50.0
PUBLIC = {"dragoman", "dragoman.agent", "dragoman.cli", "dragoman.config.load", "dragoman.events"}
"""From where a program may take names."""
START = (
    'set -a; if [ -f "$0/example.env" ]; then . "$0/example.env"; fi; set +a; exec "$1" -W error "$0/main.py"'
)
"""What `make example` does, in a shell: the variables first, then the program."""
REASON = "the database is locked"
"""Why a call fails in tests/servers/refusing.py."""
SERVERS: dict[str, dict[str, list[str | None]]] = {
    "excel-mcp-server": {
        "create_workbook": ["{}"],
        "write_range": ["{}"],
        "read_range": ['{"values": [[3580]]}'],
    },
    "china-law-mcp": {
        "get_article": ['{"text": "words."}'],
        "list_laws": ["[]"],
        "search_statutes": ["[]"],
    },
    "mcp-server-time": {"convert_time": ['"target": "04:00"']},
    "mcp-server-filesystem": {
        "read_text_file": ["the port 4096 is open at 09:00"],
        "write_file": ["written"],
    },
}
"""What stands in for each server answers, where a test says nothing else."""


def page(name: str) -> str:
    return (EXAMPLES / name / "README.md").read_text("utf-8")


def shown(name: str) -> list[str]:
    """The output in a program's page."""
    (block,) = re.findall(r"^```text\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)
    return lines(block)


def lines(output: str) -> list[str]:
    """An output without what cannot be seen, and without what differs each time: durations and their width."""
    timed = re.sub(r"\b\d+(?:\.\d+)? m?s\b", "… ms", output.strip("\n"))
    return [re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in timed.splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def programs() -> str:
    """A PATH on which the servers are found by their names."""
    folders = [Path(interpreter()).parent]
    folders += [
        Path(servers.command(name)[0]).parent for name in ("excel", "china-law", "time", "filesystem")
    ]
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])


async def start(name: str, programs: str, folder: Path, **variables: str) -> tuple[int | None, str, str]:
    """Run a copy of a program, in a folder that is not the program's; it may write nothing into the copy.

    Returns its exit code, its output and its errors.
    """
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    before = contents(copy)
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", START, str(copy), interpreter()),
        cwd=folder,
        env=os.environ | {"PATH": programs, "PYTHONDONTWRITEBYTECODE": "1"} | variables,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # One of the programs kills a server: whatever else it hits, it is not this process.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    assert contents(copy) == before
    return process.returncode, output.decode(), errors.decode()


async def run(name: str, programs: str, folder: Path, **variables: str) -> list[str]:
    """Run a program that succeeds, and return the lines of its output.

    Keys of model APIs are set and their packages are missing: without `DRAGOMAN_MODEL` neither makes a difference.
    """
    if "DRAGOMAN_MODEL" not in variables:
        keys = {"OPENAI_API_KEY": "a-key", "ANTHROPIC_API_KEY": "a-key", "DRAGOMAN_MODEL": " "}
        variables |= keys | without_packages(folder / "hidden")
    code, output, errors = await start(name, programs, folder, **variables)
    assert (code, errors) == (0, ""), output
    return lines(output)


def stand_in(folder: Path, answers: dict[str, list[str | None]]) -> str:
    """A PATH on which one small server stands in for each real one."""
    folder.mkdir()
    server = Path(__file__).parents[1] / "servers/refusing.py"
    for name, tools in SERVERS.items():
        told = {tool: answers.get(tool, usual) for tool, usual in tools.items()}
        command = shlex.join([sys.executable, str(server), json.dumps(told)])
        (folder / name).write_text(f"#!/bin/sh\nexec {command}\n", "utf-8")
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), bare_path()])


def bare_path() -> str:
    """A PATH on which Python is found, and no server."""
    return os.pathsep.join([str(Path(interpreter()).parent), "/usr/bin", "/bin"])


def without_packages(folder: Path) -> dict[str, str]:
    """Variables under which Python does not find the packages of the model APIs."""
    folder.mkdir(exist_ok=True)
    hides = "import sys\nsys.modules.update(openai=None, anthropic=None)\n"
    (folder / "sitecustomize.py").write_text(hides, "utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.mark.requirement("excel-2.1", "excel-2.5", "excel-4.2", "excel-4.4")
async def test_excelmanus_works_on_a_real_workbook_with_built_in_and_remote_tools(
    programs: str, tmp_path: Path
) -> None:
    output = await run("excelmanus", programs, tmp_path)
    assert output == shown("excelmanus")
    assert "The formula in B5 gives 3580. March's share of it is 39.9%." in output


@pytest.mark.requirement(
    "legal-config.env", "legal-config.health", "legal-law.attribution", "legal-error.lost"
)
async def test_legal_names_sources_and_dates_and_is_answered_by_its_fallback_when_the_server_dies(
    programs: str, tmp_path: Path
) -> None:
    output = await run("legal", programs, tmp_path)
    assert output == shown("legal")
    assert "  source: 中华人民共和国民法典 第五百八十五条, updated 2025-06-01" in output
    sources = [line for line in output if line.startswith("  source: ")]
    assert len(sources) == 5, "every answer has a source"
    assert any("answered by `desk`, since `legal` is not" in line for line in output)


@pytest.mark.requirement("legal-law.tools", "legal-law.attribution")
async def test_legal_asks_and_answers_in_chinese(programs: str, tmp_path: Path) -> None:
    chinese = (EXAMPLES / "legal/README.zh-CN.md").read_text("utf-8")
    (block,) = re.findall(r"^```text\n(.*?)^```", chinese, re.DOTALL | re.MULTILINE)
    assert await run("legal", programs, tmp_path, LEGAL_LANGUAGE="zh") == lines(block)
    assert [line for line in lines(block) if cell_len(line) > 80] == []


@pytest.mark.requirement("otter-p1.status", "otter-p2.reload")
async def test_otter_has_its_commands_and_takes_a_server_in_while_it_runs(
    programs: str, tmp_path: Path
) -> None:
    assert await run("otter", programs, tmp_path) == shown("otter")


@pytest.mark.requirement("kode-config.global", "kode-config.project", "kode-registry.naming")
async def test_kode_merges_two_files_and_calls_tools_by_legal_names(programs: str, tmp_path: Path) -> None:
    # The second run knows the tools from the first.
    for _ in range(2):
        assert await run("kode", programs, tmp_path) == shown("kode")


@pytest.mark.requirement("rrclaw-manager.connect_all", "rrclaw-manager.tools", "rrclaw-manager.shutdown")
async def test_rrclaw_connects_what_it_can_and_shuts_everything_down(programs: str, tmp_path: Path) -> None:
    assert await run("rrclaw", programs, tmp_path) == shown("rrclaw")


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_real_model_is_asked_where_it_is_named(api: str, tmp_path: Path) -> None:
    reads = {"name": "files__read_text_file", "arguments": {"path": "notes.md"}}
    async with ModelApi([{"calls": [reads]}, {"text": "It is port 4096, says the model."}]) as server:
        output = await run(
            "kode",
            stand_in(tmp_path / "bin", {}),
            tmp_path,
            **{
                f"{api.upper()}_API_KEY": "a-key",
                f"{api.upper()}_BASE_URL": server.base_url(api),
                "DRAGOMAN_MODEL": f"{api}:some-model",
            },
        )
    assert output[-1] == "It is port 4096, says the model."
    assert [(asked.api, asked.body["model"]) for asked in server.requests] == [(api, "some-model")] * 2
    assert server.complaints == []


@pytest.mark.parametrize(
    ("name", "model", "keys", "says"),
    [
        *(
            (name, "openai:m", {"OPENAI_API_KEY": "a-key"}, "pip install 'dragoman[openai]'")
            for name in NAMES
        ),
        ("kode", "responses:m", {}, "pip install 'dragoman[openai]'"),
        ("legal", "anthropic:m", {}, "pip install 'dragoman[anthropic]'"),
        ("otter", "gpt-5-mini", {"OPENAI_API_KEY": "a-key"}, "unknown model API `gpt-5-mini`"),
    ],
)
async def test_a_named_model_that_cannot_be_asked_is_one_line_and_exit_code_2(
    name: str, model: str, keys: dict[str, str], says: str, tmp_path: Path
) -> None:
    hidden = without_packages(tmp_path / "hidden")
    code, output, errors = await start(name, bare_path(), tmp_path, DRAGOMAN_MODEL=model, **keys, **hidden)
    (line,) = errors.splitlines()
    assert (code, output) == (2, "")
    assert f"DRAGOMAN_MODEL={model}: " in line
    assert says in line


async def test_a_model_that_fails_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    async with ModelApi([{"status": 401}]) as server:
        code, _, errors = await start(
            "kode",
            stand_in(tmp_path / "bin", {}),
            tmp_path,
            OPENAI_API_KEY="wrong",
            OPENAI_BASE_URL=server.base_url("openai"),
            DRAGOMAN_MODEL="openai:some-model",
        )
    (line,) = errors.splitlines()
    assert code == 1
    assert "OPENAI_API_KEY" in line


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("excelmanus", {"create_workbook": [None]}),
        ("excelmanus", {"read_range": [None]}),
        ("excelmanus", {"read_range": [REASON]}),
        # The first call of `get_article` is the one that the program waits with.
        ("legal", {"get_article": [None]}),
        ("legal", {"get_article": ["{}", None]}),
        ("legal", {"get_article": ["{}", REASON]}),
        ("otter", {"convert_time": [None]}),
        ("otter", {"convert_time": [REASON]}),
        ("otter", {"read_text_file": [None]}),
        ("otter", {"read_text_file": [REASON]}),
        ("kode", {"read_text_file": [None]}),
        ("rrclaw", {"read_text_file": [None]}),
    ],
)
async def test_a_call_that_fails_is_shown_and_is_exit_code_1(
    name: str, answers: dict[str, list[str | None]], tmp_path: Path
) -> None:
    code, output, errors = await start(name, stand_in(tmp_path / "bin", answers), tmp_path)
    assert code == 1, output
    assert REASON in output + errors
    assert "Traceback" not in output + errors
    if name != "legal" and [None] in answers.values():
        assert "✗" in output


@pytest.mark.parametrize("name", NAMES)
async def test_what_stands_in_for_the_servers_is_good_enough_where_nothing_fails(
    name: str, tmp_path: Path
) -> None:
    await run(name, stand_in(tmp_path / "bin", {}), tmp_path)


@pytest.mark.parametrize("name", NAMES)
async def test_a_server_that_is_not_installed_is_exit_code_1_and_no_traceback(
    name: str, tmp_path: Path
) -> None:
    code, output, errors = await start(name, bare_path(), tmp_path)
    assert code == 1, output
    assert "Traceback" not in output + errors


@pytest.mark.parametrize("name", NAMES)
def test_an_output_fits_a_narrow_terminal(name: str) -> None:
    assert [line for line in shown(name) if cell_len(line) > 80] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_how_to_run_the_program_and_why_it_trusts_the_project(name: str) -> None:
    assert f"`make example NAME={name}`" in page(name)
    assert "trust_project=True" in (EXAMPLES / name / "main.py").read_text("utf-8")
    assert re.search(r"`trust_project=True`[^-]*?\(\[why\]\(\.\./README\.md#why-", page(name), re.DOTALL)


def test_the_list_has_every_program_and_no_link_leads_nowhere() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    overview = (EXAMPLES / "README.md").read_text("utf-8")
    assert folders == set(NAMES) == set(re.findall(r"\]\((\w+)/README\.md\)", overview))
    for name in NAMES:
        links = re.findall(r"\]\(([^)#]+)", page(name))
        assert [link for link in links if "://" not in link and not (EXAMPLES / name / link).exists()] == []


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_program_is_short_and_takes_only_public_names(path: Path) -> None:
    source = path.read_text("utf-8")
    assert len(source.splitlines()) < 120
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragoman"):
            assert node.module in PUBLIC
            module = importlib.import_module(node.module)
            names = {alias.name for alias in node.names}
            assert names <= set(getattr(module, "__all__", names))
