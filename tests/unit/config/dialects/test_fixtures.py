"""Every dialect reads its real-world-shaped files into the model that stands beside each of them.

A new dialect needs no line here: one module in `dragoman.config.dialects`, its name in `NAMES`, and one
folder in `tests/fixtures/dialects/`, with a `minimal` and a `full` file (in folders of their own where the
dialect has several kinds of file). Run this file as a program to write the expectations of new files; then
read them, line by line, against what the host documents.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import in_effect

from dragoman.config.dialect import local_part
from dragoman.config.dialects import NAMES, dialect
from dragoman.config.documents import parse
from dragoman.config.export import entry
from dragoman.config.files import format_of
from dragoman.config.load import detect
from dragoman.config.merge import Layer, merge
from dragoman.model import ServerSpec, Stdio
from dragoman.struct import Struct, defaults, field_names

if TYPE_CHECKING:
    from dragoman.model import Settings

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "dialects"
ROOT = "/home/ana/shop"
"""The project's directory, for files that hold the servers of several projects."""

FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and not path.name.endswith(".expected.json") and path.stem in ("minimal", "full")
)
SHOWN = [
    name
    for name in field_names(ServerSpec)
    if name not in ("name", "transport", "origin", "shadowed", "lines", "extras", "notes", "timeouts")
]


def read(path: Path) -> Settings:
    found = dialect(path.relative_to(FIXTURES).parts[0])
    known = path.suffix in (".json", ".toml", ".yaml", ".env")
    source = path.name if known else path.suffix
    document = parse(path.read_text("utf-8"), source, format_of(path))
    entries = list(found.find(document, ROOT))
    local, local_patch = local_part(found, document, ROOT)
    patch = found.patch(document, ROOT)
    layers = [
        Layer(document=document, dialect=found, scope="local", entries=local, patch=local_patch),
        Layer(document=document, dialect=found, scope="user", entries=entries, patch=patch),
    ]
    return in_effect(merge(layers, found.combine))


def readable(merged: Settings) -> dict[str, Any]:
    """Show everything that was read and is not the default, as plain data."""
    assert merged.layers is not None
    matters = ("enabled", "auto_reload", "health_check_interval", "naming")
    said = {one.key: one.data for one in merged.layers.statements}
    patch = {name: plain(said[name]) for name in matters if name in said}
    patch["inputs"] = [plain(item.replace(scope="code")) for item in merged.inputs]
    problems = [f"line {error.line}: {error.pointer}: {error.message}" for error in merged.problems]
    shown = {"settings": {name: value for name, value in patch.items() if value != []}}
    return shown | {"servers": {spec.name: server(spec) for spec in merged.servers}, "problems": problems}


