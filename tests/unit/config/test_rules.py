from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman.config.load import load
from dragoman.config.rules import always_rules, answer_pending, asking_rule, rules_file
from dragoman.errors import ApprovalError, ConfigError
from dragoman.model import PendingApproval
from dragoman.storage.inbox import InboxStore
from dragoman.trust.gate import Gate
from dragoman.trust.policy import PolicyRequest

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.model import AlwaysRule

SERVER = '[mcp.servers.fs]\ncommand = "true"\n'


@pytest.fixture
def file(home: Path) -> Path:
    path = home / ".config" / "dragoman" / "dragoman.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def offered(
    file: Path, rules: str, arguments: dict[str, Any], *, asks: int = -1, **more: Any
) -> list[AlwaysRule]:
    """Return the rules that a person can choose for a call of `rm` of `fs`, with these rules in the user's file."""
    file.write_text(f"{SERVER}{rules}", "utf-8")
    settings = load()
    gate = Gate(settings)
    request = PolicyRequest(server="fs", tool="rm", arguments=arguments, **more)
    place = settings.policy[0].source if settings.policy else ""
    lines = [line for one in settings.policy for line in one.rule_lines]
    return list(
        always_rules(
            request,
            rules_file(settings, "fs"),
            allows=lambda rule, before: gate.would_allow(request, rule, before=before),
            asking=asking_rule(settings, f"{place}:{lines[asks]}") if lines else None,
            mask=lambda text: text.replace("known-secret", "•••"),
        )
    )


def test_a_person_can_choose_the_tool_these_arguments_or_the_server(file: Path) -> None:
    found = offered(file, '[mcp.policy]\ndefault = "ask"\n', {"path": "/srv/[a]*", "count": 3, "force": True})
    assert [one.covers for one in found] == ["tool", "arguments", "server"]
    assert {one.file for one in found} == {str(file)}
    assert 'tool = "rm"' in found[0].text
    assert "other_arguments = false" in found[1].text
    assert 'tool = "*"' in found[2].text


def test_a_rule_for_these_arguments_allows_no_others(file: Path) -> None:
    given: dict[str, Any] = {"path": "/srv/[a]*", "count": 3, "force": True}
    rule = offered(file, '[mcp.policy]\ndefault = "ask"\n', given)[1].rule
    file.write_text(f'{SERVER}[mcp.policy]\ndefault = "ask"\n', "utf-8")
    gate = Gate(load())
    others: list[dict[str, Any]] = [
        given | {"path": "/srv/a/b"},
        given | {"path": "/srv/[a]*x"},
        given | {"count": 4},
        given | {"force": False},
        given | {"also": 1},
        {"path": "/srv/[a]*", "count": 3},
        {},
    ]
    assert gate.would_allow(PolicyRequest(server="fs", tool="rm", arguments=given), rule)
    for other in others:
        assert not gate.would_allow(PolicyRequest(server="fs", tool="rm", arguments=other), rule), other
    assert not gate.would_allow(PolicyRequest(server="fs2", tool="rm", arguments=given), rule)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"text": "known-secret"},
        {"password": "hunter2"},
        {"where": {"path": "/srv"}},
        {"names": ["a"]},
        {"path": None},
        {"path": ""},
        {"*": "x"},
        {"path": "x" * 5_000},
    ],
    ids=lambda given: str(given)[:30],
)
def test_arguments_that_a_rule_cannot_name_exactly_are_not_offered(
    file: Path, arguments: dict[str, Any]
) -> None:
    found = offered(file, '[mcp.policy]\ndefault = "ask"\n', arguments)
    assert [one.covers for one in found] == ["tool", "server"]


ASKING = """\
[[mcp.policy.rules]]
action = "deny"
tool = "mkfs"

# Removing cannot be undone.
[[mcp.policy.rules]]
action = "ask"
tool = "rm"
"""
DENYING = """
[[mcp.policy.rules]]
action = "deny"
tool = "rm"
arguments = { path = "/etc/*" }
"""


def test_a_rule_comes_before_the_one_of_the_user_that_asks(file: Path) -> None:
    found = offered(file, ASKING, {"path": "/srv"})
    assert [one.covers for one in found] == ["tool", "arguments", "server"]
    assert {(one.before, tuple(one.asking.items())) for one in found} == {
        (f"{file}:8", (("action", "ask"), ("tool", "rm")))
    }


def test_a_rule_about_more_than_this_call_does_not_overtake_one_that_denies(file: Path) -> None:
    found = offered(file, f"{ASKING}{DENYING}", {"path": "/srv"}, asks=1)
    assert [one.covers for one in found] == ["arguments"]


def test_of_two_rules_on_one_line_it_is_not_clear_which_one_asks(file: Path) -> None:
    rules = '[mcp]\npolicy = [ { action = "ask", tool = "rm" }, { action = "deny", tool = "mkfs" } ]\n'
    assert offered(file, rules, {"path": "/srv"}) == []


