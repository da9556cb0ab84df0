"""The pages: small, in two languages, and without anything that reads a text as HTML."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import dragoman.console

FOLDER = Path(dragoman.console.__file__).parent
STATIC = sorted(path for path in (FOLDER / "static").iterdir() if path.is_file())
SCRIPTS = [path for path in STATIC if path.suffix == ".js"]
STATES = ("ready", "idle", "connecting", "degraded", "backoff", "needs_auth", "failed", "closed")


def lines(paths: list[Path]) -> int:
    return sum(path.read_text("utf-8").count("\n") for path in paths)


def test_the_pages_and_the_program_stay_small() -> None:
    packed = gzip.compress(b"".join(path.read_bytes() for path in STATIC))
    assert len(packed) <= 80 * 1024
    assert lines([path for path in STATIC if path.suffix in (".js", ".css")]) <= 2500
    assert lines([*FOLDER.glob("*.py")]) <= 2500


def test_nothing_reads_a_text_as_html_or_as_a_program() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b"
        r"|new Function|setTimeout\(\s*[\"'`]|javascript:|srcdoc"
    )
    assert [(path.name, forbidden.findall(path.read_text("utf-8"))) for path in SCRIPTS] == [
        (path.name, []) for path in SCRIPTS
    ]


def test_nothing_comes_from_another_host() -> None:
    for path in STATIC:
        text = path.read_text("utf-8")
        for known in ("http://www.w3.org/2000/svg", "http://127.0.0.1:8765/mcp"):
            text = text.replace(known, "")
        load = "@import|url\\(" if path.suffix == ".css" else "import\\("
        found = re.findall(rf"(?:https?:)?//[\w-]+(?:\.\w+)+|{load}", text)
        assert found == [], path.name


def test_the_page_has_no_inline_script_or_style() -> None:
    page = (FOLDER / "static" / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page) == []


def test_every_word_is_there_in_chinese() -> None:
    words = (FOLDER / "static" / "words.js").read_text("utf-8")
    known = set(re.findall(r"(?:^|[{,]\s*)(?:\"([^\"]+)\"|(\w+)): \"", words, re.MULTILINE))
    chinese = {one or other for one, other in known}
    used = {found for path in SCRIPTS for found in re.findall(r"\bt\(\"([^\"]+)\"", path.read_text("utf-8"))}
    buttons = {"Restart", "Enable", "Disable", "Doctor", "Allow once", "Deny", "Always allow"}
    assert {*used, *buttons, *STATES} - chinese == set()
