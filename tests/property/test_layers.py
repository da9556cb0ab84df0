"""For any file of a project that is not approved: the user's servers are as they are without it, or stricter.

What *stricter* means here, and nothing else is let pass: a probe call that was allowed may be asked about or
denied, and one that was asked about may be denied. Everything else about the user's servers is equal: whether
and how they are started and reached, with which environment and inputs, their names and those of their tools,
their limits, and the settings that hold for all.
"""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.mutating import toml_key, toml_value

from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.export import entry
from dragoman.config.files import format_of
from dragoman.config.load import approvals, load
from dragoman.config.profiles import BUILT_IN, profile_named
from dragoman.config.templates import ExpansionContext, expand_transport
from dragoman.config.write import put, target_at
from dragoman.model import Http, ServerSpec, Settings, Stdio
from dragoman.trust.gate import Gate
from dragoman.trust.layers import in_question, of_project
from dragoman.trust.policy import STRICTNESS, PolicyRequest

PROFILES = [
    name
    for name in (*BUILT_IN, *HOSTS)
    if any(place.scope == "project" for place in profile_named(name).all_places())
]
"""Every profile that reads a file of a project."""
CANARY = "CANARY"
NAMES = ["a", "b", "new", CANARY]
GLOBAL = ("enabled", "auto_reload", "call_log", "health_check_interval", "naming", "by_field", "root")
ANSWERS = {"token": "typed", "other": "typed too"}
MINE = [
    ServerSpec("a", Stdio("mine", ["--x"], env={"TOKEN": "${TOKEN}"})),
    ServerSpec("b", Http("https://mine.example/mcp", headers={"X": "1"})),
]
PROBES = [
    PolicyRequest(server=server, tool=tool, arguments=arguments, annotations=hints)
    for server in ("a", "b", "other")
    for tool in ("read", "write")
    for arguments in ({}, {"path": "/x"})
    for hints in ({}, {"readOnlyHint": True})
]
USERS_TABLE = {
    "naming": "{server}__{tool}",
    "call_log": True,
    "limits": {"tools": 77},
    "policy": {"default": "ask", "rules": [{"action": "allow", "tool": "read"}]},
}
"""What the user's own file says where the dialect has settings."""

# Anything a file may hold

WORDS = st.sampled_from(
    [CANARY, "a", "b", "*", "", "{tool}", "${input:token}", "${TOKEN}", "stdio", "http", "off", "~/x"]
)
SCALARS = st.one_of(WORDS, st.booleans(), st.integers(-1, 2), st.just(0.001), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
RULES = st.fixed_dictionaries(
    {"action": st.sampled_from(["allow", "ask", "deny", CANARY])},
    optional={
        "server": st.sampled_from(["a", "*", CANARY]),
        "tool": st.sampled_from(["read", "*", ["read", CANARY]]),
        "annotation": st.sampled_from(["read_only", "!destructive", CANARY]),
        "arguments": st.sampled_from([{"path": "/x"}, {CANARY: CANARY}]),
        "name": st.just(CANARY),
        "reason": st.just(CANARY),
        CANARY: st.just(1),
    },
)
POLICIES = st.one_of(
    st.lists(RULES, max_size=3),
    st.fixed_dictionaries(
        {}, optional={"default": st.sampled_from(["allow", "deny", 5]), "rules": st.lists(RULES, max_size=3)}
    ),
    VALUES,
)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans() | VALUES,
        "auto_reload": st.booleans(),
        "call_log": st.booleans(),
        "health_check_interval": st.sampled_from([0.001, "5s", -1]),
        "naming": st.sampled_from(["{tool}", "{server}{tool}", "x"]),
        "allowed": st.lists(WORDS, max_size=2),
        "excluded": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "limits": st.dictionaries(
            st.sampled_from(["tools", "result_bytes", "calls_per_second", "burst"]), st.integers(0, 10**6)
        ),
        "policy": POLICIES,
    },
)
INPUTS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["token", "other"]), "type": st.sampled_from(["promptString", "command"])},
        optional={"default": st.just("theirs"), "description": st.just(CANARY), "password": st.booleans()},
    ),
    max_size=2,
)


