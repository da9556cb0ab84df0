from __future__ import annotations

from typing import Any

import pytest

from dragoman.events import ToolsChanged
from dragoman.model import ServerSpec, Stdio
from dragoman.tools.definition import admit, difference
from dragoman.trust.limits import Limits

pytestmark = pytest.mark.requirement("excel-3.1", "kode-discovery.list", "kode-discovery.metadata")

LISTING = [{"name": "read"}, {"name": "write"}, {"name": "odd", "inputSchema": 3}]


def test_listing_is_defined_filtered_and_cleaned() -> None:
    spec = ServerSpec("s", Stdio("x"), denied_tools=["write"])
    tools, rejected = admit(LISTING, spec, template="{server}.{tool}")
    assert [tool.name for tool in tools] == ["s.read"]
    assert [one.tool for one in rejected] == ["odd"]


def test_difference_names_what_came_went_and_changed() -> None:
    spec = ServerSpec("s", Stdio("x"))
    before, _ = admit([{"name": "a"}, {"name": "b"}], spec, template="{tool}")
    after, _ = admit([{"name": "b", "description": "new"}, {"name": "c"}], spec, template="{tool}")
    assert difference("s", before, after) == ToolsChanged(
        server="s", added=("c",), removed=("a",), changed=("b",)
    )
    assert difference("s", after, after) is None


@pytest.mark.parametrize(
    ("raw", "setting"),
    [
        ({"name": "x" * 11}, "name_chars"),
        ({"name": "x", "inputSchema": {"title": "y" * 200}}, "schema_bytes"),
        ({"name": "x", "outputSchema": {"anyOf": [{}] * 6}}, "schema_nodes"),
        ({"name": "x", "inputSchema": {"a": {"b": {"c": {"d": {}}}}}}, "schema_depth"),
    ],
)
def test_definition_beyond_a_limit_is_rejected_with_its_setting(raw: dict[str, Any], setting: str) -> None:
    limits = Limits(name_chars=10, schema_bytes=100, schema_nodes=5, schema_depth=3)
    spec = ServerSpec("s", Stdio("x"))
    tools, (rejected,) = admit([raw, {"name": "good"}], spec, template="{tool}", limits=limits)
    assert [tool.name for tool in tools] == ["good"]
    assert f"`limits.{setting}`" in rejected.reason


def test_definition_too_deep_to_be_written_out_is_rejected() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    tools, (rejected,) = admit(
        [{"name": "x", "inputSchema": deep}], ServerSpec("s", Stdio("x")), template="{tool}"
    )
    assert tools == []
    assert "`limits.schema_depth`" in rejected.reason
