"""How a server is reached: which transport an entry means, and what is wrong with one that means none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.config.building import NATIVE, built, notes, refused

from dragoman.config.dialect import entries_at
from dragoman.config.documents import parse
from dragoman.config.entries import build
from dragoman.errors import InvalidSpecError
from dragoman.model import Http, Sse, Stdio, Tls

pytestmark = pytest.mark.requirement(
    "excel-1.3",
    "excel-1.5",
    "kode-config.stdio",
    "kode-config.sse",
    "rrclaw-config.table",
    "otter-p0.config",
)


@pytest.mark.parametrize(
    ("fields", "expected", "noted"),
    [
        ({"command": "x"}, Stdio("x"), []),
        ({"type": "stdio", "command": "x"}, Stdio("x"), []),
        ({"type": "local", "command": "x"}, Stdio("x"), []),
        ({"type": "http", "url": "https://x"}, Http("https://x"), []),
        ({"type": "streamable-http", "url": "https://x"}, Http("https://x"), []),
        ({"transport": "streamable_http", "url": "https://x"}, Http("https://x"), []),
        ({"type": "StreamableHttp", "url": "https://x"}, Http("https://x"), []),
        ({"type": "remote", "url": "HTTPS://x"}, Http("HTTPS://x"), []),
        ({"type": "sse", "url": "https://x"}, Sse("https://x"), []),
        ({"url": "https://x/mcp"}, Http("https://x/mcp", alternate=True), ["transport url"]),
        ({"url": "https://x/sse"}, Sse("https://x/sse", alternate=True), ["transport url"]),
        ({"url": "https://x/sse/?a=/b#c"}, Sse("https://x/sse/?a=/b#c", alternate=True), ["transport url"]),
        ({"url": "https://x/assesse"}, Http("https://x/assesse", alternate=True), ["transport url"]),
        ({"url": "${URL}"}, Http("${URL}", alternate=True), ["transport url"]),
        (
            {"command": None, "url": "https://x", "type": None},
            Http("https://x", alternate=True),
            ["transport url"],
        ),
    ],
)
def test_the_transport_is_what_the_type_or_the_keys_say(
    fields: dict[str, Any], expected: Any, noted: list[str]
) -> None:
    spec = built(fields)
    assert spec.transport == expected
    assert notes(spec) == noted


@pytest.mark.parametrize(
    ("untyped", "expected"),
    [
        ("http", Http("https://x/sse")),
        ("sse", Sse("https://x/sse")),
        ("both", Http("https://x/sse", alternate=True)),
        ("auto", Sse("https://x/sse", alternate=True)),
    ],
)
def test_a_dialect_says_what_an_untyped_address_is(untyped: str, expected: Any) -> None:
    assert built({"url": "https://x/sse"}, untyped_url=untyped).transport == expected


@pytest.mark.parametrize(
    ("fields", "expected", "said"),
    [
        ({"type": "http", "alternate": True}, Http("https://x/sse", alternate=True), ""),
        ({"type": "sse", "alternate": True}, Sse("https://x/sse", alternate=True), ""),
        ({"alternate": False}, Sse("https://x/sse"), "the path ends in /sse: legacy SSE only"),
        ({"url": "https://x", "alternate": False}, Http("https://x"), "no type given: Streamable HTTP only"),
    ],
)
def test_an_entry_may_say_whether_the_other_kind_is_tried(
    fields: dict[str, Any], expected: Any, said: str
) -> None:
    spec = built({"url": "https://x/sse"} | fields)
    assert spec.transport == expected
    assert [note.message for note in spec.notes if said in note.message] == [
        note.message for note in spec.notes
    ]
    assert bool(spec.notes) == bool(said)


def test_an_entry_may_say_which_certificates_count() -> None:
    tls = {"ca": "~/ca.pem", "cert": "${C}/me.pem", "key": "me.key", "verify": False}
    spec = built({"type": "sse", "url": "https://x", "tls": tls})
    assert spec.transport == Sse(
        "https://x", tls=Tls(ca="~/ca.pem", cert="${C}/me.pem", key="me.key", verify=False)
    )
    assert not spec.notes


def test_certificates_for_a_plain_address_are_noted() -> None:
    spec = built({"type": "http", "url": "http://x", "tls": {}})
    assert spec.transport == Http("http://x", tls=Tls())
    assert notes(spec) == ["unused tls"]


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (True, "`tls` (line 6): expected an object, not true"),
        ({"verfy": False}, "`tls.verfy` (line 7): expected ca, cert, key or verify"),
        ({"verify": "no"}, "`tls.verify` (line 7): expected true or false, not 'no'"),
        ({"ca": ""}, "`tls.ca` (line 7): expected the path of a file"),
        ({"cert": 5}, "`tls.cert` (line 7): expected a text, not the number 5"),
        ({"key": "k.pem"}, "`tls.key` (line 7): a key needs its certificate: add `cert`"),
    ],
)
def test_wrong_certificates_are_a_problem(tls: Any, message: str) -> None:
    assert message in refused({"type": "http", "url": "https://x", "tls": tls}).message


def test_a_dialect_may_want_a_type() -> None:
    assert 'add "type": "http" or "sse"' in refused({"url": "https://x"}, untyped_url="error").message


def test_a_typed_address_may_be_tried_as_the_other_kind() -> None:
    assert built({"type": "sse", "url": "https://x"}, either_kind=True).transport == Sse(
        "https://x", alternate=True
    )
    assert built({"type": "http", "url": "https://x"}, either_kind=True).transport == Http(
        "https://x", alternate=True
    )


def test_sse_may_mean_streamable_http_first() -> None:
    spec = built({"transport": "sse", "url": "https://x"}, sse_is_http=True)
    assert spec.transport == Http("https://x", alternate=True)
    assert notes(spec) == ["transport transport"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a server needs a `command` (stdio) or a `url` (http, sse)"),
        ({"args": ["x"]}, "a server needs a `command`"),
        ({"command": "x", "url": "https://x"}, "both a `command` and a URL are given"),
        ({"type": "stdio"}, "a server of type `stdio` needs a `command`"),
        ({"type": "stdio", "command": "  "}, "a server of type `stdio` needs a `command`"),
        ({"type": "stdio", "command": []}, "a server of type `stdio` needs a `command`"),
        ({"type": "sse"}, "a server of type `sse` needs a `url`"),
        ({"type": "http", "url": ""}, "a server of type `http` needs a `url`"),
        ({"type": 5, "command": "x"}, "expected stdio, http or sse, not the number 5"),
        (
            {"type": "stdoi", "command": "x"},
            "`stdoi` is not stdio, http or sse; did you mean `stdio`?",
        ),
        ({"type": "zzz\n", "command": "x"}, "`zzz\\n` is not stdio, http or sse"),
        ({"type": "ws", "url": "wss://x"}, "WebSocket (`ws`) is not supported"),
        ({"type": "http", "url": "ftp://user:secret@x"}, "a URL that starts with http:// or https://"),
        ({"type": "http", "url": "secret"}, "a URL that starts with http:// or https://"),
        ({"type": "http", "url": ["secret"]}, "`url` (line 5): expected a text, not a list"),
        ({"command": "x\0"}, "it contains a NUL character"),
        ({"command": ["x", {}]}, "`command.1` (line 6): expected a text, not an object"),
        ({"command": {"path": "secret"}}, "expected a text, not an object"),
        ({"command": "x", "args": "secret"}, "expected a list of texts, not a text"),
        ({"command": "x", "args": ["a", None]}, "`args.1` (line 7): expected a text, not null"),
        ({"command": "x", "env": ["secret"]}, "expected an object of texts, not a list"),
        ({"command": "x", "env": {"A=secret": "1"}}, "a variable's name is empty, or contains `=`"),
        ({"command": "x", "env": {"": "secret"}}, "a variable's name is empty"),
        ({"command": "x", "cwd": 5}, "expected a text, not the number 5"),
        ({"command": "x", "inherit_env": "some"}, 'expected "safe", "all" or a list of names, not \'some\''),
        ({"url": "https://x", "headers": {"A": "secret\r\nB: c"}}, "contains a line break"),
        ({"url": "https://x", "headers": {" ": "secret"}}, "a header's name or value is empty"),
        ({"url": "https://x", "headers": 5}, "expected an object of texts, not a number"),
    ],
)
def test_what_is_wrong_with_a_transport_is_told_without_its_values(fields: Any, message: str) -> None:
    error = refused(fields)
    assert message in error.message
    assert "secret" not in str(error)
    assert "secret" not in repr(error)


def test_an_item_of_a_list_may_have_to_say_its_transport() -> None:
    document = parse('[{"name": "a", "command": "x"}]', "f.json", "json")
    with pytest.raises(InvalidSpecError, match="`transport` is missing"):
        build(entries_at(document, ())[0], NATIVE.replace(listed_need_transport=True), "user")
    assert built({"command": "x"}, listed_need_transport=True).kind == "stdio"


def test_a_child_process_has_all_its_fields() -> None:
    spec = built(
        {
            "command": ["npx", "-y"],
            "args": ["x", 5, 1.5, True],
            "env": {"A": "${B}", "N": 1, "F": False, "GONE": None},
            "cwd": "~/x",
            "envFile": ".env",
            "inherit_env": ["SSH_AUTH_SOCK"],
        }
    )
    assert spec.transport == Stdio(
        "npx",
        ["-y", "x", "5", "1.5", "true"],
        env={"A": "${B}", "N": "1", "F": "false", "GONE": None},
        cwd="~/x",
        env_file=[".env"],
        inherit_env=["SSH_AUTH_SOCK"],
    )
    assert notes(spec) == ["type args.3", "type env.F", "path cwd"]
    assert spec.lines["env.N"] == spec.lines["env"] + 2
    assert spec.lines["args.1"] == spec.lines["args"] + 2


@pytest.mark.parametrize("value", ["safe", "all"])
def test_the_environment_may_be_inherited(value: str) -> None:
    assert built({"command": "x", "inherit_env": value}).transport == Stdio("x", inherit_env=value)  # type: ignore[arg-type]


def test_a_command_with_spaces_is_not_split_but_noted() -> None:
    spec = built({"command": "npx -y x --token secret"})
    assert spec.transport == Stdio("npx -y x --token secret")
    assert notes(spec) == ["type command"]
    assert "secret" not in spec.notes[0].message
    assert notes(built({"command": "C:\\Program Files\\x.exe"})) == []
    assert notes(built({"command": "npx -y", "args": ["x"]})) == []


def test_keys_of_the_other_transport_are_kept_and_noted() -> None:
    spec = built({"type": "stdio", "command": "x", "url": "https://x", "headers": {}, "auth": "oauth"})
    assert notes(spec) == ["conflict url", "conflict headers", "conflict auth"]
    assert set(spec.extras) == {"url", "headers", "auth"}
    assert spec.auth is None
    other = built({"type": "sse", "url": "https://x", "command": "y", "cwd": "/", "env": 5})
    assert notes(other) == ["conflict command", "conflict env", "conflict cwd"]


def test_a_null_header_is_left_out() -> None:
    assert built({"type": "sse", "url": "https://x", "headers": {"A": None, "B": 5}}).transport == Sse(
        "https://x", headers={"B": "5"}
    )
