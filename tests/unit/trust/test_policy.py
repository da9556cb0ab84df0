"""Policies: the first rule of a scope, the strictest scope, no widening by projects or by hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import CallDeniedError, InvalidArgumentsError
from dragoman.trust.policy import (
    MAX_RULES,
    Policy,
    PolicyRequest,
    allowing,
    ask_by_default,
    combine,
    copied,
    denial,
    read_policy,
)

if TYPE_CHECKING:
    from dragoman.trust.policy import Scope

pytestmark = pytest.mark.requirement("rrclaw-policy", "users-policy")

DENY_ALL = {"action": "deny"}


def policy(*rules: dict[str, Any], default: str = "allow", **scopes: list[dict[str, Any]]) -> Policy:
    parts = [("user", read_policy({"rules": list(rules), "default": default}, scope="user", source="f"))]
    parts += [(scope, read_policy(found, scope=scope)) for scope, found in scopes.items()]  # type: ignore[arg-type,misc]
    assert not [problem for _, part in parts for problem in part.problems]
    return combine(parts)  # type: ignore[arg-type]


def call(tool: str = "read", server: str = "fs", **arguments: Any) -> PolicyRequest:
    return PolicyRequest(server=server, tool=tool, arguments=arguments)


def action(found: Policy, request: PolicyRequest) -> str:
    return found.decide(request).action


def test_without_rules_the_default_holds() -> None:
    assert Policy().decide(call()).action == "allow"
    assert Policy(default="ask").decide(call()).action == "ask"
    assert Policy().decide(call()).rule == ""


def test_the_first_rule_of_a_scope_decides() -> None:
    found = policy(
        {"action": "allow", "tool": "read*"}, {"action": "ask", "server": ["fs", "git*"]}, DENY_ALL
    )
    assert action(found, call("read_text")) == "allow"
    assert action(found, call("write")) == "ask"
    assert action(found, call("push", "hub")) == "deny"
    assert action(found, call("push", "gitlab")) == "ask"
    assert action(found, call("Read_text", "x")) == "deny"


def test_a_name_with_brackets_matches_itself() -> None:
    assert action(policy({"action": "deny", "tool": "a[1]"}), call("a[1]")) == "deny"


def test_between_scopes_the_strictest_holds() -> None:
    rules: dict[str, Any] = {
        "user": [{"action": "allow", "tool": "x"}],
        "code": [{"action": "ask"}],
        "system": [{"action": "deny", "tool": "y"}],
    }
    found = policy(**rules)
    assert action(found, call("x")) == "ask"
    assert action(found, call("y")) == "deny"


def test_a_project_can_only_narrow() -> None:
    assert action(policy(default="deny", project=[{"action": "allow"}]), call()) == "deny"
    assert action(policy(default="deny", project=[{"action": "ask"}]), call()) == "deny"
    assert action(policy(default="ask", project=[{"action": "allow"}]), call()) == "ask"
    assert action(policy({"action": "allow"}, project=[DENY_ALL]), call()) == "deny"
    assert action(policy({"action": "ask"}, project=[{"action": "allow"}]), call()) == "ask"
    exception = [{"action": "allow", "tool": "read"}, DENY_ALL]
    assert action(policy(project=exception), call("read")) == "allow"
    assert action(policy(project=exception), call("write")) == "deny"


def test_a_projects_default_can_only_narrow() -> None:
    def default(user: str, project: str) -> str:
        said: list[tuple[Scope, str]] = [("user", user), ("project", project)]
        return combine([(one, read_policy({"default": word}, scope=one)) for one, word in said]).default

    assert [default("ask", said) for said in ("allow", "ask", "deny")] == ["ask", "ask", "deny"]


def test_a_denial_by_a_projects_default_names_its_file() -> None:
    for said in (
        {"default": "deny"},
        {"default": "nonsense"},
        {"default": "deny", "rules": [DENY_ALL | {"tool": "x"}]},
    ):
        found = combine([("project", read_policy(said, scope="project", source="/p/dragoman.toml"))])
        error = denial(found.decide(call()), tool="read", server="fs")
        assert "dragoman.toml" in str(error)
    own = combine([("user", read_policy({"default": "deny"}, scope="user", source="/u/mine.toml"))])
    assert "mine.toml" not in str(denial(own.decide(call()), tool="read", server="fs"))


@pytest.mark.parametrize(
    ("condition", "hints", "trusted", "wanted"),
    [
        ("destructive", {}, False, "deny"),
        ("destructive", {"destructiveHint": False}, False, "deny"),
        ("destructive", {"destructiveHint": False}, True, "allow"),
        ("destructive", {"readOnlyHint": True}, True, "allow"),
        ("destructive", {"readOnlyHint": True}, False, "deny"),
        ("destructive", {"destructiveHint": True}, True, "deny"),
        ("!read_only", {"readOnlyHint": True}, False, "deny"),
        ("!read_only", {"readOnlyHint": True}, True, "allow"),
        ("read_only", {"readOnlyHint": True}, False, "deny"),
        ("read_only", {}, False, "allow"),
        ("open_world", {"openWorldHint": "no"}, True, "deny"),
        ("idempotent", {"idempotentHint": True}, True, "deny"),
        (["read_only", "idempotent"], {"readOnlyHint": True}, True, "allow"),
    ],
)
def test_annotations_in_a_rule_that_forbids(
    condition: Any, hints: dict[str, Any], trusted: bool, wanted: str
) -> None:
    found = policy({"action": "deny", "annotation": condition})
    request = PolicyRequest(server="fs", tool="x", annotations=hints, trust_annotations=trusted)
    assert action(found, request) == wanted


def test_annotations_widen_only_where_they_are_trusted() -> None:
    found = policy({"action": "allow", "annotation": "read_only"}, DENY_ALL)
    hints = {"readOnlyHint": True}
    assert action(found, PolicyRequest(server="fs", tool="x", annotations=hints)) == "deny"
    assert (
        action(found, PolicyRequest(server="fs", tool="x", annotations=hints, trust_annotations=True))
        == "allow"
    )
    asks = policy({"action": "ask", "annotation": "read_only"}, DENY_ALL)
    assert action(asks, PolicyRequest(server="fs", tool="x", annotations=hints)) == "deny"


def test_arguments_decide() -> None:
    found = policy(
        {"action": "deny", "arguments": {"command": {"regex": r"\brm\b|(a+)+$"}}},
        {"action": "allow", "arguments": {"path": {"path": "/project/*"}}},
        {"action": "ask"},
    )
    assert action(found, call(command="sudo rm -r /")) == "deny"
    assert action(found, call(path="/project/a/b.txt")) == "allow"
    assert action(found, call(path="/project/../etc/passwd")) == "ask"
    assert action(found, call(path="/works")) == "ask"
    assert action(found, call()) == "ask"
    assert action(found, call(command="a" * 90_000 + "!")) == "ask"


def test_an_allow_wants_every_value_and_a_deny_only_one() -> None:
    good: dict[str, Any] = {"files": [{"path": "/w/a"}]}
    mixed: dict[str, Any] = {"files": [{"path": "/w/a"}, {"path": "/etc/x"}]}
    allows = policy({"action": "allow", "arguments": {"/files/*/path": "/w/*"}}, DENY_ALL)
    assert action(allows, call(**good)) == "allow"
    assert action(allows, call(**mixed)) == "deny"
    assert action(allows, call(files=[])) == "deny"
    denies = policy({"action": "deny", "arguments": {"files": "/etc/*"}})
    assert action(denies, call(**mixed)) == "deny"
    assert action(denies, call(**good)) == "allow"


def test_the_error_names_the_rule() -> None:
    found = policy(
        {
            "action": "deny",
            "server": "fs",
            "tool": "rm*",
            "annotation": "destructive",
            "arguments": {"p": "/*"},
            "reason": "no\nway",
        },
        {"action": "deny", "name": "my rule"},
    )
    decision = found.decide(call("rm", p="/x"))
    assert decision.rule == "user: deny server=fs tool=rm* destructive p=/*"
    error = denial(decision, tool="mcp_fs_rm", server="fs")
    assert error.rule == decision.rule
    assert error.tool == "mcp_fs_rm"
    assert str(error).startswith("Blocked by rule `deny server=fs rm* destructive p=/*` in f#1: no\\nway (")
    assert found.decide(call("x")).rule == "user: my rule"


def test_the_error_names_the_line_of_the_rule() -> None:
    rules = [{"action": "allow", "tool": "a"}, {"action": "deny", "tool": "git_commit"}]
    read = read_policy({"rules": rules}, scope="user", source="/home/me/dragoman.toml", lines=[3, 4])
    error = denial(combine([("user", read)]).decide(call("git_commit")), tool="mcp_git_commit", server="fs")
    assert error.message == "Blocked by rule `deny git_commit` in /home/me/dragoman.toml:4"


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"tool": "write", "arguments": {"path": "/home/me/private/*"}}, "{action} write"),
        ({"tool": "write", "name": "no secrets"}, "no secrets"),
        ({"resource": "file:///home/me/*"}, "{action}"),
        ({"server": "fs", "annotation": "destructive"}, "{action} server=fs destructive"),
    ],
)
def test_other_machines_are_told_the_rule_without_paths(rule: dict[str, Any], told: str, action: str) -> None:
    read = read_policy([{"action": action, **rule}], scope="user", source="/home/me/dragoman.toml", lines=[3])
    wanted = PolicyRequest(server="fs", tool="write", arguments={"path": "/home/me/private/x"})
    if "resource" in rule:
        wanted = PolicyRequest(server="fs", tool="file:///home/me/x", kind="resource")
    error = denial(combine([("user", read)]).decide(wanted), tool="mcp_fs_write", server="fs")
    assert "/home/me/dragoman.toml:3" in str(error)
    assert f"rule `{told.format(action=action)}`" in error.public_message
    assert error.hint in error.public_message
    assert "/home" not in error.public_message


def test_an_error_without_another_text_tells_other_machines_the_same() -> None:
    error = CallDeniedError("no", tool="x", server="s", hint="ask")
    assert error.public_message == str(error) == "no (ask)"


def test_an_unanswered_question_is_a_denial() -> None:
    asked = policy({"action": "ask", "tool": "x"}).decide(call("x"))
    assert "no one can be asked" in str(denial(asked, tool="x", server="fs"))
    assert "the user declined" in str(denial(asked, tool="x", server="fs", asked=True))
    assert denial(Policy(default="deny").decide(call()), tool="x", server="fs").rule == "default"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"action": "permit"}, "`action` must be"),
        ({}, "`action` must be"),
        ({"action": "deny", "tools": "x"}, "unknown key `tools`"),
        ({"action": "deny", "server": 5}, "`server` must be"),
        ({"action": "deny", "tool": []}, "`tool` must be"),
        ({"action": "deny", "annotation": "readonly"}, "`annotation` must be one of read_only"),
        ({"action": "deny", "arguments": []}, "`arguments` must be an object"),
        ({"action": "deny", "arguments": {"a": {}}}, "`arguments.a`: a pattern must be"),
        ({"action": "deny", "arguments": {"a": []}}, "the list is empty"),
        ({"action": "deny", "arguments": {"a": ""}}, "non-empty string"),
        ({"action": "deny", "arguments": {"a": "x" * 1001}}, "must not exceed 1000"),
        ({"action": "deny", "arguments": {"a": {"regex": "(?=a)b"}}}, "linear time"),
        ({"action": "deny", "arguments": {"a": {"regex": "("}}}, "linear time"),
        ({"action": "deny", "name": 5}, "`name` must be a string"),
        ("deny", "must be an object"),
    ],
)
def test_a_rule_that_cannot_be_read_denies(rule: Any, problem: str) -> None:
    read = read_policy([rule], scope="user", source="f.toml")
    assert len(read.problems) == 1
    assert read.problems[0].startswith("rule 1: ")
    assert problem in read.problems[0]
    assert action(combine([("user", read)]), call()) == "deny"


def test_a_broken_rule_denies_what_it_names_and_a_broken_allow_is_dropped() -> None:
    read = read_policy([{"action": "ask", "tool": "x", "bad": 1}], scope="user")
    assert action(combine([("user", read)]), call("x")) == "deny"
    assert action(combine([("user", read)]), call("y")) == "allow"
    dropped = read_policy([{"action": "allow", "bad": 1}, {"action": "ask"}], scope="user")
    assert len(dropped.problems) == 1
    assert action(combine([("user", dropped)]), call("x")) == "ask"


@pytest.mark.parametrize(
    "data", [{"rules": {}}, "deny", {"default": "no"}, {"rules": [{"action": "allow"}] * (MAX_RULES + 1)}, 5]
)
def test_a_policy_that_cannot_be_read_denies_everything(data: Any) -> None:
    read = read_policy(data, scope="user")
    assert read.problems
    assert action(combine([("user", read)]), call()) == "deny"


def test_an_unknown_key_of_a_policy_is_a_problem() -> None:
    assert read_policy({"rule": []}, scope="user").problems == [
        "unknown key `rule`; a policy has `rules` and `default`"
    ]


def want(kind: Any, name: str, server: str = "fs", **arguments: Any) -> PolicyRequest:
    return PolicyRequest(server=server, tool=name, kind=kind, arguments=arguments)


def test_rule_without_a_kind_and_the_default_are_about_everything() -> None:
    for found in (policy(default="deny"), policy(DENY_ALL), policy({"action": "deny", "server": "fs"})):
        assert action(found, call()) == "deny"
        assert action(found, want("resource", "file:///x")) == "deny"
        assert action(found, want("prompt", "draft")) == "deny"
    assert action(policy({"action": "deny", "server": "fs"}), want("prompt", "draft", "law")) == "allow"


def test_rule_that_names_a_kind_is_about_that_kind() -> None:
    tools = policy({"action": "deny", "tool": "*"})
    resources = policy({"action": "deny", "resource": "*"})
    prompts = policy({"action": "deny", "prompt": ["x*", "draft"]})
    both = policy({"action": "deny", "tool": "read", "resource": "law://*"})
    wanted = [call(), want("resource", "law://1"), want("prompt", "draft")]
    assert [action(tools, one) for one in wanted] == ["deny", "allow", "allow"]
    assert [action(resources, one) for one in wanted] == ["allow", "deny", "allow"]
    assert [action(prompts, one) for one in wanted] == ["allow", "allow", "deny"]
    assert [action(both, one) for one in wanted] == ["deny", "deny", "allow"]


def test_rule_with_an_annotation_is_about_tools() -> None:
    found = policy({"action": "deny", "annotation": "destructive"})
    assert (action(found, call()), action(found, want("resource", "x://y"))) == ("deny", "allow")
    read = read_policy([{"action": "deny", "annotation": "destructive", "prompt": "x"}], scope="user")
    assert read.problems == [
        "rule 1: `annotation` applies to tools only; write another rule for resources and prompts"
    ]
    assert action(combine([("user", read)]), want("prompt", "x")) == "deny"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "file://localhost/%65tc/passwd",
        "file:///srv/../etc/passwd",
        "file:///%2565tc/passwd",
        "file:///etc/passwd?x",
        "file:///etc/passwd#x",
        "file:///etc/passwd%3Fx",
        "file:///etc/passwd%00",
        "\x01file:///etc/passwd",
        "/etc/passwd",
    ],
)
def test_resource_is_denied_however_its_address_is_written_and_never_allowed(uri: str) -> None:
    exact = policy({"action": "deny", "resource": "file:///etc/passwd"})
    assert action(exact, want("resource", uri)) == "deny"
    assert action(policy({"action": "deny", "resource": "file:///etc/*"}), want("resource", uri)) == "deny"
    allowed = policy({"action": "allow", "resource": "file:///srv/*"}, default="deny")
    assert action(allowed, want("resource", uri)) == "deny"
    assert action(allowed, want("resource", "file:///srv/a")) == "allow"


def test_rules_about_arguments_are_about_resources_and_prompts_too() -> None:
    found = policy({"action": "deny", "arguments": {"*": {"path": "/etc/**"}}})
    assert action(found, want("resource", "file:///etc/x", uri="file:///etc/x")) == "deny"
    assert action(found, want("prompt", "review", file="/etc/x")) == "deny"


def test_rule_that_cannot_be_read_denies_what_it_names() -> None:
    read = read_policy([{"action": "ask", "resource": "law://*", "tol": "x"}], scope="user")
    found = combine([("user", read)])
    assert action(found, want("resource", "law://1")) == "deny"
    assert action(found, call()) == "allow"
    nameless: list[dict[str, Any]] = [{"action": "deny", "prompt": []}]
    everything = combine([("user", read_policy(nameless, scope="user"))])
    assert action(everything, want("prompt", "p")) == "deny"


def test_denial_and_rule_say_what_it_is_about() -> None:
    decision = policy({"action": "deny", "resource": "law://*", "server": "law"}).decide(
        want("resource", "law://1", "law")
    )
    error = denial(decision, tool="law://1", server="law")
    assert str(error).startswith("Blocked by rule `deny server=law law://*` in f#1")


def test_copy_shares_nothing_and_has_a_depth() -> None:
    inner = {"b": [1, {"c": (2, [3])}]}
    made = copied(inner)
    assert made == inner
    made["b"][1]["c"][1].append(4)  # type: ignore[index]
    assert inner == {"b": [1, {"c": (2, [3])}]}
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArgumentsError, match="nested more than 100 levels deep"):
        copied(loop)


def test_a_call_that_only_the_default_allows_is_open_to_a_question() -> None:
    assert policy().decide(call()).is_open
    assert policy({"action": "allow", "tool": "write"}).decide(call()).is_open
    assert not policy({"action": "allow", "tool": "read"}).decide(call()).is_open
    assert not policy(default="ask").decide(call()).is_open
    # A project cannot allow what the user is asked about.
    assert policy(project=[{"action": "allow"}]).decide(call()).is_open


def test_an_annotation_closes_nothing_unless_it_is_trusted() -> None:
    found = policy({"action": "allow", "annotation": "read_only"})
    hints = {"readOnlyHint": True}
    claimed = PolicyRequest(server="fs", tool="read", annotations=hints)
    trusted = PolicyRequest(server="fs", tool="read", annotations=hints, trust_annotations=True)
    assert found.decide(claimed).is_open
    assert not found.decide(trusted).is_open
    assert ask_by_default(claimed).action == "ask"
    assert ask_by_default(trusted).action == "allow"
    assert ask_by_default(call()).action == "ask"


@pytest.mark.parametrize("name", ["*", "a?", "[ab]", "x[*]", "]", "plain"])
def test_the_rule_for_one_tool_allows_no_other(name: str) -> None:
    found = policy(allowing("f*", name), default="ask")
    assert action(found, call(name, "f*")) == "allow"
    for other in (call("other", "f*"), call("ab", "f*"), call("a", "f*"), call(name, "fs")):
        assert action(found, other) == "ask"
    every = policy(allowing("f*"), default="ask")
    assert action(every, call("other", "f*")) == "allow"
    assert action(every, call(name, "fs")) == "ask"
