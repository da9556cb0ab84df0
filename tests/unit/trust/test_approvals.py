"""Approval is by content: what decides what runs or gets out asks again, the rest does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.model import Auth, Http, Input, Origin, ServerSpec, Sse, Stdio, Tls
from dragoman.struct import defaults, field_names
from dragoman.trust.approvals import (
    Approval,
    Covered,
    Evidence,
    changes_of,
    dump_approvals,
    entry_parts,
    fingerprint,
    input_ids,
    load_approvals,
    may_rotate,
    new_approval,
    parts,
    question,
    refusal,
    sources,
    summary,
)
from dragoman.trust.layers import comes_from_project

PROJECT = Origin(source="/p/.mcp.json", line=3, scope="project")
USER = Origin(source="/home/me/mcp.json", scope="user")
STDIO = ServerSpec(
    "fs",
    Stdio(
        "npx",
        ["-y", "server-fs", "."],
        env={
            "TOKEN": "literal",
            "LEVEL": "info",
            "NODE_OPTIONS": "--a",
            "API_URL": "https://good",
            "KEY": "${KEY}",
        },
        cwd="/p",
        env_file=[".env"],
    ),
    origin=PROJECT,
)
HTTP = ServerSpec(
    "law",
    Http("https://law.example/mcp", headers={"Authorization": "Bearer ${TOKEN}", "X-Trace": "on"}),
    auth=Auth(client_id="me", client_secret="old"),
    origin=PROJECT,
)


def stdio(**changes: Any) -> ServerSpec:
    return STDIO.replace(transport=STDIO.transport.replace(**changes))


def env(**changes: str | None) -> ServerSpec:
    return stdio(env={**STDIO.transport.env, **changes})  # type: ignore[union-attr]


def http(**changes: Any) -> ServerSpec:
    return HTTP.replace(transport=HTTP.transport.replace(**changes))


CHANGES = {
    "command": stdio(command="npx2"),
    "args": stdio(args=["-y", "server-fs", ".."]),
    "order of args": stdio(args=["server-fs", "-y", "."]),
    "no args": stdio(args=[]),
    "cwd": stdio(cwd="/q"),
    "env file": stdio(env_file=["../.env"]),
    "inherit": stdio(inherit_env="all"),
    "inherit names": stdio(inherit_env=["AWS_SECRET"]),
    "log file": stdio(log_file="/home/me/.bashrc"),
    "new variable": env(EXTRA="1"),
    "loader variable": env(NODE_OPTIONS="--require ./evil.js"),
    "taken away": env(TOKEN=None),
    "direction": env(API_URL="https://evil"),
    "another reference": env(KEY="${AWS_SECRET_ACCESS_KEY}"),
    "a literal becomes a reference": env(TOKEN="${AWS_SECRET_ACCESS_KEY}"),
    "other default": env(KEY="${KEY:-x}"),
    "a literal becomes a command": env(TOKEN="${command:x}"),
    "a keyring": env(KEY="${keyring:a/KEY}"),
    "trust": STDIO.replace(trust="off"),
    "hints": STDIO.replace(trust_annotations=True),
    "another literal": env(LEVEL="debug"),
    "a path for a token": env(TOKEN="../evil"),
    "an address for a token": env(TOKEN="https://evil.example"),
    "a home for a token": env(TOKEN="~/evil"),
    "denied tools": STDIO.replace(denied_tools=["write"]),
    "allowed tools": STDIO.replace(allowed_tools=["read"]),
    "no tools": STDIO.replace(allowed_tools=[]),
    "naming": STDIO.replace(naming="{tool}"),
    "protocol": STDIO.replace(protocol="legacy"),
    "fallback": STDIO.replace(fallback=["other"]),
    "fallback of a tool": STDIO.replace(fallback={"read": "other"}),
    "attribution": STDIO.replace(attribution={"source": "/s"}),
    "coerced arguments": STDIO.replace(coerce_arguments=True),
    "unset variables": STDIO.replace(unset_variables="keep"),
    "limits": STDIO.replace(limits={"description_chars": 9}),
    "message size": STDIO.replace(max_message_bytes=9),
    "a login": STDIO.replace(auth=Auth()),
}
HTTP_CHANGES = {
    "url": http(url="https://law.example/other"),
    "new header": http(headers={**HTTP.transport.headers, "X-New": "1"}),  # type: ignore[union-attr]
    "another reference": http(headers={"Authorization": "Bearer ${GITHUB_TOKEN}", "X-Trace": "on"}),
    "a header that is not a credential": http(
        headers={**HTTP.transport.headers, "X-Trace": "off"}  # type: ignore[union-attr]
    ),
    "the host": http(headers={**HTTP.transport.headers, "Host": "evil"}),  # type: ignore[union-attr]
    "alternate": http(alternate=True),
    "tls": http(tls=Tls(verify=False)),
    "tls with its defaults": http(tls=Tls()),
    "a scope": HTTP.replace(auth=Auth(client_id="me", client_secret="old", scopes=["all"])),
    "client": HTTP.replace(auth=Auth(client_id="you", client_secret="old")),
    "client secret": HTTP.replace(auth=Auth(client_id="me", client_secret="${OTHER}")),
    "no auth": HTTP.replace(auth=None),
    "kind": ServerSpec("law", Stdio("x"), origin=PROJECT),
}
SAME = {
    "order of env": stdio(env=dict(reversed(STDIO.transport.env.items()))),  # type: ignore[union-attr]
    "rotated literal": env(TOKEN="other"),
    "time": STDIO.replace(timeouts={"call": 5}),
    "words": STDIO.replace(title="Files", description="x"),
    "place in the file": STDIO.replace(origin=PROJECT.replace(line=99)),
    "lists and tuples": stdio(args=("-y", "server-fs", ".")),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_runs_asks_again(changed: ServerSpec) -> None:
    assert fingerprint(changed) != fingerprint(STDIO)


@pytest.mark.parametrize("changed", HTTP_CHANGES.values(), ids=HTTP_CHANGES)
def test_a_change_of_what_is_reached_asks_again(changed: ServerSpec) -> None:
    assert fingerprint(changed) != fingerprint(HTTP)


@pytest.mark.parametrize("same", SAME.values(), ids=SAME)
def test_what_decides_nothing_asks_no_question(same: ServerSpec) -> None:
    assert fingerprint(same) == fingerprint(STDIO)


@pytest.mark.parametrize("kind", ["command", "keyring"])
@pytest.mark.parametrize("field", ["env", "headers"])
@pytest.mark.parametrize(
    "text", ["${%s:pass show b/c}", "$${%s:pass show a/b}", "$$${%s:pass show a/b}", "x"]
)
def test_another_source_of_a_secret_asks_again(kind: str, field: str, text: str) -> None:
    def spec(value: str) -> ServerSpec:
        return env(TOKEN=value) if field == "env" else http(headers={"Authorization": value})

    before, after = f"${{{kind}:pass show a/b}}", text % kind if "%" in text else text
    assert fingerprint(spec(before)) != fingerprint(spec(after))


def test_the_sources_of_secrets_are_found_wherever_they_stand() -> None:
    one = http(url="https://${command:host}/", tls=Tls(ca="${command:ca}")).replace(
        auth=Auth(client_secret="${keyring:a/b}", scopes=["${keyring:a/b}"]),
    )
    assert sources(one) == [("command", "host"), ("command", "ca"), ("keyring", "a/b")]
    two = stdio(args=["$${command:text}", "${command:-text}", "$$${command:one}", "$${${command:two}}"])
    assert sources(two) == [("command", "one"), ("command", "two")]


def test_a_question_shows_what_is_run_and_read_for_a_secret() -> None:
    asked = question(env(TOKEN="${command:get --token abc}", KEY="Bearer ${keyring:a/b}"), "/p")
    assert "runs first     get --token abc\n" in asked
    assert "reads keyring  a/b\n" in asked
    assert "! a command runs with your account" in asked
    assert "a command runs" not in question(STDIO, "/p")


def test_headers_are_compared_without_their_case() -> None:
    lower = http(headers={"x-trace": "on", "authorization": "Basic ${TOKEN}"})
    assert fingerprint(lower) == fingerprint(HTTP)
    twice = http(headers={"x-trace": "on", "X-Trace": "off", "authorization": "Basic ${TOKEN}"})
    assert fingerprint(twice) != fingerprint(HTTP)


NOT_COUNTED: dict[type, set[str]] = {
    ServerSpec: {
        "name",  # an approval is stored by it
        # When and how long it runs: this changes neither what runs nor what a model sees.
        *("enabled", "lazy", "reconnect", "replacement", "timeouts", "health_check_interval"),
        *("max_concurrency", "parallel", "share"),
        # Texts for people, and the place of the entry.
        *("title", "description", "origin", "shadowed", "lines", "extras", "notes"),
    },
    Input: {"scope"},  # its place
}


@pytest.mark.parametrize("kind", [ServerSpec, Stdio, Http, Sse, Tls, Auth, Input])
def test_every_field_counts_unless_the_table_says_that_it_does_not(kind: type) -> None:
    """A field that shall not count fails here until it has its reason in the table."""
    given: dict[type, Any] = {
        ServerSpec: STDIO,
        Stdio: Stdio("a"),
        Http: Http("a"),
        Sse: Sse("a"),
        Tls: Tls(),
        Auth: Auth(),
        Input: Input(id="a"),
    }
    for name in field_names(kind):
        changed = given[kind].replace(**{name: _other(name, given[kind])})
        same = _print(kind, changed) == _print(kind, given[kind])
        assert same is (name in NOT_COUNTED.get(kind, set())), name


def _print(kind: type, value: Any) -> str:
    match value:
        case ServerSpec():
            # An approval is kept by the name.
            return fingerprint(value)
        case Tls():
            return fingerprint(ServerSpec("s", Http("u", tls=value)))
        case Auth():
            return fingerprint(ServerSpec("s", Http("u"), auth=value))
        case Input():
            return fingerprint(ServerSpec("s", Stdio("x")), Evidence(inputs=[value]))
        case _:
            return fingerprint(ServerSpec("s", value))


def _other(name: str, given: Any) -> Any:
    """Return a value that the field does not have."""
    if name in ("transport", "auth", "tls", "origin"):
        return {"transport": Stdio("z"), "auth": Auth(), "tls": Tls(), "origin": USER}[name]
    now = getattr(given, name)
    if isinstance(now, bool):
        return not now
    if isinstance(now, dict):
        return {"timeouts": {"call": 1.0}}.get(name, {"other": "1"})
    if isinstance(now, list | tuple):
        return ("other",)
    if now is None and name in ("max_concurrency", "max_message_bytes", "callback_port"):
        return 7
    assert name in defaults(given) or isinstance(now, str)
    return ("other",) if name == "allowed_tools" else "other"


def test_the_inputs_that_an_entry_uses_count_with_their_defaults() -> None:
    spec = env(KEY="${input:key}", OTHER="$${input:-x}")
    assert input_ids(spec) == {"key"}
    one = Input(id="key", default="a")
    prints = {
        fingerprint(spec, Evidence(inputs=inputs))
        for inputs in ([], [one], [one.replace(default="b")], [one.replace(description="Your password")])
    }
    assert len(prints) == 4


LOADERS = (
    "PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONSTARTUP "
    "PYTHONHOME BASH_ENV ENV GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_KEY_0 HTTPS_PROXY OPENAI_BASE_URL DB_HOST "
    "NPM_CONFIG_REGISTRY UV_INDEX_URL PIP_INDEX_URL HOME JAVA_TOOL_OPTIONS JAVA_HOME MAVEN_OPTS AWS_ENDPOINT_URL_S3 "
    "LESSOPEN PERL5LIB RUBYOPT RUBYLIB CLASSPATH DOTNET_STARTUP_HOOKS EDITOR PAGER SSH_ASKPASS KUBECONFIG "
    "SSL_CERT_FILE GOOGLE_APPLICATION_CREDENTIALS LOG_LEVEL REGION NPM_CONFIG__AUTHTOKEN GIT_TOKEN PWD OLDPWD"
).split()


@pytest.mark.parametrize("name", LOADERS)
def test_values_of_variables_count_unless_they_are_credentials(name: str) -> None:
    for one in (name, name.lower()):
        assert not may_rotate(one, "abc")
        before, after = env(**{one: "abc"}), env(**{one: "def"})
        assert fingerprint(before) != fingerprint(after)


@pytest.mark.parametrize(
    "name",
    "TOKEN KEY API_KEY apikey GITHUB_TOKEN OPENAI_API_KEY GOOGLE_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID "
    "AWS_SESSION_TOKEN DB_PASSWORD LDAP_PASSWORD CLIENT_SECRET".split(),
)
def test_credentials_may_rotate_but_not_into_a_path_or_an_address(name: str) -> None:
    assert may_rotate(name, "sk-abc/def")
    assert fingerprint(env(**{name: "abc"})) == fingerprint(env(**{name: "def"}))
    for value in ("/tmp/x", "./x", "../x", "~/x", "https://evil", "C:\\x"):
        assert not may_rotate(name, value)


@pytest.mark.parametrize(
    ("name", "rotates"),
    [
        ("Authorization", True),
        ("X-API-Key", True),
        ("api-key", True),
        ("Private-Token", True),
        ("x-goog-api-key", True),
        ("Host", False),
        ("X-Forwarded-Host", False),
        ("Cookie", False),
        ("Proxy-Authorization", False),
        ("X-Tenant", False),
    ],
)
def test_only_credentials_among_the_headers_may_rotate(name: str, rotates: bool) -> None:
    before, after = http(headers={name: "a ${T}"}), http(headers={name: "b ${T}"})
    assert (fingerprint(before) == fingerprint(after)) is rotates
    assert fingerprint(before) != fingerprint(http(headers={name: "a ${T:-x}"}))


FILE = Covered(path="notes.py", digest="aa", size=2)
SEEN = Evidence(programs={"npx": "/usr/bin/npx"}, files=[FILE], inputs=[Input(id="k", default="1")])


def test_what_changed_is_said_part_by_part_and_without_values() -> None:
    then = new_approval(STDIO, "/p", SEEN, 1.0)

    def changes(spec: ServerSpec = STDIO, **seen: Any) -> list[str]:
        evidence = SEEN.replace(**seen)
        return changes_of(then, parts(spec, evidence), evidence)

    assert changes() == []
    assert changes(files=[FILE.replace(digest="bb")]) == ["the file `notes.py` changed"]
    assert changes(files=[FILE.replace(target="/tmp/x")]) == ["the file `notes.py` changed"]
    assert changes(files=[]) == ["the file `notes.py` is gone"]
    assert changes(files=[FILE, FILE.replace(path="new")]) == ["the file `new` is new"]
    assert changes(programs={"npx": "/p/npx"}) == ["`npx` is now another program: /p/npx"]
    assert changes(programs={"npx": ""}) == ["`npx` is not found"]
    assert changes(inputs=[Input(id="k", default="2")]) == ["the input `k` changed"]
    assert changes(env(LEVEL="hunter22", NEW="1")) == ["`env.LEVEL` changed", "`env.NEW` is new"]
    assert changes(STDIO.replace(naming="{tool}")) == ["`naming` is new"]
    assert entry_parts(then.parts).keys() == then.parts.keys() - {"file notes.py", "program npx"}
    assert "hunter22" not in str(new_approval(env(LEVEL="hunter22"), "/p", SEEN, 1.0))


def test_an_approval_of_an_older_version_says_what_it_did_not_cover() -> None:
    old = Approval(root="/p", server="fs", fingerprint="sha256:0")
    (why,) = changes_of(old, parts(STDIO))
    assert "approved with dragoman 0.1, which did not cover" in why
    assert why in str(refusal(STDIO, "/p", changes=[why]))
    assert f"  - {why}" in question(STDIO, "/p", changes=[why])


def test_the_question_shows_the_files_the_program_and_what_is_not_covered() -> None:
    evidence = SEEN.replace(gaps=["x is not a regular file"])
    text = question(STDIO.replace(denied_tools=["a\nb"]), "/p", evidence)
    for row in (
        "program       /usr/bin/npx",
        "covers        notes.py  aa, 2 bytes",
        "not covered: other files that these files load",
        "input         k: 1",
        "! x is not a regular file",
        'denied tools  ["a\\nb"]',
    ):
        assert row in text, row


def test_the_question_shows_everything_that_counts() -> None:
    text = question(stdio(args=["-y", "x", "--token", "abc"], inherit_env=["AWS_KEY"]), "/p")
    lines = [line.strip() for line in text.split("\n")]
    assert lines[0] == "/p/.mcp.json:3 wants to start the server `fs`"
    assert "command       npx -y x --token abc" in lines
    assert "argument 4  abc" in lines
    for row in (
        "directory     /p",
        "variable      NODE_OPTIONS=--a",
        "variable      API_URL=https://good",
        "variable      KEY=${KEY}",
        "variable      TOKEN=•••",
        "variable      LEVEL=info",
        "inherits      AWS_KEY",
        'env file      [".env"]',
        "! the variable NODE_OPTIONS can make the command run something else",
    ):
        assert row in lines


def test_nothing_in_a_question_can_hide_a_part_of_it() -> None:
    evil = stdio(
        command="npx\x1b[8m", args=["safe" + " " * 500 + "evil", "\u202eabc", "a\nb", "p\u0430ypal"], env={}
    )
    text = question(evil.replace(name="f\x1b[2Js"), "/p\n")
    assert not any(mark in text for mark in ("\x1b", "\u202e", "a\nb", " " * 40))
    assert "'safe[500 spaces]evil'" in text
    assert "\\u202eabc" in text
    assert "it mixes Cyrillic and Latin letters" in text


def test_a_question_about_an_address_shows_it_whole() -> None:
    text = question(http(url="https://good.example@evil.example/?k=v"), "/p")
    assert "address" in text
    assert "https://good.example@evil.example/?k=v" in text
    assert "Authorization: Bearer ${TOKEN}" in text
    assert "client id" in text
    assert "old" not in text.split("client secret")[1].split("\n")[0]


def test_a_refusal_names_the_command_that_approves_and_no_secret() -> None:
    spec = stdio(args=["--token", "hunter22"])
    error = refusal(spec, "/p")
    assert error.stage == "approval"
    assert error.server == "fs"
    assert "dragoman trust approve fs" in error.hint
    assert "is not approved" in str(error)
    assert "hunter22" not in str(error)
    many = str(refusal(spec, "/p", changes=[f"`{at}` changed" for at in range(9)]))
    assert "has changed since it was approved (`0` changed; " in many
    assert "; and 4 more)" in many
    assert "'a b'" in refusal(spec.replace(name="a b"), "").hint


def test_a_summary_is_one_short_line_without_secrets() -> None:
    assert summary(stdio(args=["--api-key=xyz123", "a\nb"])) == "npx '--api-key=•••' 'a\\nb'"
    assert summary(http(url="https://u:pw@h/?k=v")) == "https://•••@h/?k=•••"
    assert len(summary(stdio(args=["x" * 5000]))) == 500


def test_only_projects_files_need_an_approval() -> None:
    assert comes_from_project(STDIO)
    assert not comes_from_project(STDIO.replace(origin=USER))
    mixed = STDIO.replace(origin=USER, shadowed=[PROJECT])
    assert not comes_from_project(mixed)
    assert comes_from_project(mixed, by_field=True)


def test_approvals_are_written_and_read_back() -> None:
    first = Approval(root="/p", server="b", fingerprint="x", summary="s", at=1.5, parts={"kind": "a"})
    second = Approval(root="/p", server="a", fingerprint="y")
    text = dump_approvals([first, second])
    assert load_approvals(text) == [second, first]
    assert text == dump_approvals([second, first])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 3, "approvals": []}',
        '{"version": 2, "approvals": [{"root": "", "server": "", "fingerprint": "", "summary": "", "parts": 1}]}',
        '{"version": 1}',
        '{"version": 1, "approvals": [1]}',
        '{"version": 1, "approvals": [{"root": "/p"}]}',
        "[" * 100_000,
        json.dumps({"version": 1, "approvals": [{}] * 10_001}),
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_list_of_approvals_counts_as_a_whole(text: str) -> None:
    with pytest.raises(ValueError, match=r"approvals|Expecting"):
        load_approvals(text)


@pytest.mark.parametrize("name", ["PASSWORD_STORE_COMMAND", "NODE_AUTH_OPTIONS", "TOKEN_CMD", "SECRET_URL"])
def test_a_question_shows_what_a_variable_says_that_only_sounds_like_a_secret(name: str) -> None:
    spec = ServerSpec("s", Stdio("x", env={name: "curl evil.example", "API_TOKEN": "t0ken-of-mine"}))
    text = question(spec, "/p")
    assert f"{name}=curl evil.example" in text
    assert "t0ken-of-mine" not in text


@pytest.mark.parametrize(
    "value",
    [" /etc/x", "\t./x", "file:/x", "@/etc/passwd", "--opt=x", "key\nLD_PRELOAD=x", "|cmd", "!cmd", "$(cmd)"],
)
def test_a_credential_that_becomes_something_else_asks(value: str) -> None:
    before = ServerSpec("s", Stdio("x", env={"API_KEY": "k3y-0f-mine"}))
    assert fingerprint(before) == fingerprint(ServerSpec("s", Stdio("x", env={"API_KEY": "an0ther"})))
    assert fingerprint(before) != fingerprint(ServerSpec("s", Stdio("x", env={"API_KEY": value})))


@pytest.mark.parametrize("blank", list("\u00a0\u1680\u2000\u2003\u2007\u202f\u205f\u2800\u3000\u200d\u200c"))
def test_a_question_spells_out_blanks_of_every_width_and_joiners(blank: str) -> None:
    spec = ServerSpec(
        "s", Stdio("x", [f"fine\u0915{blank * 300}; curl evil.example"], env={f"A{blank}": blank})
    )
    text = question(spec, "/p")
    assert blank not in text
    assert f"\\u{ord(blank):04x}" in text or f"\\x{ord(blank):02x}" in text
