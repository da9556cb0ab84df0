"""Write docs/proof.md from the records of `make prove` in `.cache/proof/`.

A part with a record gets a new section. Sections of other parts stay unchanged, each with the date and the
seed of its run. The result depends only on the records and the existing page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "proof.md"
PROOFS = ROOT / "tests" / "prove"
RECORDS = ROOT / ".cache" / "proof"
HEAD = """\
---
summary: Results of `make prove`, with figures, seeds, versions and dates.
read_when: You want to see the results of the full-size tests, or to repeat them.
---
# Proof

<!-- Written by scripts/write_proof.py from a run of `make prove`; do not edit. -->

`make prove` repeats all of these tests, `make prove ONLY=chaos` one part; `SEED=…` repeats a run exactly. It
then writes this page. Seeds are random by default. If a test has several cases, its figures are ranges.
"""
TABLE = "| part | result | proofs | seconds | date |\n| --- | --- | --- | --- | --- |\n"
MOST_WORDS = 12
"""At most this many different words of one figure are listed; otherwise only their number is."""

Record: TypeAlias = dict[str, Any]


def main() -> None:
    """Write the page."""
    records = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(RECORDS.glob("*.json"))}
    before = PAGE.read_text("utf-8") if PAGE.exists() else ""
    parts = [file.stem.removeprefix("test_") for file in PROOFS.glob("test_*.py")]
    PAGE.write_text(page(records, before, parts), "utf-8")
    failed = [name for name, record in records.items() if not record["passed"]]
    print(f"wrote {PAGE.relative_to(ROOT)}: {', '.join(records) or 'nothing new'}")
    if failed:
        print(f"failed: {', '.join(failed)}")


def page(records: dict[str, Record], before: str = "", parts: Collection[str] | None = None) -> str:
    """Return the page with these records, and with the sections of the other parts from an existing page.

    Args:
        records: The records of a run, by part.
        before: The existing page.
        parts: The parts that exist; by default all that are known.
    """
    rows, sections = _rows(before), _sections(before)
    for part, record in records.items():
        rows[part], sections[part] = _row(part, record), _section(part, record)
    shown = sorted(part for part in rows.keys() & sections.keys() if parts is None or part in parts)
    total = sum(float(rows[part].split("|")[4]) for part in shown)
    table = TABLE + "".join(f"{rows[part]}\n" for part in shown)
    waiting = sorted(set(parts or ()) - set(shown))
    total_line = f"Together {total / 60:.0f} minutes.\n"
    if waiting:
        total_line += f"\nNot run at full size yet: {', '.join(f'`{part}`' for part in waiting)}.\n"
    return "\n".join([HEAD, table, total_line, *(sections[part] for part in shown)])


def _rows(text: str) -> dict[str, str]:
    """Return the rows of the first table by part."""
    return {match[1]: match[0] for match in re.finditer(r"^\| \[([\w-]+)\]\(#.+\|$", text, re.MULTILINE)}


def _sections(text: str) -> dict[str, str]:
    found = [part for part in re.split(r"^(?=## )", text, flags=re.MULTILINE) if part.startswith("## ")]
    return {section[3:].partition("\n")[0]: section.rstrip("\n") + "\n" for section in found}


def _row(part: str, record: Record) -> str:
    result = "passed" if record["passed"] else "**failed**"
    proofs = sum(record["outcomes"].values())
    day = record["date"].partition("T")[0]
    return f"| [{part}](#{part}) | {result} | {proofs} | {record['seconds']:.0f} | {day} |"


def _section(part: str, record: Record) -> str:
    result = "Passed" if record["passed"] else "**Failed**"
    seed = record["seed"]
    again = f"`make prove ONLY={part}" + (f" SEED={seed}`" if seed is not None else "`")
    when = record["date"].replace("T", " ").replace("+00:00", " UTC")
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    machine = record["machine"]
    lines = [
        f"## {part}",
        "",
        record["about"],
        "",
        f"- {result}: {_counted(record['outcomes'])}, in {record['seconds']:.0f} s, {when}",
        f"- again: {again}",
        f"- {versions}",
        f"- {machine['system']}, {machine['cores']} cores, {machine['memory']}",
        "",
        "| proof | result | figures |",
        "| --- | --- | --- |",
    ]
    proofs: dict[str, list[Record]] = {}
    for case in record["cases"]:
        proofs.setdefault(case["proof"], []).append(case)
    for name, cases in proofs.items():
        outcomes: dict[str, int] = {}
        for case in cases:
            outcomes[case["outcome"]] = outcomes.get(case["outcome"], 0) + 1
        lines.append(f"| {name.replace('_', ' ')} | {_counted(outcomes)} | {_figures(cases)} |")
    return "\n".join([*lines, ""])


def _counted(outcomes: dict[str, int]) -> str:
    return ", ".join(
        f"**{count} failed**" if outcome == "failed" else f"{count} {outcome}"
        for outcome, count in outcomes.items()
    )


def _figures(cases: list[Record]) -> str:
    names = dict.fromkeys(name for case in cases for name in case["figures"])
    return "; ".join(
        f"{name.replace('_', ' ')} {_merged([c['figures'][name] for c in cases if name in c['figures']])}"
        for name in names
    )


def _merged(values: list[Any]) -> str:
    """Return the common value, the range of numbers, or the different words."""
    words = list(dict.fromkeys(_written(value) for value in values))
    if len(words) == 1:
        return words[0]
    if all(isinstance(value, int | float) for value in values):
        return f"{_written(min(values))} to {_written(max(values))}"
    if len(words) > MOST_WORDS:
        return f"{len(words)} different"
    return ", ".join(words)


def _written(value: float | str) -> str:
    match value:
        case str():
            return value.replace("|", "\\|")
        case int():
            return f"{value:,}"
        case _:
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
