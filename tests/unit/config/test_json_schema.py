"""The schema of configuration files says what the reader of files says: about every sample, and about every typo."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from tests.unit.cli.program import dragoman

from dragoman.config.documents import parse
from dragoman.config.json_schema import config_schema, policy_schema
from dragoman.config.load import load
from dragoman.model.server import server_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/dialects"
SAMPLES = sorted(
    path
    for folder in ("mcp-json", "dragoman", "dragoman/json", "dragoman/toml", "dragoman/yaml")
    for path in (FIXTURES / folder).glob("*.*")
    if "expected" not in path.name
)
WRONG_ON_PURPOSE = {"typo", "broken", "socket", "weather.mirror"}
"""Entries of the samples with a key or a value that the reader complains about."""
CONFIG = jsonschema_rs.validator_for(config_schema())
POLICY = jsonschema_rs.validator_for(policy_schema())
GOOD: dict[str, Any] = {
    "command": "npx",
    "args": ["-y", "notes", 5],
    "env": {"A": 1, "B": None},
    "timeouts": {"call": "2m"},
    "fallback": {"read": ["other"]},
    "trust": "ask",
    "disabled": False,
    "auth": {"scopes": ["a"]},
}


def wrong(document: object) -> list[str]:
    return [f"{list(error.instance_path)}: {error.message}" for error in CONFIG.iter_errors(document)]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_sample_is_valid_but_for_what_is_wrong_on_purpose(path: Path) -> None:
    data = parse(path.read_text("utf-8"), str(path), path.suffix[1:]).data
    document = json.loads(json.dumps(data, default=str))
    for place in (document, document.get("mcp", {})):
        for key in ("servers", "mcpServers"):
            if isinstance(place.get(key), dict):
                place[key] = {n: one for n, one in place[key].items() if n not in WRONG_ON_PURPOSE}
            elif isinstance(place.get(key), list):
                place[key] = [one for one in place[key] if one.get("command") != "nameless"]
    assert wrong(document) == []


def typos() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key with one letter dropped, and each choice misspelt."""
    for place, key in server_keys().items():
        if key.in_files and "." not in place and len(key.name) > 3:
            yield f"{key.name} without a letter", {key.name[:2] + key.name[3:]: GOOD.get(key.name, "x")}
            if key.choices:
                yield f"{key.name} of another value", {key.name: f"{key.choices[0]}x"}
            if key.form == "flag":
                yield f"{key.name} as a text", {key.name: "perhaps"}
    for given in (
        {"timeouts": {"cal": 3}},
        {"timeouts": {"call": "soon"}},
        {"args": 5},
        {"max_concurrency": "many"},
    ):
        yield str(given), given


@pytest.mark.parametrize(("what", "entry"), list(typos()))
def test_every_typo_is_flagged(what: str, entry: dict[str, Any]) -> None:
    assert wrong({"mcpServers": {"notes": GOOD}}) == []
    assert wrong({"mcpServers": {"notes": {"command": "npx", **entry}}}), what


@pytest.mark.parametrize("document", [{"mcpServer": {}}, {"mcp": {"server": {}}}, {"mcp": {"naming": 5}}, []])
def test_a_misspelt_container_is_flagged(document: object) -> None:
    assert wrong(document)


@pytest.mark.parametrize("place", [place for place, key in server_keys().items() if key.in_files])
def test_every_key_of_a_server_is_in_the_schema_with_its_sentence(place: str) -> None:
    server = config_schema()["definitions"]["server"]["properties"]
    for name in server_keys()[place].spellings:
        assert name in server or place.startswith("auth.")
    first, _, inner = place.partition(".")
    shape = server[server_keys()[first].name]
    assert (shape["properties"][server_keys()[place].name] if inner else shape)["description"]


def test_policies_are_checked_alone_and_in_a_file() -> None:
    rule = {"action": "ask", "tool": ["delete_*"], "arguments": {"path": "~/**"}}
    for policy in ([rule], {"default": "allow", "rules": [rule]}):
        assert POLICY.is_valid(policy)
        assert wrong({"mcp": {"policy": policy}}) == []
    for bad in ([{"action": "maybe"}], [{"tool": "x"}], {"rule": []}, [{**rule, "tols": "x"}]):
        assert not POLICY.is_valid(bad)
        assert wrong({"mcp": {"policy": bad}})


def test_the_command_prints_it_and_a_file_may_name_it(tmp_path: Path) -> None:
    printed = json.loads(dragoman("config", "schema").stdout)
    assert printed == config_schema()
    assert json.loads(dragoman("config", "schema", "--policy").stdout) == policy_schema()
    jsonschema_rs.meta.validate(printed)
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"$schema": "./schema.json", "mcpServers": {"notes": {"command": "npx"}}}))
    settings = load(config=file)
    assert [spec.name for spec in settings.servers] == ["notes"]
    assert not settings.problems
    assert not settings.warnings
    toml = tmp_path / "dragoman.toml"
    toml.write_text('#:schema ./schema.json\n[mcp.servers.notes]\ncommand = "npx"\n')
    assert not load(config=toml).problems
    assert wrong(tomllib.loads(toml.read_text())) == []
