"""The file of `dragoman serve --users`: who uses the gateway, and what holds for each of them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dragoman.config.templates import ExpansionContext, expand
from dragoman.errors import ConfigError
from dragoman.gateway.auth import Refused
from dragoman.manager.users import MAX_ID_CHARS
from dragoman.model import UserLimits
from dragoman.trust.policy import read_policy

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS = "*"
"""The entry of users who have none of their own."""
_KEYS = {"token", "env", "policy"}


@dataclass(frozen=True)
class UsersFile:
    """The users of a gateway."""

    limits: UserLimits
    tokens: Mapping[str, str]
    """Users, by their tokens."""
    entries: Mapping[str, Mapping[str, Any]]
    """The arguments of `McpManager.as_user`, by user."""

    def settings(self, user: str) -> Mapping[str, Any]:
        """Return the arguments of `McpManager.as_user` for a user.

        Raises:
            Refused: The file has no entry for this user, and none for others.
        """
        # A user with the name `*` gets no more than the others.
        found = self.entries.get(user) if user != OTHERS else None
        found = self.entries.get(OTHERS) if found is None else found
        if found is None:
            raise Refused(403, "unknown user")
        return found


def read_users(path: Path, env: Mapping[str, str] | None = None) -> UsersFile:
    """Read the file; `${VARIABLE}` in tokens and in `env` is replaced.

    Raises:
        ConfigError: It cannot be read, or an entry is wrong.
    """
    reader = _Reader(path, os.environ if env is None else env)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as exc:
        reader.fail(f"cannot be read: {exc.strerror}")
    except ValueError as exc:
        reader.fail(f"is not TOML: {exc}")
    return reader.users(document)


class _Reader:
    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self._path = path
        self._expansion = ExpansionContext(env=env, root=str(Path.cwd()), home=str(Path.home()), fetched={})

    def users(self, document: Mapping[str, Any]) -> UsersFile:
        if unknown := sorted(document.keys() - {"users", "open", "idle"}):
            self.fail(f"has an unknown key `{unknown[0]}`; it takes `users`, `open` and `idle`")
        limits = {key: document[key] for key in ("open", "idle") if key in document}
        if not isinstance(limits.get("open", 1), int) or not isinstance(limits.get("idle", 1), int | float):
            self.fail("`open` and `idle` must be numbers")
        tables: object = document.get("users", {})
        if not isinstance(tables, dict):
            self.fail("`users` must be a table")
        tokens: dict[str, str] = {}
        entries: dict[str, dict[str, Any]] = {}
        for user, table in cast("dict[str, object]", tables).items():
            if not isinstance(table, dict) or not 0 < len(user) <= MAX_ID_CHARS:
                self.fail(f"`users.{user}` must be a table with the name of a user")
            entry = self._entry(user, cast("dict[str, Any]", table))
            token = entry.pop("token", None)
            if token is not None and tokens.setdefault(token, user) != user:
                self.fail(f"`{user}` and `{tokens[token]}` have the same token")
            entries[user] = entry
        try:
            return UsersFile(UserLimits(**limits, alone=True), tokens, entries)
        except ValueError as exc:
            self.fail(str(exc))

    def _entry(self, user: str, table: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := sorted(table.keys() - _KEYS):
            self.fail(
                f"`users.{user}` has an unknown key `{unknown[0]}`; it takes {', '.join(sorted(_KEYS))}"
            )
        entry = dict(table)
        if "token" in entry:
            entry["token"] = self._text(f"users.{user}.token", entry["token"])
            if user == OTHERS:
                self.fail("`*` cannot have a token: it stands for users who come with one of an issuer")
        variables: object = entry.get("env", {})
        if not isinstance(variables, Mapping):
            self.fail(f"`users.{user}.env` must be a table of texts")
        if variables:
            entry["env"] = {
                name: self._text(f"users.{user}.env.{name}", value)
                for name, value in cast("Mapping[str, object]", variables).items()
            }
        # A rule that cannot be read denies what it names, but a gateway with a mistake is not started at all.
        if problems := read_policy(entry.get("policy", []), scope="code").problems:
            self.fail(f"`users.{user}.policy`: {problems[0]}")
        return entry

    def _text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            self.fail(f"`{key}` must be a text that is not empty")
        found = expand(value, self._expansion, self._missing(key))
        if not found:
            self.fail(f"`{key}` is empty")
        return found

    def _missing(self, key: str) -> Callable[[str, str], str]:
        return lambda _name, whole: self.fail(f"`{key}`: {whole} is not set")

    def fail(self, what: str) -> NoReturn:
        msg = f"{self._path}: {what}" if what.startswith("`") else f"{self._path} {what}"
        raise ConfigError(msg, hint="fix the file and start the gateway again")