def server(spec: ServerSpec) -> dict[str, Any]:
    plainest = ServerSpec(spec.name, spec.transport)
    empty = type(spec.transport)("")
    transport = {
        name: plain(getattr(spec.transport, name))
        for name in field_names(spec.transport)
        if getattr(spec.transport, name) != getattr(empty, name)
    }
    rules = {
        name: plain(getattr(spec, name)) for name in SHOWN if getattr(spec, name) != getattr(plainest, name)
    }
    rest = {
        "timeouts": dict(spec.timeouts),
        "notes": [f"{note.code} {note.key}" for note in spec.notes],
        "extras": sorted(spec.extras),
        "shadowed": [f"{origin.scope} line {origin.line}" for origin in spec.shadowed],
    }
    where = f"{spec.origin.scope} line {spec.origin.line}: {spec.origin.pointer}"
    return {"kind": spec.kind} | transport | rules | {k: v for k, v in rest.items() if v} | {"origin": where}


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Struct):
        items, usual = {name: plain(getattr(value, name)) for name in field_names(value)}, defaults(value)
        return {name: item for name, item in items.items() if name not in usual or item != plain(usual[name])}
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def expected_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.expected.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_file_of_each_dialect_gives_the_model_beside_it(path: Path) -> None:
    assert readable(read(path)) == json.loads(expected_of(path).read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_has_a_minimal_and_a_full_file(name: str) -> None:
    folders = {path.parent for path in FILES if path.relative_to(FIXTURES).parts[0] == name}
    assert folders
    for folder in folders:
        assert {path.stem for path in FILES if path.parent == folder} == {"minimal", "full"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_line_that_an_entry_names_holds_its_key(path: Path) -> None:
    text = path.read_text("utf-8").splitlines()
    for spec in read(path).servers:
        transport = spec.transport
        keys = set(transport.env) if isinstance(transport, Stdio) else set(transport.headers)
        for key in keys & {field.partition(".")[2] for field in spec.lines}:
            owner = "env" if isinstance(transport, Stdio) else "headers"
            number = spec.lines[f"{owner}.{key}"]
            line = text[number - 1]
            # A key of an inline table, or one that a merge key of YAML brings, has what is around it.
            assert key in line or owner in line or number == spec.origin.line or MADE_FROM & set(words(line))


def words(line: str) -> list[str]:
    return re.findall(r"\w+", line)


MADE_FROM = {"bearer_token_env_var", "env_http_headers", "apiKey"}
"""Keys of which hosts make headers."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_what_is_lost_of_a_file_is_named_by_its_key_and_by_its_reason(path: Path) -> None:
    for spec in read(path).servers:
        losses = {loss.key: loss.why for loss in entry(spec, dialect("dragoman"))[1]}
        if spec.origin.dialect != "dragoman":
            assert spec.extras.keys() <= losses.keys()
        for key, why in dialect(spec.origin.dialect).dropped.items():
            assert key not in losses or losses[key] == why
        assert all(note.message for note in spec.notes)


TOLD_BY_NAME_ONLY = {
    "claude-code": {"mcp-json"},
    "claude-desktop": {"mcp-json"},
    "cursor": {"mcp-json"},
    "gemini": {"mcp-json"},
    "kode": {"mcp-json", "claude-code"},
    "excelmanus": {"mcp-json"},
    "rrclaw": {"dragoman"},
    "dragoman": {"mcp-json", "excelmanus"},
    "cline": {"mcp-json"},
    "roo": {"mcp-json"},
    "continue": {"mcp-json", "claude-code"},
    "copilot-cli": {"mcp-json"},
    "opencode": {"dragoman"},
    "amazon-q": {"mcp-json", "kiro"},
    "kiro": {"mcp-json"},
    "lm-studio": {"mcp-json"},
    "librechat": {"mcp-json"},
    "fastmcp": {"mcp-json"},
}
"""What a file of a dialect is taken for where its content fits several dialects."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_file_is_never_taken_for_that_of_another_host(path: Path) -> None:
    name = path.relative_to(FIXTURES).parts[0]
    document = parse(path.read_text("utf-8"), f"/x/some{path.suffix}", format_of(path))
    assert detect(document) in {name} | TOLD_BY_NAME_ONLY.get(name, set())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_no_value_of_an_entry_is_in_a_repr_or_in_a_message(path: Path) -> None:
    merged = read(path)
    said = repr(merged.servers) + " ".join(map(str, merged.problems))
    said += " ".join(note.message for spec in merged.servers for note in spec.notes)
    for spec in merged.servers:
        for value in secrets(spec):
            assert value not in said


def secrets(spec: ServerSpec) -> list[str]:
    """Return the values that may be secrets, but for words so short that they stand everywhere."""
    if isinstance(spec.transport, Stdio):
        # The name of a variable may stand in the arguments too, as in `docker run -e NAME`.
        args = [arg for arg in spec.transport.args if arg not in spec.transport.env]
        values = [*args, *(value for value in spec.transport.env.values() if value)]
    else:
        values = [spec.transport.url, *spec.transport.headers.values()]
    return [value for value in values if len(value) > 6]


if __name__ == "__main__":
    for each in FILES:
        if not expected_of(each).exists():
            text = json.dumps(readable(read(each)), indent=2, ensure_ascii=False)
            expected_of(each).write_text(text + "\n", encoding="utf-8")
