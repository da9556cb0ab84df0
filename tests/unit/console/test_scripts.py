"""The scripts of the page that decide something, in Node: JSON that keeps numbers, and calls to paste."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.visiting import notes, serving

import dragoman.console
from dragoman.gateway.app import asgi_app
from dragoman.manager.manager import McpManager

STATIC = Path(dragoman.console.__file__).parent / "static"
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")

EXACT = [
    '{"a":12345678901234567890123}',
    '{"a":0.1000000000000000055511151231257827}',
    '{"a":-0,"b":1e400,"c":1E-7}',
    '{"__proto__":{"x":1},"constructor":2,"toString":[]}',
    '{"z":1,"a":2,"10":3,"2":4}',
    '["",null,true,false,[],{}]',
    '"größer 你好 😀 \\" \\\\ /"',
]
BROKEN = [
    "",
    "{",
    '{"a":}',
    "[1,]",
    "01",
    "+1",
    "1.",
    ".5",
    "NaN",
    "'a'",
    '{"a":1,}',
    "[1] 2",
    '"\n"',
    '"\\x"',
    "nul",
]


def run(folder: Path, script: str, value: Any) -> Any:
    """Run a script over the modules of the page; `given` is the value, and it prints JSON."""
    for path in STATIC.glob("*.js"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    (folder / "run.js").write_text(
        "import * as json from './json.js';\nimport * as copies from './copies.js';\n"
        f"const given = {json.dumps(value)};\nconst found = {script};\nconsole.log(JSON.stringify(found));\n",
        "utf-8",
    )
    done = subprocess.run(
        ["node", str(folder / "run.js")], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_comes_out_as_it_went_in(tmp_path: Path) -> None:
    assert run(tmp_path, "given.map((one) => json.write(json.parse(one)))", EXACT) == EXACT


def test_what_is_not_json_is_refused_with_its_place(tmp_path: Path) -> None:
    script = (
        "given.map((one) => { try { json.parse(one); return ''; } catch (error) { return error.message; } })"
    )
    said = run(tmp_path, script, [*BROKEN, "[" * 100_000])
    assert [text for text in said if not text.endswith(")")] == []
    assert said[2].endswith("(1:6)")


HOSTILE = [
    '{"text":"it\'s $HOME `id` \\"x\\" \\\\ !! \\n new"}',
    '{"text":"😀 \\ud83d\\ude00 \\u2028","number":12345678901234567890123}',
    '{"text":"x","list":[true,false,null,1.5,{"a":[]}]}',
]


def test_a_call_to_paste_means_what_the_form_says(tmp_path: Path) -> None:
    script = (
        "given.map((one) => json.parse(one)).map((one) => "
        "[copies.asCommand('mcp_x_y', one), copies.asPython('mcp_x_y', one)])"
    )
    for text, (command, python) in zip(HOSTILE, run(tmp_path, script, HOSTILE), strict=True):
        wanted = json.loads(text)
        said = subprocess.run(
            ["sh", "-c", f"dragoman() {{ printf '%s\\0' \"$@\"; }}; {command}"],
            capture_output=True,
            check=True,
            env={"HOME": "/", "PATH": os.environ["PATH"]},
        ).stdout.decode("utf-8", "surrogatepass")
        assert said.split("\0")[:2] == ["call", "mcp_x_y"]
        assert json.loads(said.split("\0")[2]) == wanted
        call = ast.parse(f"async def f():\n {python}").body[0].body[0].value.value  # type: ignore[attr-defined]
        assert ast.literal_eval(call.args[1]) == wanted


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_curl_command_calls_the_tool_at_the_gateway(tmp_path: Path) -> None:
    server = notes()
    app = asgi_app(McpManager([server.spec()], cache=False), token="the-token")
    async with serving(app) as origin:
        await app.gateway.mcp.wait_ready()
        given = [f"{origin}/mcp", '{"text":"it\'s $HOME `id`","number":12345678901234567890}']
        script = "copies.asCurl(given[0], 'mcp_notes_add', json.parse(given[1]))"
        command = run(tmp_path, script, given)
        assert shlex.split(command)[0] == "curl"
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"{command} -s"),
            stdout=asyncio.subprocess.PIPE,
            env={"DRAGOMAN_TOKEN": "the-token", "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )
        answer, _ = await process.communicate()
        result = json.loads(answer)["result"]
        assert result["content"][0]["text"] == "added it's $HOME `id` 12345678901234567890"
