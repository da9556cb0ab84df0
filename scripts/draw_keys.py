"""Write the tables of keys in docs/configuration.md from the declarations of the keys.

`--check` writes nothing, and fails if a table is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.model import ArgumentTransform, Settings, ToolTransform
from dragoman.model.keys import keys
from dragoman.model.server import server_keys
from dragoman.trust.policy import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model.keys import Key

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
END = "<!-- end of the table -->"
LOGIN = "auth."
"""The keys of a login have a page of their own."""


def main() -> None:
    """Write the tables, or check them."""
    old = text = PAGE.read_text("utf-8")
    for name, rows in tables().items():
        start = f"<!-- {name}: written by scripts/draw_keys.py; do not edit the table. -->"
        before, _, rest = text.partition(f"{start}\n")
        _, _, after = rest.partition(f"{END}\n")
        text = "\n".join([f"{before}{start}", *rows, END, after])
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, "utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    elif text != old:
        sys.exit("docs/configuration.md is out of date: run scripts/draw_keys.py")


def tables() -> Mapping[str, Iterable[str]]:
    """Return the rows of each table by its name."""
    written = {place: key for place, key in server_keys().items() if key.in_files}
    shown = {place: key for place, key in written.items() if not place.startswith(LOGIN)}
    head = ["| key | meaning | default |", "| --- | --- | --- |"]
    return {
        "keys of a server": [
            "| key | meaning | default | other names |",
            "| --- | --- | --- | --- |",
            *(f"{row(place, key)} {others(key)} |" for place, key in shown.items()),
        ],
        "keys of a tool": [*head, *(row(name, key) for name, key in keys(ToolTransform).items())],
        "keys of an argument": [*head, *(row(name, key) for name, key in keys(ArgumentTransform).items())],
        "keys of mcp": [*head, *(row(name, key) for name, key in keys(Settings).items())],
        "keys of a rule": [
            "| key | matches |",
            "| --- | --- |",
            *(f"| `{key.name}` | {key.doc} |" for key in keys(Rule).values() if key.field != "action"),
        ],
    }


def row(place: str, key: Key) -> str:
    """Return a key with its meaning and its default."""
    opposite = f" (or `{key.opposite}`)" if key.opposite else ""
    name = place if "." in place else key.name
    return f"| `{name}`{opposite} | {key.doc} | {key.unless_given or default(key)} |"


def default(key: Key) -> str:
    """Return the default as it is written in a file; empty if that is nothing."""
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    if isinstance(key.default, float):
        return f"{key.default:g}"
    return f"`{key.default}`" if isinstance(key.default, str) and key.default else ""


def others(key: Key) -> str:
    """Return the other names of a key."""
    in_ms = [f"`{name}` (milliseconds)" for name in key.milliseconds]
    return ", ".join([*(f"`{name}`" for name in key.spellings), *in_ms])


if __name__ == "__main__":
    main()
