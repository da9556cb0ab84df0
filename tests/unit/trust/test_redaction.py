"""Known secrets disappear in any dress; ordinary words stay."""

from __future__ import annotations

import base64
import html
import json
import pickle
import quopri
import re
import string
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import AuthRequiredError, ConnectError, ProtocolError, printable
from dragoman.model import Auth, Http, ServerSpec, Sse, Stdio
from dragoman.trust.error_masking import mask_error
from dragoman.trust.masking import MASK, mask_text
from dragoman.trust.redaction import (
    MAX_PASSING,
    Redactor,
    hidden_parts,
    is_secret,
    secret_values,
    spec_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ODD = 'pa"ss\\wörd @/&<é>\n2'
DRESSES = {
    "plain": lambda value: value,
    "json": json.dumps,
    "json as it is": lambda value: json.dumps(value, ensure_ascii=False),
    "json in json": lambda value: json.dumps(json.dumps(value)),
    "repr": repr,
    "percent": lambda value: quote(value, safe=""),
    "percent with slashes": quote,
    "lower percent": lambda value: quote(value, safe="").lower() if value.islower() else quote(value),
    "form": quote_plus,
    "html": html.escape,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 url": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "basic": lambda value: base64.b64encode(b"user:" + value.encode()).decode(),
    "inside base64": lambda value: base64.b64encode(b"x" + value.encode() + b"yz").decode(),
    "hex": lambda value: value.encode().hex(),
    "base64 in lines of 64": lambda value: wrapped(base64.b64encode(BEFORE + value.encode() + AFTER), 64),
    "base64 in lines of 76": lambda value: wrapped(
        base64.b64encode(BEFORE + value.encode() + AFTER), 76, "\r\n"
    ),
    "base64 in short lines": lambda value: wrapped(base64.b64encode(value.encode()), 5, "\n    "),
    "base64 in groups": lambda value: wrapped(base64.urlsafe_b64encode(value.encode()), 4, " "),
    "base64 in lines in JSON": lambda value: json.dumps(wrapped(base64.b64encode(value.encode()), 7)),
    "base64 in quoted lines": lambda value: wrapped(base64.b64encode(value.encode()), 9, '" +\n  "'),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "base32 in lines": lambda value: wrapped(base64.b32encode(value.encode()).lower(), 11),
    "upper hex": lambda value: value.encode().hex().upper(),
    "mixed hex": lambda value: "".join(
        one.upper() if at % 3 else one for at, one in enumerate(value.encode().hex())
    ),
    "hex with colons": lambda value: value.encode().hex(":"),
    "hex as numbers": lambda value: ", ".join(f"0x{byte:02X}" for byte in value.encode()),
    "hex in lines": lambda value: wrapped(value.encode().hex().encode(), 10),
    "each percent": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    "each percent mixed": lambda value: "".join(
        f"%{byte:02x}" if byte % 2 else f"%{byte:02X}" for byte in value.encode()
    ),
    "each percent twice": lambda value: "".join(f"%25{byte:02x}" for byte in value.encode()),
    "some percent": lambda value: "".join(
        f"%{byte:02x}" if byte % 2 or byte == 0x25 else chr(byte) for byte in value.encode()
    ),
    "each percent of JavaScript": lambda value: "".join(f"%u{unit:04x}" for unit in units(value)),
    "each byte": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "each letter": lambda value: "".join(f"\\u{unit:04x}" for unit in units(value)),
    "each letter in JSON": lambda value: json.dumps("".join(f"\\u{unit:04X}" for unit in units(value))),
    "each letter in braces": lambda value: "".join(f"\\u{{{ord(one):x}}}" for one in value),
    "each long letter": lambda value: "".join(f"\\U{ord(one):08x}" for one in value),
    "each octal": lambda value: "".join(f"\\{byte:03o}" for byte in value.encode()),
    "each entity": lambda value: "".join(f"&#{ord(one)};" for one in value),
    "each hex entity": lambda value: "".join(f"&#x{ord(one):04X};" for one in value),
    "entities by name": lambda value: (
        value.replace("&", "&amp;").replace("<", "&lt;").replace("/", "&sol;").replace("é", "&eacute;")
    ),
    "each quoted printable": lambda value: "".join(f"={byte:02X}" for byte in value.encode()),
    "quoted printable": lambda value: quopri.encodestring(value.encode(), quotetabs=True).decode("latin-1"),
    "quoted printable in lines": lambda value: "=\r\n".join(
        quopri.encodestring(value[at : at + 4].encode()).decode("latin-1") for at in range(0, len(value), 4)
    ),
    "escaped for a pattern": re.escape,
    "each letter by its number": lambda value: " ".join(f"U+{ord(one):04X}" for one in value).replace(
        " ", ""
    ),
    "each octal of echo": lambda value: "".join(f"\\0{byte:03o}" for byte in value.encode()),
    "each long entity": lambda value: "".join(f"&#{ord(one):020};" for one in value),
    "invisible between": "\u200b".join,
    "tags and joiners between": "\U000e0041\u200d".join,
    "colors between": "\x1b[1;31m".join,
    "colors between, made printable": lambda value: printable("\x1b[1;31m\u200b".join(value)),
    "escaped colors between": lambda value: "\\u001b[0m".join(json.dumps(one)[1:-1] for one in value),
    "a link between": lambda value: f"{value[:4]}\x1b]8;;http://x\x07{value[4:]}",
    "UTF-16": "\0".join,
    "UTF-16 in base64": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "UTF-16 of the other order in base64": lambda value: base64.b64encode(
        f"x{value}".encode("utf-16-be")
    ).decode(),
    "UTF-16 in hex": lambda value: value.encode("utf-16-be").hex(),
    "a list of bytes": lambda value: str(list(value.encode())),
    "inside base32": lambda value: base64.b32encode(b"xy" + value.encode() + b"z").decode(),
}
PIECES = {
    "upper": str.upper,
    "lower": str.lower,
    "letters in lines": "\n".join,
    "letters of a list": lambda value: str(list(value)),
    "in thirds": lambda value: wrapped(value.encode(), 8, '" + "'),
    "wide": lambda value: "".join(chr(ord(one) + 0xFEE0) for one in value),
    "bold": lambda value: "".join(
        chr(0x1D41A + ord(one) - 97) if one.islower() and one.isascii() else one for one in value
    ),
}
"""For values of many letters and digits."""
BEFORE, AFTER = b'{"user":"someone who has a name","secret":"', b'"} and a few words more'


def units(text: str) -> list[int]:
    """Return the units of a text in UTF-16."""
    data = text.encode("utf-16-le")
    return [low + 256 * high for low, high in zip(data[::2], data[1::2], strict=True)]


def wrapped(data: bytes, width: int, between: str = "\n") -> str:
    text = data.decode()
    return between.join(text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.parametrize("name", DRESSES)
@pytest.mark.parametrize("value", [ODD, "correct-horse-battery", "x" * 12 + "y", "schlüssel-😀-42"])
def test_a_value_is_masked_in_every_dress(value: str, name: str) -> None:
    worn = DRESSES[name](value)  # type: ignore[operator]
    masked = Redactor([value]).mask_known(f"before {worn} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    # Base64 shares its first and last characters with the neighbours; what stays holds less than two bytes.
    around = 2 * (len(BEFORE) + len(AFTER)) if "base64 in lines of" in name else 0
    assert len(masked.replace(MASK, "")) <= len("before  after") + 12 + around
    assert value not in masked
    assert not Redactor([value]).holds(masked)
    assert Redactor([value]).mask_known(masked) == masked


@pytest.mark.parametrize("dress", PIECES.values(), ids=PIECES)
def test_a_long_value_is_masked_in_pieces_and_in_any_case(dress: Callable[[str], str]) -> None:
    value = "hK7-pQz2.Lm9/Xw4+Vt6=Nb5"
    masked = Redactor([value]).mask_known(f"before {dress(value)} after")
    assert MASK in masked
    assert len(masked) < len(f"before {MASK} after") + 8
    # Words are in many texts.
    text = "see /my/company/data/exports"
    assert Redactor(["my-company-data-exports"]).mask_known(text) == text


@given(
    st.lists(st.text(string.ascii_lowercase + '"\\ ü%', min_size=9, max_size=20), min_size=1, max_size=5),
    st.text(max_size=30),
    st.sampled_from(sorted(DRESSES)),
)
def test_no_value_stays_whatever_stands_around(values: list[str], around: str, dress: str) -> None:
    redactor = Redactor(values)
    kept = [value.strip() for value in values if is_secret(value, "token")]
    text = around.join(DRESSES[dress](value) for value in values)  # type: ignore[operator]
    masked = redactor.mask_known(around + text + around)
    assert not redactor.holds(masked)
    assert not any(value in masked for value in kept)


def test_overlapping_values_leave_no_half() -> None:
    assert Redactor(["abcdef", "defghi"]).mask_known("<abcdefghi>") == f"<{MASK}>"
    assert Redactor(["abab"]).mask_known("<ababab>") == f"<{MASK}>"
    assert Redactor(["abcdef"]).mask_known("abcdefabcdef") == MASK
    assert Redactor(["abcdef", "uvwxyz"]).mask_known("abcdef, uvwxyz") == f"{MASK}, {MASK}"


def test_the_lines_of_a_private_key_are_masked_one_by_one() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----"
    redactor = Redactor([key])
    assert redactor.mask("line BAQEFAASCBKcwggSjAgEAAo end") == f"line {MASK} end"
    assert mask_text(f"it is {key} there") == f"it is {MASK} there"
    assert mask_text(f"cut {key[:60]}") == f"cut {MASK}"


@pytest.mark.parametrize(
    ("value", "name", "secret"),
    [
        ("true", "TOKEN", False),
        ("abc", "TOKEN", False),
        ("ab1z", "TOKEN", True),
        ("ab1z", "MODE", False),
        ("production", "MODE", False),
        ("1234567", "PORT", False),
        ("123456", "PIN_CODE", False),
        ("123456", "PASSWORD", True),
        ("12345678", "ACCOUNT", True),
        ("/srv/data/files", "DATA", False),
        ("~/data", "DATA", False),
        ("C:\\data\\x", "DATA", False),
        ("/srv/secret-name", "API_KEY", True),
        ("api.example.org", "HOST", False),
        ("192.168.100.200", "HOST", False),
        ("https://example.org/x", "URL", False),
        ("application/json", "Accept", False),
        ("hunter2-canary", "FOO", True),
    ],
)
def test_what_is_worth_masking(value: str, name: str, secret: bool) -> None:
    assert is_secret(value, name) is secret


def test_values_of_a_command() -> None:
    stdio = Stdio(
        "server",
        [
            "--token",
            "tok-arg",
            "--db=postgres://joe:pg%20pass@h/db",
            "API_KEY=key-arg",
            "--verbose",
            "/data/dir",
        ],
        env={
            "A": "/data",
            "B": "something-odd",
            "LEVEL": "debug",
            "AUTH": "Bearer in-the-auth",
            "GONE": None,
        },
    )
    inherited = {"HOME": "/home/joe", "GH_TOKEN": "inherited-token", "EDITOR": "something-else"}
    assert secret_values(stdio, inherited) >= {
        "tok-arg",
        "pg%20pass",
        "key-arg",
        "something-odd",
        "in-the-auth",
        "inherited-token",
    }
    assert not secret_values(stdio, inherited) & {
        "/data",
        "debug",
        "something-else",
        "/data/dir",
        "--verbose",
    }


@pytest.mark.parametrize("kind", [Http, Sse])
def test_values_of_an_address(kind: type[Http | Sse]) -> None:
    url = "https://joe:p%40ssword@h.io/mcp?api_key=qq%20qq&region=eu&key=/a/b#fragment1"
    found = secret_values(
        kind(url, headers={"Authorization": "Bearer header-token", "Accept": "application/json"})
    )
    assert found >= {"p%40ssword", "p@ssword", "qq%20qq", "qq qq", "/a/b", "header-token", "fragment1"}
    assert not found & {"eu", "application/json", "h.io"}


def test_values_of_a_spec_are_literals_only() -> None:
    spec = ServerSpec(
        "x",
        Http(
            "https://h.io/?key=${KEY}", headers={"X-Key": "literal-value", "Authorization": "Bearer ${TOKEN}"}
        ),
        auth=Auth(client_secret="client-literal", idp_client_secret="provider-literal"),
    )
    assert spec_values(spec) == {"literal-value", "client-literal", "provider-literal"}


def test_hidden_parts_are_what_the_mask_stands_for() -> None:
    assert hidden_parts("a=secret&b=other", f"a={MASK}&b={MASK}") == ["secret", "other"]
    assert hidden_parts("same", "same") == []
    assert hidden_parts("odd", f"even{MASK}") == ["odd"]
    assert hidden_parts("password='two words'", f"password={MASK}") == ["'two words'", "two words"]


@pytest.mark.parametrize(
    "argument",
    [
        '{"apiKey":"tok-arg-1"}',
        '--config={"level": 3,"env":{"X":"tok-arg-1"}}',
        "{apiKey: 'tok-arg-1'}",
        "host=h password='tok-arg-1'",
        " --token=tok-arg-1",
    ],
)
def test_a_value_in_quotes_is_known_without_them(argument: str) -> None:
    found = secret_values(Stdio("x", [argument]))
    assert "tok-arg-1" in found
    assert Redactor(found).mask("bad key tok-arg-1, level 3") == f"bad key {MASK}, level 3"


def test_a_redactor_shows_none_of_its_values() -> None:
    redactor = Redactor(["very-secret-value", "abc"])
    assert repr(redactor) == "Redactor(1 values)"
    assert len(redactor) == 1
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(redactor)


def test_values_come_in_later() -> None:
    redactor = Redactor()
    assert redactor.mask("late-value") == "late-value"
    redactor.add(["late-value"])
    redactor.add(["late-value"])
    assert redactor.mask("late-value") == MASK
    assert redactor.holds("x late-value x")
    assert not redactor.holds("nothing")


def test_an_error_and_what_caused_it_lose_their_secrets() -> None:
    cause = FileNotFoundError(2, "no such file very-secret-value", "/x/very-secret-value")
    group = ExceptionGroup("very-secret-value", [ValueError("inner very-secret-value", b"very-secret-value")])
    error = ConnectError(
        "failed: very-secret-value",
        server="fs",
        stage="spawn",
        stderr_tail="very-secret-value",
        hint="very-secret-value",
    )
    error.__cause__ = cause
    cause.__context__ = group
    group.__context__ = error  # a circle ends
    mask_error(error, Redactor(["very-secret-value"]))
    shown = [repr(error), str(error), repr(vars(error)), repr(cause), str(cause), repr(group.exceptions)]
    assert not any("very-secret-value" in text for text in shown)
    assert error.server == "fs"
    assert str(cause) == f"[Errno 2] no such file {MASK}: '/x/{MASK}'"


@pytest.mark.parametrize(
    "token",
    [
        "gsk_" + "a1" * 20,
        "SG." + "a" * 22 + "." + "b" * 43,
        "glpat-" + "x" * 20,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "eyJhbGciOiJSU0EtT0FFUCJ9.a.b.c.d",
        "1234567890:AAabcdefghijklmnopqrstuvwxyz0123456",
        "GOCSPX-" + "a" * 28,
        "dop_v1_" + "a1" * 32,
        "shpat_" + "a1" * 16,
    ],
)
def test_more_shapes_of_tokens_are_known(token: str) -> None:
    assert mask_text(f"got {token} here") == f"got {MASK} here"


@pytest.mark.parametrize(
    "text",
    [
        "a." * 60_000 + "://",
        "-eyJ" * 30_000,
        "-----BEGIN PRIVATE KEY-----" * 4_000,
        "xoxb.a" * 20_000,
        '"a":"' * 20_000,
    ],
    ids=lambda text: text[:10],
)
def test_hostile_text_is_masked_in_time(text: str) -> None:
    # Each of these once took minutes or would with a careless pattern; the suite's time limit is the judge.
    assert len(mask_text(text)) <= len(text) + 1000


def test_what_was_cut_within_a_value_is_masked_too() -> None:
    redactor = Redactor(["qX7pL0vR2mKd9ZtB4wNc", "h7nter-2x9"])
    assert redactor.mask("…vR2mKd9ZtB4wNc and on") == f"…{MASK} and on"
    assert redactor.mask("it said qX7pL0vR2mKd9Zt") == f"it said {MASK}"
    assert redactor.mask("it said qX7pL0vR2mKd9Zt… and h7nter-") == f"it said {MASK}… and {MASK}"
    # What is left of a value is short then.
    assert redactor.mask("it said qX7pL0v") == "it said qX7pL0v"


def test_a_word_at_the_beginning_of_a_value_is_no_secret() -> None:
    redactor = Redactor(["production-7x", "Warehouse-North-1"])
    assert redactor.mask("the production of Warehouse goods") == "the production of Warehouse goods"
    assert redactor.mask("in production-7x") == f"in {MASK}"


def test_a_masked_text_is_remembered_until_a_value_comes() -> None:
    redactor = Redactor()
    assert redactor.mask("say qX7pL0vR2m") == redactor.mask("say qX7pL0vR2m") == "say qX7pL0vR2m"
    redactor.add(["qX7pL0vR2m"])
    assert redactor.mask("say qX7pL0vR2m") == f"say {MASK}"


def test_data_of_an_error_and_the_words_of_a_tool() -> None:
    redactor = Redactor(["qX7pL0vR2m"])
    link = "https://example.com/?page=2"
    error = ProtocolError(f"{link} qX7pL0vR2m", data={"qX7pL0vR2m": [{"why": "qX7pL0vR2m"}]})
    mask_error(error, redactor, only_known=True)
    assert str(error) == f"{link} {MASK}"
    assert error.data == {MASK: [{"why": MASK}]}
    mask_error(error, redactor)
    assert str(error) == f"https://example.com/?page={MASK} {MASK}"
    login = AuthRequiredError("log in", server="s", url="https://id.example/?state=abc&x=qX7pL0vR2m")
    mask_error(login, redactor)
    assert login.url == f"https://id.example/?state=abc&x={MASK}"


def test_values_that_pass_are_masked_until_so_many_others_have_passed() -> None:
    redactor = Redactor(["s3cret-that-stays"])
    redactor.add_passing(["first-passing-one"])
    assert redactor.mask_known("first-passing-one s3cret-that-stays") == f"{MASK} {MASK}"
    for number in range(MAX_PASSING - 1):
        redactor.add_passing([f"passing-{number:04}-value"])
    assert redactor.holds("first-passing-one")
    # A value that is used again is the newest again.
    redactor.add_passing(["first-passing-one"])
    redactor.add_passing(["the-last-straw-here"])
    assert redactor.holds("first-passing-one")
    assert not redactor.holds("passing-0000-value")
    assert redactor.holds("s3cret-that-stays")


def test_a_value_that_changes_with_every_call_takes_no_more_room() -> None:
    redactor = Redactor()
    for number in range(1_000):
        redactor.add_passing([f"token-{number:06}-abcdef"])
        if number % 100 == 0:
            assert redactor.mask_known(f"with token-{number:06}-abcdef") == f"with {MASK}"
    assert len(redactor) == MAX_PASSING
    assert (
        sum(1 for kind in ("text", "packed", "digits") for _ in redactor._all_forms(kind)) < MAX_PASSING * 40
    )


def test_a_text_that_was_masked_before_is_masked_anew_once_a_value_passes() -> None:
    redactor = Redactor()
    text = "the value is plain-looking-v4lue"
    assert redactor.mask(text) == text
    redactor.add_passing(["plain-looking-v4lue"])
    assert redactor.mask(text) == f"the value is {MASK}"


def test_what_is_known_for_good_does_not_pass() -> None:
    redactor = Redactor(["known-for-g00d"])
    redactor.add_passing(["known-for-g00d", "true", "abc"])
    assert len(redactor) == 1


def test_values_that_several_threads_add_are_all_known() -> None:
    redactor, start = Redactor(), threading.Barrier(8)

    def add(number: int) -> None:
        start.wait()
        for turn in range(20):
            redactor.add([f'value-{number}-{turn}-"ä%', f"shared-value-{turn}-x"])
            redactor.mask_known("something else")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [f'value-{number}-{turn}-"ä%' for number in range(8) for turn in range(20)]
    values += [f"shared-value-{turn}-x" for turn in range(20)]
    assert [value for value in values if redactor.mask_known(value) != MASK] == []
    assert len(redactor) == len(values)


def test_the_working_folder_and_what_desktops_set_are_no_secrets() -> None:
    env = {"PWD": "/home/li/project", "XDG_SESSION_TYPE": "wayland", "MY_PWD": "hunter2-hunter2"}
    assert secret_values(Stdio("x"), env) == {"hunter2-hunter2"}


# ── Paths under sensitive names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/work/sa.json"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("TOKEN_FILE", "secrets/token.txt"),
        ("TOKEN_FILE", "token.txt"),
        ("SSH_PRIVATE_KEY_PATH", "~/.ssh/id_ed25519"),
        ("ssh-private-key-path", "./keys/id rsa.pem"),
        ("PRIVATE_KEY_PATH", "C:\\Users\\me\\key.pem"),
        ("SECRETS_DIR", "/home/me/My Secrets/now"),
        ("AWS_SHARED_CREDENTIALS_FILE", "../aws/credentials"),
        ("apiKeyFile", "/home/me/keys/a"),
        ("CREDENTIALS", "/home/me/keys/g.json"),
    ],
)
def test_a_path_under_a_name_for_one_is_no_secret(name: str, value: str) -> None:
    for found in (secret_values(Stdio("x", env={name: value})), secret_values(Stdio("x"), {name: value})):
        assert found == set()
    assert not is_secret(value, name)
    assert spec_values(ServerSpec("x", Stdio("x", env={name: value})), on_disk=False) == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_CREDENTIALS", "joe:hunter2hunter2"),
        ("DB_CREDENTIALS", "joe.hunter2"),
        ("DB_CREDENTIALS", "/s3cr3t!"),
        ("AWS_CREDENTIALS", "AKIDEXAMPLE/wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("API_CREDENTIALS", "/9fK2xQ7vB4mN8pL0wRt/aB3dE5gH"),
        ("TOKEN_FILE", "ghp_abcdefghijklmnopqrstuvwxyz0123"),
        ("TOKEN_FILE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"),
        ("API_KEY", "/srv/secret-name"),
        ("API_KEY", "word"),
        ("PASSWORD", "//host/share"),
        ("KEY_PATH", "\\\\host\\share\\key.pem"),
        ("PROFILE_TOKEN", "/home/me/none.json"),
    ],
)
def test_everything_else_under_a_sensitive_name_is_secret(name: str, value: str) -> None:
    assert value in secret_values(Stdio("x", env={name: value}))
    assert value in secret_values(Stdio("x"), {name: value})


