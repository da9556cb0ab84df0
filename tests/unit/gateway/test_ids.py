"""Names and URIs of many servers in one list: reversible, and dependent on their own server alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.gateway import ids

SERVERS = st.text(min_size=1, max_size=20)


@given(SERVERS, st.text(max_size=40))
def test_every_uri_comes_back(server: str, uri: str) -> None:
    assert ids.inner_uri(ids.outer_uri(server, uri)) == (server, uri)


@given(SERVERS, st.sampled_from(["ui://", "skill://", "file:///", "dragoman://a/"]), st.text(max_size=40))
def test_every_uri_with_a_known_scheme_comes_back(server: str, scheme: str, rest: str) -> None:
    assert ids.inner_uri(ids.outer_uri(server, scheme + rest)) == (server, scheme + rest)


@given(SERVERS, st.text(max_size=40))
def test_every_prompt_comes_back(server: str, name: str) -> None:
    assert ids.inner_prompt(ids.outer_prompt(server, name)) == (server, name)


def test_a_template_can_be_filled_in_before_it_comes_back() -> None:
    outer = ids.outer_uri("my notes", "memo://{name}")
    assert outer == "dragoman://my%20notes/memo://{name}"
    assert ids.inner_uri(outer.replace("{name}", "a%20b?c#d")) == ("my notes", "memo://a%20b?c#d")


def test_views_keep_their_scheme() -> None:
    entry: Any = {"name": "t", "_meta": {"ui": {"resourceUri": "ui://v/1", "csp": {}}, "other": [1]}}
    outer = ids.outer_tool(entry, server="fs", name="mcp_fs_t")
    assert outer == {
        "name": "mcp_fs_t",
        "_meta": {"ui": {"resourceUri": "ui://fs/v/1", "csp": {}}, "other": [1]},
    }
    assert entry["_meta"] == {"ui": {"resourceUri": "ui://v/1", "csp": {}}, "other": [1]}
