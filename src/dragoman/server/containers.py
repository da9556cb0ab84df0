"""Containers that a server's command starts: they run outside of its family, and are ended by their id.

`docker run` and its likes only speak to a container that an engine runs. When the command ends, the
container may go on. So the engine is told to write the id of the container into a file of ours, or to label
the container where it cannot write one, and what is left is ended through the same engine. Approvals,
status and logs show the command as the user wrote it, without our options.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

LABEL = "dragoman.child"
SECONDS = 10.0
"""How long an engine may take to end a container."""

_ENGINES = frozenset({"docker", "podman", "nerdctl", "finch"})
_WRAPPERS = frozenset({"env", "sudo", "doas", "nice", "nohup", "stdbuf", "setsid", "time", "timeout"})
_FLAGS = frozenset({"-D", "--debug", "--tls", "--tlsverify", "-r", "--remote", "--syslog", "--trace"})
"""Options before `run` that take no value; every other one takes one."""
_VARIABLES = re.compile(r"DOCKER_|CONTAINER_|CONTAINERD_|NERDCTL_|PODMAN_|XDG_RUNTIME_DIR$|HOME$|PATH$")
_ID = re.compile(r"[0-9a-f]{12,64}")
_FILE_BYTES = 1024


class Container(NamedTuple):
    """The container of one child, which may exist."""

    engine: list[str]
    """The words that start the engine: the command up to `run`."""
    file: str
    """Where the engine writes the id; empty if it does not."""
    mark: str
    """What it is labelled with, if there is no file."""
    removes: bool
    """Whether the user wants it removed once it has ended."""
    env: dict[str, str]
    """How the engine is found."""

    def written(self) -> dict[str, Any]:
        """Return it for the ledger."""
        return self._asdict()

    @classmethod
    def read(cls, entry: object) -> Self:
        """Read it from the ledger.

        Raises:
            TypeError: It is not what `written` gives.
            ValueError: It is not a container engine.
        """
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        engine, env = fields.get("engine"), fields.get("env")
        if not isinstance(engine, list) or not isinstance(env, dict):
            msg = "it is not a container"
            raise TypeError(msg)
        words = [str(word) for word in cast("list[object]", engine)]
        if _run_at([*words, "run"]) != len(words):
            msg = "it is not a container engine"
            raise ValueError(msg)
        variables = cast("dict[object, object]", env)
        given = {str(name): str(value) for name, value in variables.items() if _VARIABLES.match(str(name))}
        file, mark = str(fields.get("file", "")), str(fields.get("mark", ""))
        return cls(words, file, mark, bool(fields.get("removes")), given)


def with_id(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, mark: str
) -> tuple[list[str], Container | None]:
    """Return a command that tells the id of the container it starts; as it was if it starts none.

    Args:
        argv: The command; its program is resolved.
        env: Its environment.
        folder: A private folder for the file.
        mark: What tells this child from others.
    """
    words = list(argv)
    at = _run_at(words)
    if at is None:
        return words, None
    options = words[at + 1 :]
    # The engine of a snap cannot write where we do, and the user's own file is the user's.
    labels = _is_snap(words[:at]) or any(word.partition("=")[0] == "--cidfile" for word in options)
    file = "" if labels else str(folder / f"{mark}.cid")
    more = [f"--label={LABEL}={mark}"] if labels else ["--cidfile", file]
    removes = any(word in ("--rm", "--rm=true") for word in options)
    found = {name: value for name, value in env.items() if _VARIABLES.match(name)}
    return [*words[: at + 1], *more, *options], Container(words[:at], file, mark, removes, found)


def end(container: Container) -> None:
    """End a container, if there is one; its command has ended already. Takes `SECONDS` for a step at most."""
    for identity in _identities(container):
        words = ["rm", "-f", identity] if container.removes else ["kill", identity]
        _engine(container, words)
    if container.file:
        with suppress(OSError):
            Path(container.file).unlink(missing_ok=True)


def _identities(container: Container) -> list[str]:
    if container.file:
        text = _content(container.file)
    else:
        text = _engine(container, ["ps", "-aq", "--no-trunc", "--filter", f"label={LABEL}={container.mark}"])
    return [word for word in text.split() if _ID.fullmatch(word)]


def _content(file: str) -> str:
    """Return what an engine wrote; nothing if there is no such file, or something else in its place."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _FILE_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _engine(container: Container, words: list[str]) -> str:
    """Run the engine; returns what it printed. An error mostly says that the container is gone."""
    env = {**os.environ, **container.env}
    try:
        done = subprocess.run(
            [*container.engine, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.warning(
            "a container may still run: `%s` failed: %s", container.engine[0], type(error).__name__
        )
        return ""
    return done.stdout[:65_536].decode("utf-8", "replace")


def _run_at(words: Sequence[str]) -> int | None:
    """Return where a command says `run` to a container engine."""
    at = 0
    if Path(words[0]).name in _WRAPPERS:
        at = next((at for at, word in enumerate(words) if Path(word).name in _ENGINES), 0)
    if Path(words[at]).name.removesuffix(".exe") not in _ENGINES:
        return None
    at += 1
    while at < len(words) and words[at].startswith("-"):
        takes_value = not (
            "=" in words[at]
            or words[at] in _FLAGS
            or (len(words[at]) > 2 and words[at][1] != "-")
            or words[at + 1 : at + 2] in (["run"], ["container"])
        )
        at += 2 if takes_value else 1
    if words[at : at + 1] == ["container"]:
        at += 1
    return at if words[at : at + 1] == ["run"] else None


def _is_snap(words: Sequence[str]) -> bool:
    return any(
        "/snap/" in os.path.realpath(word) or os.path.realpath(word).endswith("/snap") for word in words
    )
