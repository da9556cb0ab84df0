from __future__ import annotations

from typing import Any

import pytest

from dragoman.trust.sandbox import (
    HERE,
    Tree,
    add_path,
    below,
    denied_paths,
    needed_store,
    patterns_of,
    read_sandbox,
    rules_of,
    store_of,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Error: EACCES: permission denied, open '/home/u/.aws/credentials'",
            [("/home/u/.aws/credentials", False)],
        ),
        ("EACCES: permission denied, mkdir '/srv/new'", [("/srv/new", True)]),
        ("EPERM: operation not permitted, scandir '/home/u'", [("/home/u", False)]),
        (
            "PermissionError: [Errno 13] Permission denied: '/home/u/.kube/config'",
            [("/home/u/.kube/config", False)],
        ),
        ("open /home/u/.docker/config.json: permission denied", [("/home/u/.docker/config.json", False)]),
        ("cat: /home/u/x: Permission denied", [("/home/u/x", False)]),
        ('Permission denied (os error 13): "/home/u/.cargo/registry"', [("/home/u/.cargo/registry", False)]),
        ("Permission denied: ~/.netrc.", [("~/.netrc", False)]),
        ("all is well with /home/u", []),
        ("permission denied", []),
        ("EACCES " * 3000, []),
    ],
)
def test_a_refused_path_is_found_in_what_programs_say(text: str, found: list[tuple[str, bool]]) -> None:
    assert denied_paths(text) == found


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("strict", ""),
        ({"read": "~/x", "network": [443]}, ""),
        ({"level": "off", "network": "off", "sockets": True}, ""),
        ("loose", "expected off"),
        (True, "expected off"),
        ({"level": "none"}, "`level`"),
        ({"reed": []}, "`reed`"),
        ({"read": [1]}, "`read`"),
        ({"write": [""]}, "`write`"),
        ({"network": ["example.test"]}, "names of hosts cannot be kept"),
        ({"network": [0]}, "TCP ports"),
        ({"network": True}, "`network`"),
        ({"network": []}, "`network`"),
        ({"sockets": "no"}, "`sockets`"),
    ],
)
def test_the_key_is_read_or_the_problem_is_named(value: Any, problem: str) -> None:
    read, problems, notes = read_sandbox(value)
    assert notes == []
    assert (read is None) is bool(problem)
    assert problem in "; ".join(problems)
    assert bool(problems) is bool(problem)


def test_a_table_without_a_level_is_strict_and_only_strict_closes_named_sockets() -> None:
    assert (rules_of({"read": ["x"]}).level, rules_of({"read": ["x"]}).sockets) == ("strict", False)
    assert rules_of("credentials").sockets
    assert rules_of(None).level == "off"
    with pytest.raises(ValueError, match="is one of"):
        rules_of("loose")  # type: ignore[arg-type] -- what a program may pass


def test_of_two_entries_for_a_path_the_stricter_one_holds() -> None:
    tree: Tree = {}
    assert add_path(tree, "/h/.config", "r")
    assert add_path(tree, "/h/.config/gh")
    assert not add_path(tree, "/h/.config", "r")
    assert not add_path(tree, "/h/.config/gh/hosts.yml", "r")
    assert tree == {"h": {".config": {HERE: "r", "gh": ""}}}
    assert add_path(tree, "/h", {".ssh": ""})
    assert tree["h"] == {".config": {HERE: "r", "gh": ""}, ".ssh": ""}
    later: Tree = {}
    assert add_path(later, "/h/.config/gh")
    assert add_path(later, "/h/.config", "r")
    assert later == {"h": {".config": {HERE: "r", "gh": ""}}}
    assert add_path(tree, "/h")
    assert tree == {"h": ""}


def test_a_star_stands_for_any_text_within_one_name() -> None:
    tree: Tree = {"*chrom*": "", ".ssh": ""}
    said = [below(tree, name, patterns_of(tree)) for name in ("google-chrome", "chromium", ".ssh", "code")]
    assert said == ["", "", "", None]


def test_the_store_is_named_not_the_file_in_it() -> None:
    assert store_of("/home/u/.aws/sso/cache/x.json", "/home/u") == "/home/u/.aws"
    assert store_of("/home/u/.config/gh/hosts.yml", "/home/u") == "/home/u/.config/gh"
    assert store_of("/home/u/notes/x", "/home/u") == "/home/u/notes/x"
    assert store_of("/srv/.aws/x", "/home/u") == "/srv/.aws/x"


@pytest.mark.parametrize(
    ("theirs", "ours", "note"),
    [
        (
            {"filesystem": {"allowWrite": ["a", {"path": "b", "literal": True}]}},
            {"write": ("a", "b"), "read": ()},
            "",
        ),
        (
            {"filesystem": {"allowRead": ["a"], "denyRead": ["a/x"]}},
            {"read": ("a",), "write": ()},
            "stays granted",
        ),
        ({"network": {"allowedDomains": []}}, {"network": "off"}, ""),
        ({"network": {"allowedDomains": ["*"]}}, {"network": "on"}, ""),
        (
            {"network": {"allowedDomains": ["*"], "deniedDomains": ["a.test"]}},
            {"network": (53, 80, 443)},
            "hosts cannot be kept",
        ),
        ({"network": {"allowedDomains": ["a.test"]}}, {"network": (53, 80, 443)}, "hosts cannot be kept"),
        ({"network": {"deniedDomains": ["a.test"]}}, {"network": "off"}, ""),
        (
            {"read": ["a"], "network": {"outbound": {"insecure_allow_all": True}}},
            {"read": ("a",), "network": "on"},
            "",
        ),
        (
            {"network": {"outbound": {"allow_host": ["a.test"], "allow_port": [443]}}},
            {"network": (443,)},
            "hosts cannot be kept",
        ),
        ({"network": {"outbound": {}}}, {"network": "off"}, ""),
    ],
)
def test_the_forms_of_other_hosts_are_read_and_never_made_looser_silently(
    theirs: dict[str, Any], ours: dict[str, Any], note: str
) -> None:
    read, problems, notes = read_sandbox(theirs)
    assert (read, problems) == (ours, [])
    assert note in "; ".join(notes)
    assert bool(notes) is bool(note)


@pytest.mark.parametrize(
    ("words", "store"),
    [
        (["aws", "uvx", "awslabs.aws-api-mcp-server@latest"], "~/.aws"),
        (["k", "npx", "-y", "mcp-server-kubernetes"], "~/.kube"),
        (["x", "npx", "-y", "mcp-remote", "https://h.test"], "~/.mcp-auth"),
        (["files", "npx", "-y", "@modelcontextprotocol/server-filesystem"], ""),
        (["laws", "china-law-mcp"], ""),
    ],
)
def test_a_server_that_needs_a_store_by_nature_is_recognised(words: list[str], store: str) -> None:
    assert needed_store(words) == store
