"""The program as people and scripts run it: a real process, real servers, a configuration in the test's home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

SERVERS = Path(__file__).resolve().parents[2] / "servers"
PROGRAM = [sys.executable, "-m", "dragoman"]


def dragoman(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        env=os.environ | environment,
    )


def entry(script: str, *args: str, **more: Any) -> dict[str, Any]:
    """Return the entry of one of tests/servers."""
    return {"command": sys.executable, "args": [str(SERVERS / script), *args], **more}


def configure(**servers: dict[str, Any]) -> Path:
    """Write the user's own configuration, which needs no approval."""
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


def misfits(value: Any, shape: Any, where: str = "$") -> list[str]:
    """Say where a value is not what a shape of `dragoman.cli.json_shapes` promises."""
    if is_typeddict(shape):
        return _misfits_of_table(value, shape, where)
    origin, args = get_origin(shape), get_args(shape)
    if shape is Any:
        return []
    if origin in (NotRequired, Required):
        return misfits(value, args[0], where)
    if origin in (Union, types.UnionType):
        return (
            []
            if any(not misfits(value, arg, where) for arg in args)
            else [f"{where}: {value!r} is no {shape}"]
        )
    if origin is Literal:
        return [] if value in args else [f"{where}: {value!r} is none of {args}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [
            one for index, item in enumerate(value) for one in misfits(item, args[0], f"{where}[{index}]")
        ]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no object"]
        return [one for key, item in value.items() for one in misfits(item, args[1], f"{where}.{key}")]
    kinds = (int, float) if shape is float else (shape,)
    fits = isinstance(value, kinds) and (shape is bool or not isinstance(value, bool))
    return [] if fits else [f"{where}: {value!r} is no {shape}"]


def _misfits_of_table(value: Any, shape: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    hints = get_type_hints(shape, include_extras=True)
    found = [f"{where}: `{key}` is not in {shape.__name__}" for key in value.keys() - hints.keys()]
    optional = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
    lacking = (hints.keys() - optional - value.keys()) if shape.__total__ else set()
    found += [f"{where}: `{key}` of {shape.__name__} is missing" for key in lacking]
    for key in value.keys() & hints.keys():
        found += misfits(value[key], hints[key], f"{where}.{key}")
    return found
