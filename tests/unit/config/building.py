"""Entries of dragoman's own dialect and the servers that they make, for the tests of what builds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.config.dialect import Entry, entries_at
from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.entries import build
from dragoman.errors import InvalidSpecError
from dragoman.model import Layers, Settings
from dragoman.trust.layers import as_read

if TYPE_CHECKING:
    from dragoman.config.merge import Merged
    from dragoman.model import ServerSpec

NATIVE = dialect("dragoman")


def entry(fields: Any, name: str = "s") -> Entry:
    document = parse(json.dumps({"mcpServers": {name: fields}}, indent=1), "f.json", "json")
    return entries_at(document, ("mcpServers",))[0]


def built(fields: dict[str, Any], **changes: Any) -> ServerSpec:
    return build(entry(fields), NATIVE.replace(**changes), "user")


def refused(fields: Any, name: str = "s", **changes: Any) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as caught:
        build(entry(fields, name), NATIVE.replace(**changes), "user")
    assert caught.value.source == "f.json"
    assert caught.value.line is not None
    return caught.value


def in_effect(merged: Merged) -> Settings:
    """Return what holds where everything is trusted."""
    layers = Layers(
        servers=merged.servers,
        own=merged.own,
        statements=merged.statements,
        problems=merged.problems,
        naming="",
    )
    return as_read(Settings(layers=layers))


def notes(spec: ServerSpec) -> list[str]:
    return [f"{note.code} {note.key}" for note in spec.notes]