@st.composite
def documents(draw: st.DrawFn, name: str, root: str) -> Any:
    """Make a file of a project: servers in the dialect's own keys, and everything that it could say beside."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    found = dialect(name)
    keys = st.sampled_from(sorted({*found.keys, "command", "url", "enabled", "disabled"}))
    fields = st.dictionaries(keys, VALUES, max_size=3)
    sound = st.sampled_from([_written(spec, name) for spec in (Stdio("evil"), Http("http://evil.example"))])
    servers = st.dictionaries(
        st.sampled_from(NAMES), st.tuples(sound, fields).map(lambda pair: {**pair[0], **pair[1]}), max_size=3
    )
    document: dict[str, Any] = {}
    for path in (found.container, ("mcpServers",), ("servers",)):
        table = document
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = draw(servers | VALUES) if draw(st.booleans()) else draw(servers)
    if draw(st.booleans()):
        known = document.get("mcp")
        document["mcp"] = {**draw(TABLES), **(known if isinstance(known, dict) else {})}
    if draw(st.booleans()):
        lists = ("disabledMcpServers", "disabledMcpjsonServers", "rejectedMcprcServers")
        local = {"mcpServers": draw(servers), **{key: ["a", "b"] for key in lists}}
        document["projects"] = {root: local}
    if draw(st.booleans()):
        document["inputs"] = draw(INPUTS | VALUES)
    return document


def _written(transport: Any, name: str) -> dict[str, Any]:
    return entry(ServerSpec("x", transport), dialect(name))[0] if dialect(name).writes else {}


def _save(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if format_of(path) == "toml" and isinstance(data, dict):
        path.write_text("".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in data.items()))
    else:
        path.write_text(json.dumps(data))


def _paths(profile: str, scope: str, root: Path, home: Path) -> list[tuple[Path, str]]:
    """Return the files of a profile that belong to a scope, each with its dialect."""
    found: list[tuple[Path, str]] = []
    for place in profile_named(profile).all_places():
        if place.scope == scope and place.platform in ("", "linux"):
            text = place.path.replace("${workspaceFolder}", str(root)).replace("*", "x")
            text = text.replace("${XDG_CONFIG_HOME:-~/.config}", str(home / ".config"))
            if "${" in text:
                text = f"{home}{text[text.index('}') + 1 :]}" if ":-~}" in text else _default(text, home)
            if text:
                found.append((Path(text.replace("~", str(home), 1)), place.dialect or profile))
    return found


def _default(text: str, home: Path) -> str:
    """Return a path whose variable has a folder at home for its default; nothing where it has none."""
    variable, _, rest = text.removeprefix("${").partition("}")
    default = variable.partition(":-")[2]
    return f"{default.replace('~', str(home))}{rest}" if default.startswith("~") else ""


@pytest.fixture(autouse=True)
def quiet_log() -> Any:
    logging.getLogger("dragoman").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("dragoman").setLevel(logging.NOTSET)


def _gate(profile: str, root: Path, home: Path) -> Gate:
    env = {"XDG_CONFIG_HOME": str(home / ".config"), "TOKEN": "t0ken"}
    read = load(profile, root=root, home=home, env=env, platform="linux", log_problems=False)
    return Gate(read, root=str(root), trust_project=False, approvals=approvals)


def _users(profile: str, root: Path, home: Path) -> None:
    """Write the user's own file as the profile has it, with settings where it knows any."""
    # YAML is read but not written.
    files = [pair for pair in _paths(profile, "user", root, home) if format_of(pair[0]) != "yaml"]
    for path, name in files[:1]:
        if name == "dragoman":
            _save(path, {"mcp": USERS_TABLE})
        elif name == "vscode":
            _save(path, {"inputs": [{"type": "promptString", "id": "token", "default": "mine"}]})
        elif name == "otter":
            _save(path, {"mcp": {"naming": "{server}__{tool}"}})
        put(target_at(path, name, str(root)), MINE, replaces=False)