@pytest.mark.parametrize(
    "rules",
    [
        ASKING,
        '[mcp]\npolicy = [\n  { action = "deny", tool = "mkfs" },\n  { action = "ask", tool = "rm" },\n]\n',
        '[mcp.policy]\nrules = [\n  { action = "deny", tool = "mkfs" }, # never\n  { action = "ask", tool = "rm" },\n]\n',
    ],
    ids=["tables", "a list", "rules with a comment"],
)
def test_the_rule_is_written_before_the_one_that_asks(file: Path, rules: str) -> None:
    shown = offered(file, rules, {"path": "/srv"})
    with InboxStore() as store:
        made = store.ask(waiting(shown), "s")
        answer_pending(store, made.id, allow=True, by="ann", always="arguments")
        again = store.ask(waiting(shown), "t")
        file.write_text(file.read_text("utf-8").replace('tool = "rm"\n', 'tool = "rm*"\n'), "utf-8")
        if rules is ASKING:
            with pytest.raises(ConfigError, match="the rule that asks is not there any more"):
                answer_pending(store, again.id, allow=True, by="ann", always="server")
            assert "# Removing cannot be undone." in file.read_text("utf-8")
    (said,) = load().policy
    written = said.data["rules"] if isinstance(said.data, dict) else said.data
    assert [one["action"] for one in written] == ["deny", "allow", "ask"]
    gate = Gate(load())
    asked = {
        path: gate._decide(PolicyRequest(server="fs", tool="rm", arguments={"path": path})).action
        for path in ("/srv", "/etc")
    }
    assert asked == {"/srv": "allow", "/etc": "ask"}


def test_a_rule_that_would_change_nothing_is_not_offered(file: Path, tmp_path: Path) -> None:
    """A project asks: what the user allows makes that no looser."""
    file.write_text(SERVER, "utf-8")
    (tmp_path / "dragoman.toml").write_text('[[mcp.policy.rules]]\naction = "ask"\ntool = "rm"\n', "utf-8")
    settings = load(root=tmp_path)
    gate = Gate(settings)
    request = PolicyRequest(server="fs", tool="rm", arguments={"path": "/srv"})
    (said,) = settings.policy
    place = f"{said.source}:{said.rule_lines[0]}"
    assert (said.scope, asking_rule(settings, place)) == ("project", None)
    allows = gate.would_allow
    found = always_rules(
        request, rules_file(settings, "fs"), allows=lambda rule, at: allows(request, rule, before=at)
    )
    assert found == []
    resource = offered(file, '[mcp.policy]\ndefault = "ask"\n', {"uri": "file:///x"}, kind="resource")
    assert resource == []


def waiting(always: list[AlwaysRule]) -> PendingApproval:
    return PendingApproval(
        id="", server="fs", tool="rm", original_name="rm", asked_at=0, expires_at=9e9, always=always
    )


def test_the_answer_writes_the_rule_that_was_shown_and_no_other(file: Path) -> None:
    rules = '# mine\n[mcp.policy]\ndefault = "ask"\n'
    (chosen, *_) = shown = offered(file, rules, {"path": "/srv"})
    with InboxStore() as store:
        made = store.ask(waiting(shown), "s")
        answer_pending(store, made.id, allow=True, by="ann", always="tool")
        with pytest.raises(ApprovalError, match="already approved by ann"):
            answer_pending(store, made.id, allow=True, by="bob", always="server")
    text = file.read_text("utf-8")
    assert text.startswith(f"{SERVER}# mine")
    assert load().policy[0].data == {"default": "ask", "rules": [dict(chosen.rule)]}
    assert Gate(load()).would_allow(PolicyRequest(server="fs", tool="rm"), {})


def test_an_answer_counts_also_if_its_rule_cannot_be_written(file: Path) -> None:
    shown = offered(file, '[mcp.policy]\ndefault = "ask"\n', {"path": "/srv"})
    file.write_text("no [ toml", "utf-8")
    with InboxStore() as store:
        made = store.ask(waiting(shown), "s")
        with pytest.raises(ConfigError, match="is approved, but the rule was not written"):
            answer_pending(store, made.id, allow=True, by="ann", always="tool")
        found = store.get(made.id)
        # Whoever waits for the answer does not follow a rule that is nowhere.
        assert (found.state, found.remembered) == ("approved", None)
    assert file.read_text("utf-8") == "no [ toml"


def test_a_rule_that_denies_and_was_added_meanwhile_is_not_overtaken(file: Path) -> None:
    asking = '[[mcp.policy.rules]]\naction = "ask"\ntool = "*"\n'
    shown = offered(file, asking, {"path": "/srv"})
    assert [one.before != "" for one in shown] == [True, True, True]
    with file.open("a", encoding="utf-8") as more:
        more.write('[[mcp.policy.rules]]\naction = "deny"\ntool = "rm"\nname = "never"\n')
    before = file.read_text("utf-8")
    with InboxStore() as store:
        for covers in ("tool", "server"):
            made = store.ask(waiting(shown), covers)
            with pytest.raises(ConfigError, match="a rule that denies would come too late"):
                answer_pending(store, made.id, allow=True, by="ann", always=covers)
        assert file.read_text("utf-8") == before
        made = store.ask(waiting(shown), "s")
        answer_pending(store, made.id, allow=True, by="ann", always="arguments")
    (said,) = load().policy
    assert [one["action"] for one in said.data["rules"]] == ["allow", "ask", "deny"]
