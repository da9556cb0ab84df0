from __future__ import annotations

import pytest

from dragoman.model import ToolDef
from dragoman.tools.names import is_exposed, is_usable

pytestmark = pytest.mark.requirement("kode-registry.filter", "rrclaw-config.allowed")


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        (None, (), True),
        ((), (), False),
        (["read_file"], (), True),
        (["read_*"], (), True),
        (["READ_*"], (), False),
        (["write_*"], (), False),
        (None, ["read_file"], False),
        (["read_file"], ["read_*"], False),
        (["read_file"], ["write_*"], True),
    ],
)
def test_rules_decide_about_read_file(allowed: list[str] | None, denied: list[str], expected: bool) -> None:
    assert is_exposed("read_file", allowed=allowed, denied=denied) is expected


@pytest.mark.parametrize("rule", ["fs:*", "fs:read", "f?:re*", "[f]s:read"])
def test_server_does_not_get_into_anothers_rule_by_the_names_of_its_tools(rule: str) -> None:
    hostile = [
        ToolDef(name=name, description="", input_schema={}, server=server, original_name=own)
        for name, server, own in (
            ("fs:read", "evil", "fs:read"),
            ("evil:fs:read", "evil", "fs:read"),
            ("fs:read", "evil:fs", "read"),
        )
    ]
    assert not [tool for tool in hostile if is_usable(tool, allowed=[rule])]
    assert not [
        tool for tool in hostile if is_usable(tool, allowed=["*:read"]) and tool.original_name != "read"
    ]
    mine = ToolDef(name="read_1", description="", input_schema={}, server="fs", original_name="read")
    assert is_usable(mine, allowed=[rule])
    assert not is_usable(mine, allowed=["*"], denied=[rule])


def test_name_that_looks_like_a_glob_matches_itself() -> None:
    assert is_exposed("a[b]", allowed=["a[b]"])
    assert not is_exposed("a[b]", allowed=["a[c]"])


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        (None, (), {"mcp_fs_read", "mcp_fs_write", "now"}),
        ((), (), set()),
        (["mcp_fs_*"], (), {"mcp_fs_read", "mcp_fs_write"}),
        (["fs:*"], ["fs:write"], {"mcp_fs_read"}),
        (["now", "fs:read"], (), {"now", "mcp_fs_read"}),
        (None, ["*_write", "n?w"], {"mcp_fs_read"}),
        (["*"], ["*"], set()),
        ([":now", "read"], (), set()),
    ],
)
def test_agents_rules_are_about_built_in_and_remote_tools_alike(
    allowed: list[str] | None, denied: list[str], expected: set[str]
) -> None:
    remote = [
        ToolDef(name=f"mcp_fs_{tool}", description="", input_schema={}, server="fs", original_name=tool)
        for tool in ("read", "write")
    ]
    tools = [*remote, ToolDef(name="now", description="", input_schema={}, source="builtin")]
    assert {tool.name for tool in tools if is_usable(tool, allowed=allowed, denied=denied)} == expected
