"""What every dialect has in common: the checks, the messages, the notes, the places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import NATIVE, built, entry, notes, refused

from dragoman.config.dialect import entries_at
from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.entries import build
from dragoman.errors import InvalidSpecError
from dragoman.model import Auth, ServerSpec, Sse, Stdio
from dragoman.visible import is_visible

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

pytestmark = pytest.mark.requirement(
    "excel-1.3",
    "excel-1.4",
    "excel-1.5",
    "excel-1.6",
    "kode-config.stdio",
    "kode-config.sse",
    "rrclaw-config.table",
    "rrclaw-config.allowed",
    "otter-p0.config",
)


def test_an_entry_has_its_origin() -> None:
    origin = built({"command": "x"}).origin
    assert (origin.source, origin.line, origin.dialect, origin.scope, origin.pointer) == (
        "f.json",
        3,
        "dragoman",
        "user",
        "mcpServers.s",
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "null"), (5, "a number"), ("secret", "a text"), ([], "a list"), (True, "true")],
)
def test_what_is_no_object_is_no_server(value: Any, shown: str) -> None:
    error = refused(value)
    assert error.message == f"server `s` is skipped: expected an object that describes a server, not {shown}"


def test_what_holds_no_servers_says_so() -> None:
    document = parse('{"mcpServers": "secret"}', "f.json", "json")
    with pytest.raises(InvalidSpecError, match="expected a map or a list of servers, not a text") as caught:
        build(entries_at(document, ("mcpServers",))[0], NATIVE, "user")
    assert caught.value.location == "f.json:1: mcpServers"


@pytest.mark.parametrize("name", ["", "  "])
def test_a_server_needs_a_name(name: str) -> None:
    assert "a server needs a name" in refused({"command": "x"}, name).message


@pytest.mark.parametrize("name", ["a\x1b[31m\nb", "files\u3164", "files\ufe0f", "files\u2800"])
def test_a_name_without_an_invisible_character(name: str) -> None:
    error = refused({"command": "x"}, name)
    assert "the server's name has invisible characters" in error.message
    assert is_visible(str(error))


def test_a_name_may_have_spaces_dots_marks_and_any_script() -> None:
    for name in ("Team Wiki", "a.b", "#1", "服务器"):
        assert build(entry({"command": "x"}, name), NATIVE, "user").name == name


def test_every_problem_is_told_at_once_and_the_first_one_has_the_place() -> None:
    error = refused({"command": "x", "args": 5, "env": {"A": {}}, "lazy": "yes", "timeout": -1})
    assert len(error.problems) == 4
    assert error.pointer == "mcpServers.s.args"
    for part in ("`args` (line 5)", "`env.A` (line 7)", "`lazy` (line 9)", "`timeout` (line 10)"):
        assert part in error.message


# Keys


def test_nulls_are_nothing_at_all() -> None:
    fields = dict.fromkeys(NATIVE.keys)
    assert built({**fields, "command": "x"}) == built({"command": "x"}).replace(
        lines=built(fields | {"command": "x"}).lines
    )


def test_unknown_keys_are_kept_and_noted_with_a_guess() -> None:
    spec = built(
        {"command": "x", "argz": [1], "_comment": "c", "$schema": "s", "//": "c", "autoApprove": ["*"]}
    )
    assert spec.extras == {"argz": [1], "_comment": "c", "$schema": "s", "//": "c", "autoApprove": ["*"]}
    assert notes(spec) == ["unknown argz", "unused autoApprove"]
    assert "did you mean `args`?" in spec.notes[0].message


def test_of_two_spellings_the_first_counts() -> None:
    spec = built({"transport": "sse", "type": "http", "url": "https://x"})
    assert spec.transport == Sse("https://x")
    assert notes(spec) == ["conflict type"]
    assert spec.extras == {"type": "http"}


def test_a_name_inside_a_named_entry_is_kept_where_it_differs() -> None:
    assert built({"command": "x", "name": "s"}).extras == {}
    assert built({"command": "x", "name": "other"}).extras == {"name": "other"}


# Rules


@pytest.mark.requirement("otter-concurrency")
def test_every_rule_is_read() -> None:
    spec = built(
        {
            "command": "x",
            "required": True,
            "lazy": True,
            "reconnect": False,
            "replace": "stop-first",
            "denied_tools": "rm",
            "max_concurrency": 2,
            "naming": "{tool}",
            "fallback": ["a", "b"],
            "trust": "strict",
            "trust_annotations": True,
            "protocol": "modern",
            "title": "T",
            "description": "D",
            "health_check_interval": "1m",
            "parallel": True,
            "coerce_arguments": False,
            "max_message_bytes": "2MiB",
            "attribution": {"title": "/results/*/a~1b", "source": "", "url": None},
        }
    )
    assert spec == ServerSpec(
        "s",
        Stdio("x"),
        required=True,
        lazy=True,
        reconnect=False,
        replacement="stop-first",
        denied_tools=["rm"],
        max_concurrency=2,
        naming="{tool}",
        fallback=["a", "b"],
        trust="strict",
        trust_annotations=True,
        protocol="modern",
        title="T",
        description="D",
        health_check_interval=60.0,
        parallel=True,
        coerce_arguments=False,
        max_message_bytes=2 * 1024 * 1024,
        attribution={"title": "/results/*/a~1b", "source": ""},
    ).replace(
        origin=spec.origin,
        lines=spec.lines,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lazy": "yes"}, "expected true or false, not 'yes'"),
        ({"max_concurrency": 0}, "expected a whole number above zero, not the number 0"),
        ({"max_concurrency": True}, "expected a whole number above zero, not true"),
        ({"replace": "now"}, "expected one of start-first, stop-first, not 'now'"),
        ({"trust": 5}, "expected one of warn, ask, strict, off, not the number 5"),
        ({"naming": "{server}"}, "{tool} is missing"),
        ({"naming": 5}, "expected a text"),
        ({"fallback": 5}, "expected a list of texts"),
        ({"timeouts": 5}, "expected an object, not the number 5"),
        ({"timeouts": {"total": 5}}, "`timeouts.total` (line 6): expected connect, call or idle"),
        ({"timeouts": {"call": "soon"}}, "`timeouts.call` (line 6): expected a duration"),
        ({"health_check_interval": 0}, "expected a duration above zero"),
        ({"enabled": "no"}, "expected true or false"),
        ({"parallel": 1}, "`parallel` (line 5): expected true or false, not the number 1"),
        ({"coerce_arguments": "all"}, "`coerce_arguments` (line 5): expected true or false, not 'all'"),
        (
            {"max_message_bytes": "much"},
            "`max_message_bytes` (line 5): expected a size in bytes above zero, such as",
        ),
        ({"attribution": "/a"}, "`attribution` (line 5): expected an object, not '/a'"),
        ({"attribution": {"author": "/a"}}, "`attribution.author` (line 6): expected one of source, title"),
        ({"attribution": {"title": "a.b"}}, "`attribution.title` (line 6): expected a JSON pointer such as"),
        ({"attribution": {"title": "/a~2"}}, "expected a JSON pointer such as /results/*/title, not '/a~2'"),
        ({"attribution": {"title": 5}}, "`attribution.title` (line 6): expected a text, not the number 5"),
        ({"log_file": " "}, "`log_file` (line 5): expected the path of a file"),
    ],
)
def test_a_wrong_rule_is_a_problem(fields: dict[str, Any], message: str) -> None:
    assert message in refused({"command": "x"} | fields).message


@pytest.mark.parametrize(
    ("fields", "enabled", "noted"),
    [
        ({}, True, []),
        ({"enabled": False}, False, []),
        ({"disabled": True}, False, []),
        ({"disabled": False}, True, []),
        ({"enabled": True, "disabled": False}, True, []),
        ({"enabled": True, "disabled": True}, False, ["conflict disabled"]),
        ({"enabled": False, "disabled": False}, False, ["conflict disabled"]),
    ],
)
def test_a_server_that_is_switched_off_anywhere_is_off(
    fields: dict[str, Any], enabled: bool, noted: list[str]
) -> None:
    spec = built({"command": "x"} | fields)
    assert (spec.enabled, notes(spec)) == (enabled, noted)


@pytest.mark.parametrize(
    ("value", "all_allowed", "expected"),
    [
        (None, False, None),
        ([], False, ()),
        ([], True, None),
        (["a", "b_*"], True, ("a", "b_*")),
        ("a", False, ("a",)),
        (["a", "*"], False, None),
    ],
)
def test_the_allow_list_means_what_the_dialect_means(value: Any, all_allowed: bool, expected: Any) -> None:
    spec = built({"command": "x", "allowed_tools": value}, empty_allows_all=all_allowed)
    assert spec.allowed_tools == expected


# Time


def test_time_outs_are_seconds() -> None:
    spec = built(
        {"command": "x", "timeout": 20, "connect_timeout": "500ms", "timeouts": {"idle": "1h", "call": 9}}
    )
    assert spec.timeouts == {"call": 20.0, "connect": 0.5, "idle": 3600.0}
    assert notes(spec) == []


def test_a_unit_that_hosts_disagree_about_is_decided_by_the_value_and_noted() -> None:
    portable = dialect("mcp-json")
    long, short = (
        build(entry({"command": "x", "timeout": value}), portable, "user") for value in (60000, "45")
    )
    assert (long.timeouts, short.timeouts) == ({"call": 60.0}, {"call": 45.0})
    assert 'milliseconds: write "60s"' in long.notes[0].message
    assert 'seconds: write "45s"' in short.notes[0].message
    assert notes(build(entry({"command": "x", "timeout": "45s"}), portable, "user")) == []


def test_milliseconds_are_noted() -> None:
    spec = built({"command": "x", "requestTimeout": 2500})
    assert spec.timeouts == {"call": 2.5}
    assert spec.notes[0].message == "2500 is in milliseconds here: 2.5 s"
    assert notes(built({"command": "x", "requestTimeout": "2s"})) == []


# Login


def test_a_login_may_be_one_word() -> None:
    assert built({"type": "http", "url": "https://x", "auth": "none"}).auth == Auth(mode="none")
    assert (
        "expected one of auto, none, oauth, not a text"
        in refused({"url": "https://x", "auth": "secret"}).message
    )


def test_a_login_is_read_with_its_templates() -> None:
    table = {
        "client_id": "${ID}",
        "client_secret": "${SECRET}",
        "scopes": ["a", "b"],
        "callback_port": 8080,
        "redirect_uri": "http://localhost/cb",
        "metadata_url": "https://id",
        "resource": "https://x",
        "realm": "r",
        "mode": None,
    }
    spec = built({"type": "http", "url": "https://x", "auth": table})
    assert spec.auth == Auth(
        mode="oauth",
        client_id="${ID}",
        client_secret="${SECRET}",
        scopes=("a", "b"),
        callback_port=8080,
        redirect_uri="http://localhost/cb",
        metadata_url="https://id",
        resource="https://x",
    )
    assert spec.extras == {"auth": {"realm": "r"}}
    assert notes(spec) == ["unused auth"]


def test_a_login_of_a_program_is_read() -> None:
    login = {
        "grant": "client_credentials",
        "client_auth": "private_key_jwt",
        "private_key": "${KEY}",
        "signing_algorithm": "ES256",
        "issuer": "https://${HOST}",
        "client_metadata_url": "https://me.example/client.json",
        "hosts": ["idp.internal"],
        "store": "keyring",
        "mode": "auto",
    }
    spec = built({"type": "http", "url": "https://x", "auth": login})
    assert spec.auth == Auth(**(login | {"hosts": ("idp.internal",)}))
    assert not spec.extras


def test_scopes_may_be_one_text() -> None:
    auth = built({"type": "http", "url": "https://x", "auth": {"scopes": "a  b", "mode": "auto"}}).auth
    assert auth == Auth(mode="auto", scopes=("a", "b"))


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (5, "expected an object, not a number"),
        ({"mode": "secret"}, "`auth.mode` (line 7): expected one of auto, none, oauth, not a text"),
        ({"scopes": 5}, "`auth.scopes` (line 7): expected a list of texts, not a number"),
        ({"scopes": [{}]}, "`auth.scopes` (line 7): expected a text, not an object"),
        ({"callback_port": "secret"}, "`auth.callback_port` (line 7): expected a whole number"),
        ({"client_secret": ["secret"]}, "`auth.client_secret` (line 7): expected a text, not a list"),
    ],
)
def test_a_wrong_login_is_a_problem_without_its_values(auth: Any, message: str) -> None:
    error = refused({"type": "http", "url": "https://x", "auth": auth})
    assert message in error.message
    assert "secret" not in str(error).replace("client_secret", "")


# Translations


def test_a_translation_may_find_problems_and_set_keys_aside() -> None:
    def translate(found: Entry) -> None:
        found.set_aside("cwd")
        found.problems.append(("args", "too many"))

    error = refused({"command": "x", "args": [], "cwd": 5}, translate=translate)
    assert error.message == "server `s` is skipped: `args` (line 5): too many"


def test_a_key_that_was_set_aside_is_kept_under_its_own_name() -> None:
    spec = built({"command": "x", "cwd": 5}, translate=lambda found: found.set_aside("cwd"))
    assert spec.extras == {"cwd": 5}
    assert notes(spec) == []
