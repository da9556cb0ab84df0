"""The chat at a terminal of 80 columns, with a model over real HTTP and a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.test_session import CTRL_D, PROMPT, at_terminal

from dragoman.cli.chat import choose_model

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = Path(__file__).resolve().parents[2] / "servers"


@contextmanager
def model_api(script: list[dict[str, object]]) -> Iterator[str]:
    Path("script.json").write_text(json.dumps(script), "utf-8")
    command = [sys.executable, str(SERVERS / "model_api.py"), "script.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture
def configured(home: Path) -> None:
    folder = home / ".config/dragoman"
    folder.mkdir(parents=True)
    servers = {"one": {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")


@pytest.mark.usefixtures("configured")
def test_a_question_is_answered_with_the_calls_shown_and_commands_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script: list[dict[str, object]] = [
        {"calls": [{"name": "mcp_one_echo", "arguments": {"text": "hello"}}]},
        {"text": "It says **hello**."},
    ]
    with model_api(script) as url:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        with at_terminal("chat", "--model", "openai:tiny", "--transcript", "talk.jsonl") as person:
            person.wait_until(lambda: person.current == PROMPT)
            assert "Talking to tiny" in person.text
            said = person.enter("What does it say?")
            assert '✓ mcp_one_echo({"text": "hello"})' in said.replace(
                '{"text":"hello"}', '{"text": "hello"}'
            )
            assert "It says hello." in said
            assert "● ready" in person.enter("/mcp")
            person.type(CTRL_D)
            assert person.process.wait(30) == 0
    roles = [json.loads(line)["role"] for line in Path("talk.jsonl").read_text("utf-8").splitlines()]
    assert roles == ["user", "assistant", "tool", "assistant"]


async def test_the_model_is_the_one_named_else_the_one_with_a_key() -> None:
    both = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y"}
    chosen = {
        "openai:tiny": await choose_model("openai:tiny", both),
        "anthropic": await choose_model(None, both),
        "openai": await choose_model(None, {"OPENAI_API_KEY": "x"}),
        "variable": await choose_model(None, {**both, "DRAGOMAN_MODEL": "responses:small"}),
    }
    assert {name: one.api for name, one in chosen.items() if one} == {
        "openai:tiny": "openai",
        "anthropic": "anthropic",
        "openai": "openai",
        "variable": "responses",
    }
    for one in chosen.values():
        assert one is not None
        await one.aclose()
