from __future__ import annotations

from dragoman.events import ToolsChanged
from dragoman.model import ServerSpec, Stdio
from dragoman.tools.listing import admit, difference

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
