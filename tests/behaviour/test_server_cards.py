"""Server cards are hints for people: in `dragoman add` on a terminal, and in the diagnosis of a failure."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.conftest import listening
from tests.behaviour.test_cli_terminal import on_a_terminal
from tests.unit.cli.program import dragoman

from dragoman import Http, ServerSpec, diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

CARD = {
    "name": "com.example/laws",
    "title": "Laws\x1b[2J",
    "version": "1.2.0",
    "description": "Statutes.",
    "remotes": [{"headers": [{"name": "X-Key", "isRequired": True}]}],
}


class CardServer(BaseHTTPRequestHandler):
    """Has a card, and refuses everything else."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = json.dumps(CARD).encode()
        self.send_response(200 if self.path == "/mcp/server-card" else 404)
        self.send_header("Content-Type", "application/mcp-server-card+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.asked.append("POST")
        self.send_error(403)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name of the base class
        pass


@pytest.fixture
def card_server() -> Iterator[tuple[str, list[str]]]:
    """Run a server with a card; give its URL, and what it is asked."""
    asked: list[str] = []
    handler = type("Handler", (CardServer,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp", asked
        finally:
            server.shutdown()
            thread.join()


def test_add_shows_the_card_to_a_person(card_server: tuple[str, list[str]]) -> None:
    url, asked = card_server
    code, screen, _ = on_a_terminal("add", "laws", "--url", url)
    assert code == 0
    assert screen[0].startswith("Added `laws` to ")
    assert "Its server card (not verified): Laws\\x1b[2J 1.2.0: Statutes." in screen
    assert screen[-1] == "It needs the header `X-Key`."
    assert asked == ["/mcp/server-card"]


def test_add_asks_for_no_card_in_a_script(card_server: tuple[str, list[str]]) -> None:
    url, asked = card_server
    assert "Laws" not in dragoman("add", "laws", "--url", url).stdout
    assert asked == []


def test_a_diagnosis_of_a_failure_has_the_card_as_its_last_hint(card_server: tuple[str, list[str]]) -> None:
    url, asked = card_server
    result = asyncio.run(diagnose(ServerSpec("laws", Http(url)), timeout=60))
    assert not result.ok
    assert result.card is not None
    assert "403" in result.finding, "the card changes nothing of what was found"
    said = "Its server card, which is not verified, says: Laws\\x1b[2J 1.2.0: Statutes.; it needs the header `X-Key`"
    assert result.hints[-1] == said
    assert asked.count("/mcp/server-card") == 1


@pytest.mark.anyio
async def test_a_server_that_works_is_not_asked_for_its_card() -> None:
    async with listening("http") as url:
        result = await diagnose(ServerSpec("o", Http(url)))
    assert result.ok
    assert result.card is None
