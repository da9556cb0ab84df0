"""Approval is by content: what decides what runs or gets out asks again, the rest does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dragoman.model import Auth, Http, Origin, ServerSpec, Stdio, Tls
from dragoman.trust.approval import (
    Approval,
    comes_from_project,
    decides,
    dump_approvals,
    fingerprint,
    is_approved,
    load_approvals,
    question,
    refusal,
    sources,
    summary,
)

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
    return replace(STDIO, transport=replace(STDIO.transport, **changes))


def env(**changes: str | None) -> ServerSpec:
    return stdio(env={**STDIO.transport.env, **changes})  # type: ignore[union-attr]


def http(**changes: Any) -> ServerSpec:
    return replace(HTTP, transport=replace(HTTP.transport, **changes))


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
    "trust": replace(STDIO, trust="off"),
    "hints": replace(STDIO, trust_annotations=True),
}
HTTP_CHANGES = {
    "url": http(url="https://law.example/other"),
    "new header": http(headers={**HTTP.transport.headers, "X-New": "1"}),  # type: ignore[union-attr]
    "another reference": http(headers={"Authorization": "Bearer ${GITHUB_TOKEN}", "X-Trace": "on"}),
    "alternate": http(alternate=True),
    "client": replace(HTTP, auth=Auth(client_id="you", client_secret="old")),
    "client secret": replace(HTTP, auth=Auth(client_id="me", client_secret="${OTHER}")),
    "no auth": replace(HTTP, auth=None),
    "kind": ServerSpec("law", Stdio("x"), origin=PROJECT),
}
SAME = {
    "order of env": stdio(env=dict(reversed(STDIO.transport.env.items()))),  # type: ignore[union-attr]
    "rotated literal": env(TOKEN="other"),
    "harmless literal": env(LEVEL="debug"),
    "time": replace(STDIO, timeouts={"call": 5}),
    "words": replace(STDIO, title="Files", description="x"),
    "place in the file": replace(STDIO, origin=replace(PROJECT, line=99)),
    "lists and tuples": stdio(args=("-y", "server-fs", ".")),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_runs_asks_again(changed: ServerSpec) -> None:
    assert fingerprint(changed) != fingerprint(STDIO)


@pytest.mark.parametrize("changed", HTTP_CHANGES.values(), ids=HTTP_CHANGES)
def test_a_change_of_what_is_reached_asks_again(changed: ServerSpec) -> None:
    assert fingerprint(changed) != fingerprint(HTTP)


@pytest.mark.parametrize("same", SAME.values(), ids=SAME)
def test_what_decides_nothing_asks_nobody(same: ServerSpec) -> None:
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
    one = replace(
        http(url="https://${command:host}/", tls=Tls(ca="${command:ca}")),
        auth=Auth(client_secret="${keyring:a/b}", scopes=["${keyring:a/b}"]),
    )
    assert sources(one) == [("command", "host"), ("command", "ca"), ("keyring", "a/b")]
    two = stdio(args=["$${command:text}", "${command:-text}", "$$${command:one}", "$${${command:two}}"])
    assert sources(two) == [("command", "one"), ("command", "two")]


def test_a_question_shows_what_is_run_and_read_for_a_secret() -> None:
    asked = question(env(TOKEN="${command:get --token abc}", KEY="Bearer ${keyring:a/b}"), "/p")
    assert "runs first     get --token abc\n" in asked
    assert "reads keyring  a/b\n" in asked
    assert "! a command runs on your account" in asked
    assert "a command runs" not in question(STDIO, "/p")


def test_headers_are_compared_without_their_case() -> None:
    lower = http(headers={"x-trace": "off", "authorization": "Basic ${TOKEN}"})
    assert fingerprint(lower) == fingerprint(HTTP)


@pytest.mark.parametrize(
    "name",
    "PATH LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES NODE_OPTIONS PYTHONPATH PYTHONSTARTUP BASH_ENV "
    "GIT_SSH_COMMAND HTTPS_PROXY OPENAI_BASE_URL DB_HOST NPM_CONFIG_REGISTRY UV_INDEX_URL HOME JAVA_TOOL_OPTIONS".split(),
)
def test_variables_that_decide(name: str) -> None:
    assert decides(name)
    assert decides(name.lower())


@pytest.mark.parametrize("name", "TOKEN LOG_LEVEL API_KEY GITHUB_TOKEN REGION".split())
def test_variables_that_decide_nothing(name: str) -> None:
    assert not decides(name)


def test_an_approval_holds_for_one_project_and_one_name() -> None:
    yes = Approval(root="/p", server="fs", fingerprint=fingerprint(STDIO))
    assert is_approved(STDIO, "/p", [yes])
    assert not is_approved(STDIO, "/q", [yes])
    assert not is_approved(replace(STDIO, name="fs2"), "/p", [yes])
    assert not is_approved(CHANGES["args"], "/p", [yes])
    assert not is_approved(STDIO, "/p", [])


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
        "inherits      AWS_KEY",
        'env file      [".env"]',
        "! the variable NODE_OPTIONS can make the command run something else",
    ):
        assert row in lines


def test_nothing_in_a_question_can_hide_a_part_of_it() -> None:
    evil = stdio(
        command="npx\x1b[8m", args=["safe" + " " * 500 + "evil", "\u202eabc", "a\nb", "p\u0430ypal"], env={}
    )
    text = question(replace(evil, name="f\x1b[2Js"), "/p\n")
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
    assert "was changed since it was approved" in str(refusal(spec, "/p", changed=True))
    assert "'a b'" in refusal(replace(spec, name="a b"), "").hint


def test_a_summary_is_one_short_line_without_secrets() -> None:
    assert summary(stdio(args=["--api-key=xyz123", "a\nb"])) == "npx '--api-key=•••' 'a\\nb'"
    assert summary(http(url="https://u:pw@h/?k=v")) == "https://•••@h/?k=•••"
    assert len(summary(stdio(args=["x" * 5000]))) == 500


def test_only_projects_files_need_an_approval() -> None:
    assert comes_from_project(STDIO)
    assert not comes_from_project(replace(STDIO, origin=USER))
    mixed = replace(STDIO, origin=USER, shadowed=[PROJECT])
    assert not comes_from_project(mixed)
    assert comes_from_project(mixed, by_field=True)


def test_approvals_are_written_and_read_back() -> None:
    first = Approval(root="/p", server="b", fingerprint="x", summary="s", at=1.5)
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
        '{"version": 2, "approvals": []}',
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
