"""docs/configuration.md is a reference: its tables are held against the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, blocks

from dragoman import Http, ServerSpec, Stdio
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.load import load
from dragoman.config.profiles import BUILT_IN, profile_named
from dragoman.config.templates import NONE, ExpansionContext, expand_transport, to_template
from dragoman.errors import MissingVariableError
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES
from dragoman.struct import asdict
from dragoman.trust.limits import Limits
from dragoman.trust.policy import read_policy
from dragoman.trust.toolsets import find_toolset

PAGE = (ROOT / "docs/configuration.md").read_text("utf-8")
PYTHON = blocks("python", (ROOT / "docs/configuration.md").read_text("utf-8"))
TOML = blocks("toml", (ROOT / "docs/configuration.md").read_text("utf-8"))
PROGRAM = Path(sys.executable).with_name("dragoman")

SAMPLES: dict[str, object] = {
    "command": "npx",
    "args": ["-y"],
    "env": {"A": "b", "GONE": None},
    "env_file": [".env"],
    "sandbox": "strict",
    "inherit_env": "all",
    "cwd": "sub",
    "log_file": "logs/one.log",
    "url": "https://example.com/mcp",
    "headers": {"A": "b"},
    "tls": {"ca": "ca.pem", "cert": "me.pem", "key": "me.key", "verify": False},
    "allow_http": True,
    "alternate": True,
    "transport": "stdio",
    "enabled": True,
    "disabled": False,
    "required": True,
    "lazy": True,
    "timeouts": {"connect": 1, "call": "500ms", "idle": 2},
    "allowed_tools": ["a*"],
    "denied_tools": ["b"],
    "max_concurrency": 3,
    "parallel": True,
    "coerce_arguments": True,
    "share": False,
    "sources_in_text": True,
    "attribution": {"title": "/results/*/name"},
    "max_message_bytes": "64MiB",
    "limits": {"tools": 5, "calls_per_second": 0.5},
    "reconnect": False,
    "replace": "stop-first",
    "fallback": ["other"],
    "tools": {"read": {"name": "open"}},
    "naming": "{server}__{tool}",
    "title": "One",
    "description": "A server.",
    "trust": "strict",
    "trust_annotations": True,
    "auth": "oauth",
    "protocol": "legacy",
    "health_check_interval": 5,
}
REMOTE = {"url", "headers", "auth", "tls", "allow_http", "alternate"}


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in row.removeprefix("|").removesuffix("|").split(" | ")] for row in rows[2:]
    ]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def documented_keys() -> list[str]:
    return [key for row in table("Keys of a server") for key in code(row[0]) if "." not in key]


def test_the_tables_are_what_the_declarations_say() -> None:
    script = ROOT / "scripts/draw_keys.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def read(entry: dict[str, Any]) -> ServerSpec:
    import json

    Path("dragoman-test.json").write_text(json.dumps({"mcpServers": {"one": entry}}), "utf-8")
    settings = load(config="dragoman-test.json")
    assert [str(problem) for problem in settings.problems] == []
    (spec,) = settings.servers
    return spec


def test_the_python_block_runs_as_it_stands() -> None:
    (block,) = PYTHON
    Path("myagent.toml").write_text('[mcp.servers.one]\ncommand = "true"\n', "utf-8")
    names: dict[str, Any] = {}
    exec(compile(block, "configuration.md", "exec"), names)
    settings = names["manager"].settings
    assert (settings.profile, settings.naming) == ("myagent", "{server}__{tool}")
    assert [spec.name for spec in settings.servers] == ["one"]


def test_the_toml_block_is_understood() -> None:
    attribution, listed, by_tool, policy, selection = TOML
    for fallback in (f"{listed}", f'[mcp.servers.law]\ncommand = "true"\n{by_tool}'):
        Path("dragoman.toml").write_text(fallback, "utf-8")
        assert (list(load().problems), "mirror" in load().servers[0].fallback_names) == ([], True)
    Path("dragoman.toml").write_text(f'[mcp.servers.law]\ncommand = "true"\n{attribution}\n{policy}', "utf-8")
    settings = load()
    assert (list(settings.problems), len(settings.servers[0].attribution)) == ([], 3)
    (said,) = settings.policy
    read = read_policy(said.data, scope=said.scope)
    assert (read.default, len(read.rules), read.problems) == ("ask", 4, [])
    Path("dragoman.toml").write_text(selection, "utf-8")
    assert find_toolset(load().replace(trusts_project=True), "review")["deny"] == ["github:delete_*"]


def test_the_documented_limits_are_all_there_with_their_defaults() -> None:
    section = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split(" | ") for row in section.splitlines() if row.startswith("| `")]
    documented = {
        name: float(value)
        for row in rows
        for name, value in zip(code(row[0]), row[2].split(","), strict=True)
    }
    assert documented == asdict(Limits())


def test_every_documented_key_has_a_sample_here() -> None:
    assert set(documented_keys()) == set(SAMPLES)


@pytest.mark.parametrize("key", documented_keys())
def test_a_documented_key_is_understood(key: str) -> None:
    entry = {"url": "https://example.com/mcp"} if key in REMOTE else {"command": "npx"}
    spec = read(entry | {key: SAMPLES[key]})
    assert key not in spec.extras
    assert [note for note in spec.notes if note.code in ("unknown", "unused") and note.key == key] == []


def test_an_unknown_key_is_kept_and_noted() -> None:
    spec = read({"command": "npx", "nonsense": 1})
    assert spec.extras == {"nonsense": 1}
    assert [note.key for note in spec.notes] == ["nonsense"]


def test_the_documented_defaults_hold() -> None:
    rows = {code(row[0])[0]: row[2] for row in table("Keys of a server") if len(row) > 2 and row[2]}
    spec = read({"command": "npx"})
    for key in ("enabled", "required", "lazy", "parallel", "reconnect", "protocol"):
        assert rows[key] == f"`{str(getattr(spec, key)).lower()}`", key
    assert rows["replace"] == f"`{spec.replacement}`"
    assert spec.trust is None
    assert rows["trust"] == "`ask` at a terminal, else `warn`"
    assert rows["trust_annotations"] == f"`{str(spec.trust_annotations).lower()}`"
    assert rows["naming"] == f"`{load().naming}`"
    assert rows["timeouts"] == f"{spec.connect_timeout:g}, {spec.call_timeout:g}, none"
    assert rows["max_message_bytes"] == f"{MAX_MESSAGE_BYTES // 2**20} MiB"
    assert rows["health_check_interval"] == f"{load().health_check_interval:g}"
    assert isinstance(spec.transport, Stdio)
    assert rows["inherit_env"] == f'`"{spec.transport.inherit_env}"`'


def test_the_places_are_those_that_the_program_looks_at_in_that_order() -> None:
    rows = table("Places")
    wanted = [(Path(path).name, row[1]) for row in rows[1:] for path in code(re.sub(r"\(.*\)", "", row[0]))]
    found = [(Path(source.path).name, source.scope) for source in load().sources]
    assert found == wanted
    assert code(rows[0][0]) == ["--config", "DRAGOMAN_MCP_CONFIG"]


@pytest.mark.parametrize(
    ("text", "environment", "becomes"),
    [
        ("${VAR}", {"VAR": "v"}, "v"),
        ("${env:VAR}", {"VAR": "v"}, "v"),
        ("${VAR}", {}, None),
        ("${VAR:-text}", {"VAR": ""}, "text"),
        ("${VAR:-text}", {}, "text"),
        ("${VAR-text}", {"VAR": ""}, ""),
        ("${VAR-text}", {}, "text"),
        ("${input:id}", {}, "answer"),
        ("${workspaceFolder}", {}, "/projects/p"),
        ("${workspaceFolderBasename}", {}, "p"),
        ("${userHome}", {}, "/home/ann"),
        ("${pathSeparator}", {}, os.sep),
        ("$${VAR}", {"VAR": "v"}, "${VAR}"),
        ("~/x", {}, "~/x"),
    ],
)
def test_the_table_of_variables_holds(text: str, environment: dict[str, str], becomes: str | None) -> None:
    around = ExpansionContext(env=environment, root="/projects/p", home="/home/ann", inputs={"id": "answer"})
    spec = ServerSpec("one", Stdio("~/bin/x", [text], cwd="~/w"))
    if becomes is None:
        with pytest.raises(MissingVariableError, match="VAR"):
            expand_transport(spec, around)
        return
    expanded = expand_transport(spec, around)
    assert isinstance(expanded, Stdio)
    assert (expanded.command, list(expanded.args)) == ("/home/ann/bin/x", [becomes])
    assert expanded.cwd == "/home/ann/w"
    spelled = {written for row in table("Variables") for written in code(row[0])}
    assert text in spelled | {"$${VAR}", "~/x"}


def test_the_documented_guess_of_a_transport_holds() -> None:
    first = read({"url": "https://example.com/mcp"})
    second = read({"url": "https://example.com/sse"})
    assert isinstance(first.transport, Http)
    assert first.transport.alternate
    assert second.kind == "sse"
    assert read({"command": "x", "timeout": 1000}).call_timeout == 1
    assert read({"command": "x", "timeout": 999}).call_timeout == 999


PROFILES = [
    name for heading in ("Profiles", "Other hosts") for row in table(heading) for name in code(row[0])
]


def test_every_profile_is_documented() -> None:
    assert sorted(PROFILES) == sorted({*BUILT_IN, *HOSTS} - {"dragoman"})


@pytest.mark.parametrize("row", table("Other hosts"), ids=lambda row: row[0])
def test_what_the_page_says_about_a_host_holds(row: list[str]) -> None:
    found = dialect(code(row[0])[0])
    formats = {Path(place.path).suffix.strip(".").removesuffix("c").upper() for place in found.places}
    written = {"YML": "YAML", "": "JSON", "}": "JSON"}
    assert {written.get(name, name) for name in formats} == set(re.findall("YAML|JSON", row[1]))
    units = {key.unit for key in found.keys.values() if key.unit}
    assert ("milliseconds" in row[1]) == bool(units & {"ms", "unknown"})
    assert (" seconds" in row[1]) == (units == {"s"})
    timeout = found.keys.get("timeout") or found.keys.get("connectionTimeout")
    assert ("to connect" in row[1]) == (timeout is not None and timeout.field == "connect")
    assert row[3].startswith(GUESSES[found.untyped_url])
    spelled = [text for text in code(row[2]) if "VAR" in text or "NAME" in text]
    assert all(to_template(text, found.style).startswith("${") for text in spelled)
    assert bool(spelled) == (found.style != NONE)
    named = {text for text in code(row[2]) if text.isidentifier()}
    assert named <= (found.expanded or set())


GUESSES = {
    "http": "HTTP",
    "both": "HTTP, then SSE",
    "sse": "SSE",
    "error": "an error",
    "auto": "HTTP, then SSE; SSE first",
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_documented_profile_exists(name: str) -> None:
    assert profile_named(name).app == name


def test_the_files_of_a_profile_are_looked_for_in_the_documented_order() -> None:
    rows = {code(row[0])[0]: code(row[1]) for row in table("Profiles")}
    for name in ("excelmanus", "otter", "rrclaw"):
        wanted = [path for path in rows[name] if not path.isupper() and "/" in path]
        found = [source.path for source in load(name).sources]
        here, home = f"{Path.cwd()}/", f"{Path.home()}/"
        assert [path.replace(here, "./").replace(home, "~/") for path in found] == wanted, name


def test_config_check_exits_as_documented() -> None:
    assert "exits with 3" in " ".join(PAGE.split())
    Path("mcp.json").write_text('{"mcpServers": {"a": {}, "b": {"command": "true"}}}', "utf-8")
    done = subprocess.run([PROGRAM, "config", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout.endswith("1 server in 1 source: 1 error, 0 warnings\n")
