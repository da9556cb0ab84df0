"""The page about telemetry: its example against a real gateway and a real collector, and its tables."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests import warm
from tests.behaviour.test_gateway import served
from tests.docs.pages import ROOT, all_blocks
from tests.servers.otlp_collector import Collector

from dragoman.observe import otlp, telemetry

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.otlp_collector import Span

PAGE = (ROOT / "docs/telemetry.md").read_text("utf-8")
SHELL, EXAMPLE, TREE = (block.text for block in all_blocks(PAGE))


@pytest.mark.timeout(120)
async def test_the_example_is_the_trace_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "servers.json"
    entry = {"command": sys.executable, "args": [str(ROOT / "tests/servers/plain.py")]}
    config.write_text(json.dumps({"mcpServers": {"plain": entry}}), "utf-8")
    *_, serve = SHELL.splitlines()
    assert serve == "dragoman serve --http 8765 --no-token"
    assert f"export {otlp.ENDPOINT}=" in SHELL
    async with Collector() as collector:
        monkeypatch.setenv(otlp.ENDPOINT, collector.url)
        words = serve.replace("8765", "0").split()[1:]
        async with served(["-m", "dragoman", *words, "--config", str(config)]) as url:
            done = await asyncio.to_thread(
                warm.run,
                [],
                code=EXAMPLE.replace("http://127.0.0.1:8765/mcp", url),
                environment={**os.environ, "OTEL_SERVICE_NAME": "application"},
                timeout=60,
            )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "It says hello."
    root = next(span for span in collector.spans if span.name == "invoke_agent")
    of_trace = [span for span in collector.spans if span.trace == root.trace]
    assert drawn(of_trace, root) == TREE.splitlines()
    check_attributes(of_trace)
    reported = {point.name for point in collector.points}
    assert {"mcp.client.operation.duration", "mcp.server.operation.duration"} <= reported
    assert reported <= set(
        re.findall(r"^\| `((?:mcp|gen_ai)\.[\w.]+)` \| (?:s|{token}) \|", PAGE, re.MULTILINE)
    )


def drawn(spans: list[Span], root: Span) -> list[str]:
    """Draw a trace as the page does; the collector gets the spans of a parent in the order of their ends."""

    def line(indent: str, span: Span) -> str:
        kind = f" ({span.kind})" if span.name.startswith("tools/") else ""
        return f"{indent + span.name + kind:<51}{span.service}"

    def below(parent: Span, indent: str) -> list[str]:
        found: list[str] = []
        children = [span for span in spans if span.parent == parent.id]
        for child in children:
            is_last = child is children[-1]
            found.append(line(indent + ("└─ " if is_last else "├─ "), child))
            found += below(child, indent + ("   " if is_last else "│  "))
        return found

    return [line("", root), *below(root, "")]


def check_attributes(spans: list[Span]) -> None:
    """Every attribute is one that the table names, or one of its families."""
    named = set(re.findall(r"`((?:gen_ai|mcp|network|server|client|jsonrpc)\.[\w.*]+)`", PAGE))
    families = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    for span in spans:
        unknown = [name for name in span.attributes if name not in named and not name.startswith(families)]
        assert unknown == [], span.name


def test_the_names_of_the_page_are_those_of_the_code() -> None:
    assert f"`{telemetry.CONTENT}=true`" in PAGE
    assert f"cut at {telemetry.MAX_CONTENT_CHARS:,} characters" in PAGE