def test_a_path_that_exists_is_no_secret_under_any_name(tmp_path: Path) -> None:
    key = tmp_path / "my key"
    key.write_text("x", "utf-8")
    entry = Stdio("x", ["--private-key", str(key)], env={"PRIVATE_KEY": str(key), "API_TOKEN": f"{key}-none"})
    assert secret_values(entry, {"GH_TOKEN": str(tmp_path)}) == {f"{key}-none", f"{tmp_path}/my", "key-none"}
    # Before an entry is approved, its values are not looked up.
    assert str(key) in spec_values(ServerSpec("x", entry), on_disk=False)
    # An address or a header is none.
    remote = Http(f"https://h.io/?key={tmp_path}", headers={"X-Api-Key": str(tmp_path)})
    assert secret_values(remote) == {str(tmp_path)}


def test_the_folders_of_a_path_stay_readable_in_errors() -> None:
    env = {"GOOGLE_APPLICATION_CREDENTIALS": "/home/me/w/sa.json", "TOKEN_FILE": "/home/me/w/token"}
    text = "ENOENT: no such file or directory, open '/home/me/w/nope.txt'"
    assert Redactor(secret_values(Stdio("x", env=env), env)).mask(text) == text
    # A path under another name is masked where it is whole.
    redactor = Redactor(secret_values(Stdio("x", env={"TOKEN_CACHE": "/home/me/w/cache.json"})))
    assert redactor.mask(f"{text} /home/me/w/cache.json") == f"{text} {MASK}"
