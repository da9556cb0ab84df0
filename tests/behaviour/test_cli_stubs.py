"""`dragoman stubs`: the tools of each server as typed source code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman

PLAIN = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}


def test_each_server_is_one_file_that_python_can_parse(tmp_path: Path) -> None:
    configure(plain=PLAIN, time=PLAIN)
    done = dragoman("stubs", "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == ["plain.pyi", "time_server.pyi"]
    text = Path("out/plain.pyi").read_text("utf-8")
    compile(text, "plain.pyi", "exec")
    assert "def echo(text: str) -> str:" in text
    assert "plain.pyi" in done.stdout


def test_json_names_the_tool_of_each_function_and_other_files_stay(tmp_path: Path) -> None:
    configure(plain=PLAIN)
    Path("out").mkdir()
    Path("out/other.pyi").write_text("x: int\n")
    report = json.loads(dragoman("stubs", "out", "plain", "--json").stdout)
    (module,) = report["modules"]
    assert (module["module"], module["server"]) == ("plain", "plain")
    assert module["functions"]["echo"] == "mcp_plain_echo"
    assert Path("out/other.pyi").read_text() == "x: int\n"


@pytest.mark.parametrize(
    ("language", "file", "line"),
    [
        ("typescript", "plain.ts", "  plain__echo: { arguments: EchoArguments; result: string };"),
        ("go", "plain/plain.go", 'const Echo = "plain__echo"'),
        ("rust", "plain.rs", 'pub const ECHO: &str = "plain__echo";'),
    ],
)
def test_other_languages_have_the_names_that_the_gateway_serves(
    tmp_path: Path, language: str, file: str, line: str
) -> None:
    Path(".kode.json").write_text(json.dumps({"mcpServers": {"plain": PLAIN}}))
    assert dragoman("--profile", "kode", "trust", "approve", "plain", "--yes").returncode == 0
    done = dragoman("--profile", "kode", "stubs", "out", "--language", language)
    assert done.returncode == 0, done.stderr
    assert [str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()] == [file]
    assert line in Path("out", file).read_text("utf-8").splitlines()
    assert f"out/{file}" in done.stdout


def test_an_unknown_server_is_named(tmp_path: Path) -> None:
    configure(plain=PLAIN)
    done = dragoman("stubs", "out", "plian")
    assert done.returncode != 0
    assert "did you mean plain?" in done.stderr
    assert not Path("out").exists()
