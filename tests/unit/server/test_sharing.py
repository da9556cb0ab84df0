"""A lease has everything that a connection has, so that a supervisor cannot tell the difference."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from dragoman.model import ServerSpec, Stdio
from dragoman.server import sharing
from dragoman.server.connection_events import ConnectionEvents

pytestmark = pytest.mark.requirement("users-process")

CONNECTION = Path(sharing.__file__).with_name("connection.py")
PAIRS = [("alice", "1"), ("alice", "2"), ("bob", "1")]


def public_names(class_name: str, path: Path) -> set[str]:
    """Return the public methods, properties and attributes of a class."""
    tree = ast.parse(path.read_text("utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    names = {node.name for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    names |= {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return {name for name in names if not name.startswith("_")}


def test_a_lease_has_every_public_name_of_a_connection() -> None:
    assert public_names("Connection", CONNECTION) <= public_names("Lease", Path(sharing.__file__))


def test_a_hub_passes_every_event_on() -> None:
    events = {name for name, _ in inspect.getmembers(ConnectionEvents, inspect.isfunction)}
    # Each lease asks for its own approval.
    assert events - {"admit"} <= public_names("_Hub", Path(sharing.__file__))


async def test_users_whose_children_would_inherit_other_values_share_no_process() -> None:
    shared = sharing.SharedConnections(between_users=True)
    child = Stdio("x", inherit_env=["WHO"])
    spec = ServerSpec("s", child, share=True)
    keys = [await shared.key(spec, child, {"WHO": who, "OTHER": other}, None) for who, other in PAIRS]
    assert None not in keys
    assert keys[0] == keys[1] != keys[2]
