"""How the registry's descriptions become commands and addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import in_effect

from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.merge import Layer, merge
from dragoman.model import Http, Stdio

if TYPE_CHECKING:
    from dragoman.model import Settings

pytestmark = pytest.mark.requirement(
    "excel-1.1",
    "excel-1.3",
    "kode-config.global",
    "otter-p0.config",
    "otter-config.alias",
    "rrclaw-config.table",
    "legal-config.env",
)


def read(**fields: Any) -> Settings:
    data = {"name": "com.example/a", "description": "d", "version": "1.0.0"} | fields
    document = parse(json.dumps(data), "server.json", "json")
    found = dialect("server-json")
    entries = list(found.find(document, "/"))
    patch = found.patch(document, "/")
    layer = Layer(document=document, dialect=found, scope="user", entries=entries, patch=patch)
    return in_effect(merge([layer], "replace"))


def package(**fields: Any) -> Any:
    given = {
        "registryType": "npm",
        "identifier": "p",
        "version": "1",
        "transport": {"type": "stdio"},
    } | fields
    merged = read(packages=[given])
    assert merged.problems == []
    return merged.servers[0]


def words(**fields: Any) -> list[str]:
    transport = package(**fields).transport
    assert isinstance(transport, Stdio)
    return [transport.command, *transport.args]


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, "npx -y p@1"),
        ({"runtimeHint": "bunx"}, "bunx -y p@1"),
        ({"runtimeArguments": [{"type": "positional", "value": "-y"}]}, "npx -y p@1"),
        ({"registryType": "pypi"}, "uvx p==1"),
        ({"registryType": "pypi", "identifier": "p==2"}, "uvx p==2"),
        ({"registryType": "nuget"}, "dnx p@1 --yes"),
        ({"registryType": "oci"}, "docker run -i --rm p:1"),
        ({"registryType": "oci", "runtimeHint": "podman"}, "podman run -i --rm p:1"),
        ({"registryType": "oci", "identifier": "h:5000/p:2"}, "docker run -i --rm h:5000/p:2"),
        ({"registryType": "oci", "identifier": "h:5000/p"}, "docker run -i --rm h:5000/p:1"),
        ({"transport": None}, "npx -y p@1"),
    ],
)
def test_a_package_is_run_by_the_program_of_its_registry(fields: dict[str, Any], command: str) -> None:
    assert " ".join(words(**fields)) == command


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({"type": "named", "name": "--a", "value": "b"}, ["--a", "b"]),
        ({"type": "named", "name": "--a"}, ["--a"]),
        ({"type": "named", "name": "--a", "format": "string"}, []),
        ({"type": "named", "name": "--a", "isRequired": True}, ["--a", "${input:a.--a}"]),
        ({"type": "positional", "default": 5}, ["5"]),
        ({"type": "positional", "value": True}, ["true"]),
        ({"type": "positional", "valueHint": "dir", "isRequired": True}, ["${input:a.dir}"]),
        ({"type": "positional", "isRequired": True}, ["${input:a.packageArguments.0}"]),
        ({"value": "${HOME} {x} {y}", "variables": {"y": {"value": "v"}}}, ["$${HOME} {x} v"]),
        ({"value": "${y}", "variables": {"y": {}}}, ["$$${input:a.y}"]),
        ({"value": "{d}{HOME}", "variables": {"d": {"value": "$"}}}, ["$${HOME}"]),
        (5, []),
    ],
)
def test_an_argument_is_a_text_a_flag_or_asked_for(argument: Any, expected: list[str]) -> None:
    assert words(packageArguments=[argument])[3:] == expected


def test_a_variable_is_fixed_taken_from_the_environment_or_passed_on() -> None:
    spec = package(
        registryType="oci",
        environmentVariables=[
            {"name": "FIXED", "value": "{TOKEN}!"},
            {"name": "TOKEN", "isRequired": True, "isSecret": True},
            {"name": "LEVEL", "default": "a b"},
            {"name": "ODD", "default": "}", "isRequired": True},
            {"name": "MAYBE"},
        ],
        packageArguments=[{"value": "--l={LEVEL}"}],
    )
    assert spec.transport.env == {
        "FIXED": "${TOKEN}!",
        "TOKEN": "${TOKEN}",
        "LEVEL": "${LEVEL:-a b}",
        "ODD": "${ODD}",
    }
    assert spec.transport.inherit_env == ["MAYBE"]
    passed = "-e FIXED -e LEVEL -e MAYBE -e ODD -e TOKEN"
    assert " ".join(spec.transport.args) == f"run -i --rm {passed} p:1 --l=${{LEVEL:-a b}}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"registryType": "mcpb"}, "`registryType` (line 1): a bundle is never fetched"),
        ({"registryType": "cargo"}, "the registry type `cargo` is not supported"),
        ({"registryType": None}, "the registry type `` is not supported"),
        ({"identifier": ""}, "the package has no name"),
        ({"transport": {"type": "sse"}}, "`transport.type` (line 1): the package listens at an address"),
        ({"environmentVariables": [{"name": "a b"}]}, "expected the names of variables"),
    ],
)
def test_a_package_that_cannot_be_run_is_a_problem(fields: dict[str, Any], message: str) -> None:
    merged = read(packages=[{"registryType": "npm", "identifier": "p", "version": "1"} | fields])
    assert merged.servers == []
    assert message in merged.problems[0].message


def test_a_way_that_cannot_be_gone_is_a_note_where_another_can() -> None:
    merged = read(packages=[{"registryType": "mcpb"}], remotes=[{"type": "sse", "url": "https://x"}])
    (spec,) = merged.servers
    assert (spec.name, spec.kind, spec.enabled, merged.problems) == ("a", "sse", True, [])
    assert [note.key for note in spec.notes] == ["packages.0"]


def test_every_other_way_is_off_and_has_a_name_of_its_own() -> None:
    one = {"registryType": "npm", "identifier": "p", "version": "1"}
    merged = read(packages=[one, one, one], remotes=[{"type": "streamable-http", "url": "https://x"}])
    names = {spec.name: spec.enabled for spec in merged.servers}
    assert names == {"a": True, "a-npm": False, "a-npm-2": False, "a-streamable-http": False}


def test_the_version_is_exact_or_its_lack_is_noted() -> None:
    assert [note.key for note in package(version=None).notes] == ["version"]
    assert words(version=None) == ["npx", "-y", "p"]
    assert [note.key for note in package(runtimeHint="cobra").notes] == ["runtimeHint"]


def test_an_address_asks_for_what_it_needs() -> None:
    headers = [
        {"name": "A", "isRequired": True, "isSecret": True, "default": None},
        {"name": "B", "default": "b"},
    ]
    url = {"type": "streamable-http", "url": "https://{t}.x", "variables": {"t": {"choices": ["e", 5]}}}
    merged = read(remotes=[url | {"headers": headers}])
    assert merged.servers[0].transport == Http(
        "https://${input:a.t}.x", headers={"A": "${input:a.A}", "B": "b"}
    )
    assert [(item.id, item.secret, list(item.choices)) for item in merged.inputs] == [
        ("a.t", False, ["e", "5"]),
        ("a.A", True, []),
    ]


def test_an_address_that_is_none_is_a_problem() -> None:
    assert "needs a `url`" in read(remotes=[{"type": "sse"}]).problems[0].message
    assert "needs a name" in read(name=5, remotes=[{"type": "sse", "url": "https://x"}]).problems[0].message


def test_older_files_name_the_registry_and_the_package_otherwise() -> None:
    merged = read(packages=[{"registry_name": "npm", "name": "p", "version": "1"}])
    assert merged.servers[0].transport == Stdio("npx", ["-y", "p@1"])


@pytest.mark.parametrize("data", [{}, {"packages": 5}, {"servers": [5, {"server": 5}]}, {"server": {}}])
def test_what_describes_no_server_has_none(data: dict[str, Any]) -> None:
    merged = read(**data)
    assert (merged.servers, merged.problems) == ([], [])
