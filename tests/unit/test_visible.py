"""One rule decides which characters are harmful, and every way to show a text or to accept a name follows it."""

from __future__ import annotations

import json
import logging
import sys
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli import output
from dragoman.config.documents import dotted
from dragoman.display import _text as for_notebook
from dragoman.errors import ConfigError
from dragoman.tools.definition import Rejected, define
from dragoman.trust.log_records import protect
from dragoman.trust.policy import Policy, PolicyRequest, read_policy
from dragoman.trust.redaction import Redactor
from dragoman.trust.sanitizing import for_json, for_log, for_model, for_terminal, unfolded
from dragoman.visible import hidden_in, is_harmful, is_visible, shown, spelled_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_IGNORABLE = {
    chr(number)
    for first, last in (
        *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
        *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
        *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
        (0xE0000, 0xE0FFF),
    )
    for number in range(first, last + 1)
}
"""Unicode's property `Default_Ignorable_Code_Point`, in DerivedCoreProperties.txt."""
DRAWN_AS_A_BLANK = set("\u2800\ufffc\U00013441\U00013442\U00016fe4\U0001d159")
UNSEEN = DEFAULT_IGNORABLE | DRAWN_AS_A_BLANK | {chr(number) for number in range(0x13430, 0x13440)}
"""With the joiners of hieroglyphs, some of which the Unicode of older Pythons lacks."""
DRAWN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Characters of the category of formats that have a shape: they enclose numbers."""


@cache
def expected(letter: str) -> bool:
    """Return whether a character is harmful by what Unicode says about it."""
    kind = unicodedata.category(letter)
    return (
        (kind == "Cc" and letter not in "\t\n")
        or kind in ("Cs", "Zl", "Zp")
        or (kind == "Cf" and letter not in DRAWN)
        or letter in UNSEEN
        or ord(letter) & 0xFFFE == 0xFFFE
        or 0xFDD0 <= ord(letter) <= 0xFDEF
    )


SHARED_MARKS = (
    (0x300, 0x36F),
    (0x483, 0x489),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0xFE20, 0xFE2F),
)
"""The blocks of marks that belong to no single script."""


def is_foreign_mark(letter: str) -> bool:
    """Return whether many fonts draw nothing for a character after a Latin letter; a keycap is an emoji."""
    is_shared = any(first <= ord(letter) <= last for first, last in SHARED_MARKS) and letter != "\u20e3"
    return unicodedata.category(letter) in ("Mn", "Me") and not is_shared


@cache
def every() -> list[str]:
    """Return every character that there can be."""
    return [chr(number) for number in range(sys.maxunicode + 1)]


@cache
def assigned() -> list[str]:
    """Return every character that is one, and some of the million others."""
    return [
        letter
        for letter in every()
        if unicodedata.category(letter) not in ("Cn", "Co") or expected(letter) or ord(letter) % 101 == 0
    ]


def said(text: str) -> str:
    """Return what the handler of a log gets of a text."""
    logger = logging.getLogger("dragoman.test_visible")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    logger.propagate = False
    end = protect(Redactor())
    try:
        logger.error("%s", text)
    finally:
        end()
        logger.removeHandler(handler)
    return records[0].getMessage()


ROADS: dict[str, Callable[[str], str]] = {
    "terminal": for_terminal,
    "command": output.safe,
    "log line": lambda text: for_log(text, None),
    "log record": said,
    "model": for_model,
    "error": lambda text: ConfigError(text).message,
    "place of an error": lambda text: ConfigError("x", source=text).location,
    "notebook": for_notebook,
    "JSON": lambda text: for_json(json.dumps(text, ensure_ascii=False))[1:-1],
}
STRICT_ROADS: dict[str, Callable[[str], str]] = {
    "question": unfolded,
    "key of a file": lambda text: dotted((text,)),
    "spelled out": spelled_out,
}


def by_letter(road: Callable[[str], str]) -> Iterator[tuple[str, bool]]:
    """Yield every character with whether a road changes it; thousands at a time, each between two letters."""
    for letter in every()[:0x100]:
        if letter not in "\t\n\"\\&<>'":
            yield letter, road(f"a{letter}a") != f"a{letter}a"
    for start in range(0x100, len(assigned()), 1024):
        letters = assigned()[start : start + 1024]
        pieces = road(";".join(f"a{letter}a" for letter in letters)).split(";")
        assert len(pieces) == len(letters)
        for letter, piece in zip(letters, pieces, strict=True):
            yield letter, piece != f"a{letter}a"


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_every_way_to_show_a_text_follows_the_rule_for_every_character(road: Callable[[str], str]) -> None:
    assert [f"{ord(letter):x}" for letter, changed in by_letter(road) if changed != expected(letter)] == []


@pytest.mark.parametrize("road", STRICT_ROADS.values(), ids=STRICT_ROADS)
def test_what_a_person_must_see_exactly_follows_the_rule_for_names(road: Callable[[str], str]) -> None:
    wrong = [
        f"{ord(letter):x}" for letter, changed in by_letter(road) if changed == is_visible(f"a{letter}a")
    ]
    assert wrong == []


def test_the_rule_for_names_is_printable_and_not_harmful() -> None:
    wrong = [
        letter
        for letter in every()
        if is_visible(f"a{letter}a")
        != (letter.isprintable() and not expected(letter) and not is_foreign_mark(letter))
        or is_harmful(f"a{letter}a") != expected(letter)
    ]
    assert wrong == []


def test_no_name_of_a_tool_has_a_harmful_character() -> None:
    def is_offered(name: str) -> bool:
        return not isinstance(define({"name": name}, server="s", template="{tool}"), Rejected)

    harmful = [letter for letter in every() if expected(letter)]
    assert len(harmful) > 4_000
    assert [letter for letter in harmful if is_offered(f"wipe{letter}")] == []
    assert [letter for letter in every()[0x21:0x7F] if not is_offered(f"wipe{letter}")] == []
    for name in ("删除", "café", "cafe\u0301", "ខ្មែរ", "हिन्दी", "မြန်မာ"):
        assert is_offered(name), name
    # Selectors and joiners that a text may have: two names would look the same.
    for name in (
        "❤\ufe0f",
        "葛\U000e0100",
        "می\u200cخواهم",
        "👩\u200d👩",
        "1\ufe0f\u20e3",
        "a" + "\u0301" * 9,
    ):
        assert not is_offered(name), name


def test_a_rule_about_a_name_is_not_evaded_by_invisible_characters() -> None:
    rules: list[dict[str, Any]] = [{"action": "deny", "tool": "wipe"}, {"action": "ask", "prompt": "wipe*"}]
    policy = Policy(rules=read_policy(rules, scope="user", source="f").rules)
    for letter in UNSEEN:
        for name in (f"wipe{letter}", f"wi{letter}pe", f"{letter}wipe"):
            assert policy.decide(PolicyRequest(server="s", tool=name, arguments={})).action == "deny", ascii(
                name
            )
            about = PolicyRequest(server="s", tool=name, kind="prompt", arguments={})
            assert policy.decide(about).action == "ask", ascii(name)


@pytest.mark.parametrize(
    "name",
    ["ｗｉｐｅ", "w\u0456pe", "wip\u0435", "𝐰𝐢𝐩𝐞", "ⓦⓘⓟⓔ", "wípe", "wipe\u0307", "wipe\u1039", "wi\u200bрe"],
)
def test_a_rule_about_a_name_is_not_evaded_by_letters_that_look_alike(name: str) -> None:
    policy = Policy(rules=read_policy([{"action": "deny", "tool": "wip?"}], scope="user").rules)
    assert policy.decide(PolicyRequest(server="s", tool=name, arguments={})).action == "deny"
    # Names in other letters are other names.
    for other in ("Wipe", "擦除", "стереть", "wipers"):
        assert policy.decide(PolicyRequest(server="s", tool=other, arguments={})).action == "allow"
    allowed = Policy(
        rules=read_policy([{"action": "allow", "tool": "wip?"}], scope="user").rules, default="deny"
    )
    assert allowed.decide(PolicyRequest(server="s", tool=f"{name}s", arguments={})).action == "deny"


def test_what_is_allowed_by_name_is_not_allowed_by_what_it_looks_like() -> None:
    rules = [{"action": "allow", "tool": "read"}]
    policy = Policy(rules=read_policy(rules, scope="user", source="f").rules, default="deny")
    assert policy.decide(PolicyRequest(server="s", tool="read", arguments={})).action == "allow"
    assert policy.decide(PolicyRequest(server="s", tool="read\u3164", arguments={})).action == "deny"


def test_json_is_read_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    letters = [
        letter for letter in every() if unicodedata.category(letter) != "Cs"
    ]  # JSON would join two of them
    values = {"".join(letters[start : start + 977]): start for start in range(0, 0x30000, 977)}
    output.say_json([values, "a" + "\u0301" * 40, "👩\u200d👩 ⠁⠀⠃"])
    written = capsys.readouterr().out
    assert not is_harmful(written)
    assert json.loads(written) == [values, "a" + "\u0301" * 40, "👩\u200d👩 ⠁⠀⠃"]
    assert "👩\u200d👩 ⠁⠀⠃" in written


@pytest.mark.parametrize(
    "text",
    [
        "⠓⠑⠇⠇⠕⠀⠺⠕⠗⠇⠙",
        "⠀⠀⠀⣀⣤⣶⠀⠀⠀⠀⣶\n⠀⣿",
        "\U00013000\U00013430\U00013001",
        "\U00018b00\U00016fe4",
        "\u0600\u0661\u0662",
    ],
)
def test_blanks_and_fillers_of_a_script_stay_beside_its_letters(text: str) -> None:
    assert shown(text) == for_model(text) == text
    assert hidden_in(text) == []
    assert not is_visible(text)


def test_blanks_of_braille_hide_nothing_elsewhere() -> None:
    assert shown("a\u2800b") == "a�b"
    assert for_model("a\u2800\u2800b") == "ab"
    assert hidden_in("rm\u2800-rf") == ["\u2800"]
