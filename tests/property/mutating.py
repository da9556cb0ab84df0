"""Files of every dialect, made wrong in every way that a hand, a program or a disk can make them wrong.

`mutated(path, rng)` takes a fixture and gives bytes: its data with types swapped, keys gone, twice or nested
without end, odd numbers, dates and characters; or its text with bytes flipped, cut, doubled, re-encoded.
"""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dragoman.config.documents import parse_env, without_comments

if TYPE_CHECKING:
    import random

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "dialects"
FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and not path.name.endswith(".expected.json") and path.stem in ("minimal", "full")
)

STRANGE_KEYS = [
    "",
    ".",
    "a.b",
    'quo"te',
    "apo'strophe",
    "line\nbreak",
    "naïve",
    "服务器",
    "\0",
    "$schema",
    "name",
]
STRANGE_KEYS += [
    "command",
    "url",
    "type",
    "transport",
    "env",
    "headers",
    "timeouts",
    "auth",
    "\ud800",
    "#1",
    "<<",
]
STRANGE_TEXTS = [
    "",
    " ",
    "\0",
    "\ud83d",
    "\r\n",
    "${",
    "$${A}",
    "${A:-${B}}",
    "${input:x}",
    "$A$B",
    "~",
    "~x",
    "NaN",
]
STRANGE_TEXTS += [
    "1e999",
    "-1",
    "30s",
    "5 parsecs",
    "http://",
    "HTTPS://X",
    "sse",
    "ws",
    "ſse",
    "é" * 300,
    "#",
    "a=b",
]
STRANGE_NUMBERS: list[Any] = [0, -1, 1, 999, 1000, 2**53, 10**30, 2**1023, 2**1025, 1.5, -0.0, 1e308]
STRANGE_NUMBERS += [float("inf"), float("nan")]
FRAGMENTS = {
    "json": [
        ",",
        "{",
        "}",
        "[",
        "]",
        ":",
        '"',
        "/*",
        "//",
        "\\",
        '"\\ud800"',
        "1e999",
        "NaN",
        "-",
        "null",
        "tru",
    ],
    "toml": [
        "[",
        "]]",
        "[[a]]",
        "[a.b]",
        "= ",
        "inf",
        "nan",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "1979-13-99",
        "'''",
    ],
    "yaml": [
        "&a ",
        "*a",
        "<<: *a",
        "!!int x",
        "!!binary eA==",
        "!!python/object:os.system x",
        "!!set {a}",
        "2024-99-99",
    ],
    "env": ["=", "export ", '"', "'", "#", "\\", "LEGAL_MCP_SERVER_URL=", "LEGAL_MCP__TIMEOUT=1"],
}
FRAGMENTS["toml"] += [
    '"""',
    "0x_",
    "1e400",
    "{a=1}",
    '"\\U0001F600"=1',
    '"a\tb"=1',
    "''=1",
    '"a.b".c=1',
    "a.b.c.d=1",
]
FRAGMENTS["yaml"] += [
    "? [a]\n: b",
    "- -",
    "\t",
    "%YAML 1.1",
    "---",
    "...",
    "|",
    ">",
    "{a: [",
    "~: 1",
    "yes: no",
    "1: 2",
]
FRAGMENTS["yaml"] += ["!!timestamp x", "!!float x", "0o9", "1:60", "&a [*a]", "!!pairs [a: b]", "@", "`"]
for _fragments in FRAGMENTS.values():
    _fragments.append("[" * 3000)


def format_of(path: Path) -> str:
    return path.suffix[1:] if path.suffix in (".toml", ".yaml", ".env") else "json"


def mutated(path: Path, rng: random.Random) -> bytes:
    """Return what a fixture became."""
    kind = format_of(path)
    text = path.read_text("utf-8")
    change_of = with_other_data if rng.random() < 0.6 else with_other_text
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text = change_of(text, kind, rng)
    data = text.encode("utf-8", "surrogatepass" if rng.random() < 0.2 else "replace")
    return with_other_bytes(data, text, rng) if rng.random() < 0.3 else data


def with_other_data(text: str, kind: str, rng: random.Random) -> str:
    try:
        data = data_of(text, kind)
        for _ in range(rng.randint(1, 3)):
            data = change(data, rng)
        return written(data, kind, rng)
    except Exception:  # noqa: BLE001 -- too deep, or nothing that the format can hold: a text all the same
        return with_other_text(text, kind, rng)


