from __future__ import annotations

import re

import pytest
from tests.unit.config.specs import WRITABLE

from dragoman.config.dialects import dialect
from dragoman.config.export import entry
from dragoman.config.write import catalog
from dragoman.model import Http, Stdio

pytestmark = pytest.mark.requirement("otter-later.market")

ITEMS = catalog()
PROGRAMS = {"npx": "node", "uvx": "uv"}


@pytest.mark.requirement("otter-later.market")
def test_the_servers_that_everybody_asks_for_are_there() -> None:
    wanted = "filesystem git fetch memory time everything sequential-thinking playwright excel china-law github sqlite context7"
    assert set(wanted.split()) <= set(ITEMS)
    assert {"postgres", "playwright", "github", "slack", "notion"} <= set(ITEMS), (
        "otter's document names them"
    )
    assert ITEMS["postgres"].variables() == ["DATABASE_URL"]
    assert ITEMS["slack"].variables() == ["SLACK_BOT_TOKEN", "SLACK_TEAM_ID"]
    assert len(ITEMS) >= 20


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_is_complete(name: str) -> None:
    item = ITEMS[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert item.description.endswith(".")
    assert len(item.description) < 80
    assert item.needs == PROGRAMS.get(item.command, "")
    assert bool(item.command) != bool(item.url)
    assert bool(item.arguments) == bool(item.takes)


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_can_be_written_without_loss(name: str) -> None:
    for target in ("dragoman", "mcp-json", "excelmanus", "kode", "otter", "rrclaw"):
        assert {loss.key for loss in entry(ITEMS[name].spec(), dialect(target))[1]} <= {"transport"}, target
    assert WRITABLE


@pytest.mark.parametrize("name", ITEMS)
def test_the_server_of_an_item_has_all_that_the_item_has(name: str) -> None:
    item = ITEMS[name]
    transport = item.spec().transport
    if isinstance(transport, Stdio):
        assert (transport.command, list(transport.args)) == (item.command, [*item.args, *item.arguments])
        assert transport.env == item.env
    else:
        assert (transport.url, transport.headers) == (item.url, item.headers)


def test_no_item_holds_a_secret() -> None:
    for item in ITEMS.values():
        assert all("${" in value for value in (*item.env.values(), *item.headers.values()))


def test_arguments_of_the_user_take_the_place_of_the_usual_ones() -> None:
    filesystem = ITEMS["filesystem"]
    package = "@modelcontextprotocol/server-filesystem"
    assert filesystem.spec().transport == Stdio("npx", ["-y", package, "."])
    assert filesystem.spec("docs", ["/a", "/b"]).transport == Stdio("npx", ["-y", package, "/a", "/b"])
    assert filesystem.spec("docs").name == "docs"
    assert ITEMS["excel"].spec().transport == Stdio("uvx", ["excel-mcp-server", "stdio"])


def test_a_server_without_arguments_takes_none() -> None:
    with pytest.raises(ValueError, match="`fetch` takes no arguments"):
        ITEMS["fetch"].spec(arguments=["x"])


def test_a_server_elsewhere_takes_its_key_from_the_environment() -> None:
    transport = ITEMS["github"].spec().transport
    assert isinstance(transport, Http)
    assert transport.headers == {"Authorization": "Bearer ${GITHUB_TOKEN}"}
    assert ITEMS["github"].variables() == ["GITHUB_TOKEN"]
    assert ITEMS["qdrant"].variables() == []