def _meaning(spec: ServerSpec, gate: Gate, root: Path) -> dict[str, Any]:
    """Return everything that matters about a server of the user's."""
    held = gate.settings
    answers = gate.answers(spec, held, ANSWERS)
    env = {"TOKEN": "t0ken"}
    around = ExpansionContext(env=env, root=str(root), home="/home", inputs=answers)
    return {
        "spec": spec.replace(shadowed=(), notes=()),
        "transport": expand_transport(spec, around),
        "answers": answers,
        "defaults": gate.answers(spec, held, {}),
        "limits": gate.limits_of(spec),
        "naming": spec.naming or held.naming,
        "refusal": gate.refusal(spec),
    }


def check(plain: Gate, gate: Gate, root: Path) -> None:
    """Compare what holds without a project's file with what holds with it."""
    before, after = plain.settings, gate.settings
    for name in GLOBAL:
        assert getattr(after, name) == getattr(before, name), name
    assert not after.trusts_project
    mine = [spec.name for spec in before.servers]
    assert [spec.name for spec in after.servers][: len(mine)] == mine
    for spec in before.servers:
        same = after.server(spec.name)
        assert same is not None
        assert _meaning(same, gate, root) == _meaning(spec, plain, root)
    for spec in after.servers[len(mine) :]:
        assert of_project(spec, after)
        assert gate.refusal(spec) is not None
    for request in PROBES:
        allowed, decided = plain._policy.decide(request), gate._policy.decide(request)
        assert STRICTNESS[decided.action] >= STRICTNESS[allowed.action]
        assert CANARY not in f"{decided.rule} {decided.reason}"


SLOW_EACH = settings(
    # Each profile has its own examples, and each example reads and writes files.
    max_examples=max(1, settings.default.max_examples // 6),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("profile", PROFILES)
@SLOW_EACH
@given(data=st.data())
def test_an_unapproved_project_changes_nothing_of_the_users_but_for_stricter_rules(
    profile: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder, "project"), Path(folder, "home")
        root.mkdir()
        home.mkdir()
        _users(profile, root, home)
        plain = _gate(profile, root, home)
        for path, name in _paths(profile, "project", root, home):
            if data.draw(st.booleans(), label=path.name):
                _save(path, data.draw(documents(name, str(root)), label="file"))
        check(plain, _gate(profile, root, home), root)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(table=TABLES, policy=POLICIES, inputs=INPUTS)
def test_any_settings_of_an_unapproved_project_are_without_effect_but_for_stricter_rules(
    table: dict[str, Any], policy: Any, inputs: list[Any]
) -> None:
    for profile, file, data in (
        ("dragoman", "dragoman.toml", {"mcp": {**table, "policy": policy}}),
        ("vscode", ".vscode/mcp.json", {"inputs": inputs}),
    ):
        with tempfile.TemporaryDirectory() as folder:
            root, home = Path(folder, "project"), Path(folder, "home")
            root.mkdir()
            home.mkdir()
            _users(profile, root, home)
            plain = _gate(profile, root, home)
            _save(root / file, data)
            check(plain, _gate(profile, root, home), root)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_users_own_servers_are_there_to_be_compared(profile: str, tmp_path: Path, home: Path) -> None:
    """Gate the property itself: without servers of the user's it would say nothing."""
    _users(profile, tmp_path, home)
    found = [spec.name for spec in _gate(profile, tmp_path, home).settings.servers]
    has_file = bool(_paths(profile, "user", tmp_path, home))
    assert found == (["a", "b"] if has_file else [])


def test_what_the_project_says_is_seen_by_the_property(tmp_path: Path, home: Path) -> None:
    """Gate the property itself: the generated kinds of files really reach the reader."""
    _users("dragoman", tmp_path, home)
    (tmp_path / "dragoman.toml").write_text(
        '[mcp]\nnaming = "{tool}"\n[mcp.servers.a]\ncommand = "evil"\n[mcp.servers.new]\ncommand = "evil"\n'
    )
    gate = _gate("dragoman", tmp_path, home)
    assert [spec.name for spec in in_question(gate.settings)] == ["new", "a"]
    assert [one.key for one in gate.settings.project] == ["naming"]
    assert isinstance(gate.settings, Settings)