def data_of(text: str, kind: str) -> Any:
    match kind:
        case "toml":
            return tomllib.loads(text)
        case "yaml":
            return copy.deepcopy(yaml.safe_load(text))
        case "env":
            return parse_env(text)
        case _:
            return json.loads(without_comments(text))


def change(data: Any, rng: random.Random) -> Any:
    """Change one place of the data."""
    places = list(places_in(data))
    if not places:
        return strange(rng)
    owner, key = rng.choice(places)
    value = owner[key]
    match rng.randrange(9):
        case 0:
            owner[key] = strange(rng)
        case 1:
            del owner[key]
        case 2:
            owner[key] = [value] if rng.random() < 0.5 else {rng.choice(STRANGE_KEYS): value}
        case 3:
            owner[key] = nested(value, rng.choice([3, 60, 70, 400]), rng)
        case 4 if isinstance(owner, dict):
            owner[rng.choice(STRANGE_KEYS)] = owner.pop(key)
        case 5 if isinstance(owner, dict):
            owner[rng.choice(STRANGE_KEYS)] = copy.deepcopy(value)
        case 6:
            other, its = rng.choice(places)
            if its in other if isinstance(other, dict) else its < len(other):
                owner[key] = copy.deepcopy(other[its])
        case 7 if isinstance(owner, list):
            owner.insert(key, copy.deepcopy(value))
        case 8 if isinstance(value, str):
            at = rng.randint(0, len(value))
            owner[key] = value[:at] + rng.choice(STRANGE_TEXTS) + value[at:]
        case _:
            owner[key] = strange(rng)
    return data


def places_in(data: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting and len(found) < 2000:
        value = waiting.pop()
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            found += [(value, key) for key in keys]
            waiting += [value[key] for key in keys]
    return found


def strange(rng: random.Random) -> Any:
    kinds = [
        None,
        True,
        False,
        [],
        {},
        [[]],
        {"": {}},
        rng.choice(STRANGE_TEXTS),
        rng.choice(STRANGE_NUMBERS),
    ]
    return rng.choice(kinds)


def nested(value: Any, depth: int, rng: random.Random) -> Any:
    as_list = rng.random() < 0.5
    for _ in range(depth):
        value = [value] if as_list else {"d": value}
    return value


def written(data: Any, kind: str, rng: random.Random) -> str:
    match kind:
        case "toml":
            return "\n".join(f"{toml_key(key)} = {toml_value(value)}" for key, value in data.items())
        case "yaml" if rng.random() < 0.5:
            return yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
        case "env":
            return "\n".join(f"{key}={value}" for key, value in data.items())
        case _:
            return json.dumps(data, indent=rng.choice([None, 2]), ensure_ascii=rng.random() < 0.5)


def toml_key(key: Any) -> str:
    return json.dumps(str(key), ensure_ascii=False)


def toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return {"None": '""', "True": "true", "False": "false"}.get(str(value), str(value))


def with_other_text(text: str, kind: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    cut = rng.randint(0, len(text))
    match rng.randrange(7):
        case 0:
            return text[:cut] + rng.choice(FRAGMENTS[kind]) + text[cut:]
        case 1:
            return "".join([*lines[:at], rng.choice(FRAGMENTS[kind]) + "\n", *lines[at:]])
        case 2:
            return "".join([*lines[:at], lines[at], *lines[at:]])
        case 3:
            return "".join([*lines[:at], *lines[at + 1 :]])
        case 4:
            return text[:cut]
        case 5:
            return text[: cut // 2] + text[cut:]
        case _:
            return text[:cut] + rng.choice([*STRANGE_KEYS, *STRANGE_TEXTS]) + text[cut:]


def with_other_bytes(data: bytes, text: str, rng: random.Random) -> bytes:
    cut = rng.randint(0, len(data))
    match rng.randrange(7):
        case 0:
            return data[:cut] + bytes([rng.randrange(256)]) + data[cut + 1 :]
        case 1:
            return b"\xef\xbb\xbf" + data
        case 2:
            return text.encode("utf-16", "surrogatepass") + rng.choice([b"", b"x"])
        case 3:
            return data.replace(b"\n", b"\r\n")
        case 4:
            return data[:cut] + b"\0" + data[cut:]
        case 5:
            return data[:cut] + b"\xff\xfe\xed\xa0\x80" + data[cut:]
        case _:
            return text.encode("utf-32", "surrogatepass")
