"""The program as people and scripts run it: real servers, a configuration in the test's home."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from tests import warm

import dragoman.config.export
import dragoman.gateway.daemon
import dragoman.observe.call_history
from dragoman.cli.main import run
from dragoman.struct import Struct, UnsetType, defaults, field_names

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = Path(__file__).resolve().parents[2] / "servers"


def dragoman(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with its streams in files: its output, its errors, its exit code.

    Where an event loop runs, it is a process of its own.
    """
    if asyncio._get_running_loop() is not None:
        return warm.run(arguments, stdin=stdin, environment=os.environ | environment)
    with TemporaryFile("w+", encoding="utf-8") as given, written() as out, written() as err:
        given.write(stdin)
        given.seek(0)
        with as_the_program(given, out, err, environment):
            code = contextvars.copy_context().run(run, list(arguments))
            out.flush()
            err.flush()
        return subprocess.CompletedProcess(arguments, int(code), text_of(out), text_of(err))


def written() -> IO[str]:
    return TemporaryFile("w+", encoding="utf-8", errors="backslashreplace")


def text_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


@contextmanager
def as_the_program(
    given: IO[str], out: IO[str], err: IO[str], environment: Mapping[str, str]
) -> Iterator[None]:
    """Have other standard streams and variables, and no handler of the log that a test has set up."""
    streams, variables = (sys.stdin, sys.stdout, sys.stderr), dict(os.environ)
    loggers = [logging.getLogger(), logging.getLogger("dragoman")]
    states = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    sys.stdin, sys.stdout, sys.stderr = given, out, err
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        for logger, handlers, level, propagates in states:
            logger.handlers[:], logger.level, logger.propagate = handlers, level, propagates


def dragoman_command() -> list[str]:
    """Return the command of the program; a warm one for tests with the fixture `warm_python`."""
    return [sys.executable, "-m", "dragoman"]


def dragoman_process(
    *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own: for tests of that process, of a daemon, and of asyncio."""
    return subprocess.run(
        [*dragoman_command(), *arguments],
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        env=os.environ | environment,
    )


def entry(script: str, *args: str, **more: Any) -> dict[str, Any]:
    """Return the entry of one of tests/servers."""
    command, *words = warm.server_command(SERVERS / script, *args)
    return {"command": command, "args": words, **more}


def configure(**servers: dict[str, Any]) -> Path:
    """Write the user's own configuration, which needs no approval."""
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


def misfits(value: Any, shape: Any, where: str = "$") -> list[str]:
    """Say where a value is not what a struct promises of its JSON."""
    if isinstance(shape, type) and issubclass(shape, Struct):
        return _misfits_of_struct(value, shape, where)
    origin, args = get_origin(shape), get_args(shape)
    if shape is Any:
        return []
    if origin in (Union, types.UnionType):
        return (
            []
            if any(not misfits(value, arg, where) for arg in args)
            else [f"{where}: {value!r} is no {shape}"]
        )
    if origin is Literal:
        return [] if value in args else [f"{where}: {value!r} is none of {args}"]
    if origin is Sequence:
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [
            one for index, item in enumerate(value) for one in misfits(item, args[0], f"{where}[{index}]")
        ]
    if origin is Mapping:
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no object"]
        return [one for key, item in value.items() for one in misfits(item, args[1], f"{where}.{key}")]
    kinds = {float: (int, float), Path: (str,)}.get(shape, (shape,))
    fits = isinstance(value, kinds) and (shape is bool or not isinstance(value, bool))
    return [] if fits else [f"{where}: {value!r} is no {shape}"]


def _misfits_of_struct(value: Any, shape: type[Struct], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    names = {"Mapping": Mapping, "Sequence": Sequence, "Path": Path} | {
        kind.__name__: kind for kind in _subclasses(Struct) if kind.__module__.startswith("dragoman.")
    }
    hints = get_type_hints(shape, localns=names)
    keys = set(field_names(shape))
    found = [f"{where}: `{key}` is not in {shape.__name__}" for key in value.keys() - keys]
    absent = {key for key in keys if UnsetType in get_args(hints[key])}
    absent |= set(defaults(shape)) if shape.__struct_config__.omit_defaults else set()
    found += [f"{where}: `{key}` of {shape.__name__} is missing" for key in keys - absent - value.keys()]
    for key in value.keys() & keys:
        found += misfits(value[key], hints[key], f"{where}.{key}")
    return found


def _subclasses(kind: type[Struct]) -> list[type[Struct]]:
    return [one for direct in kind.__subclasses__() for one in (direct, *_subclasses(direct))]
