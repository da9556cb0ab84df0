"""The file of `dragoman serve --users`: who uses the gateway, and what holds for each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dragoman.config.files import read
from dragoman.config.templates import ExpansionContext, expand
from dragoman.errors import ConfigError
from dragoman.model import MAX_USER_CHARS, UserLimits
from dragoman.trust.policy import read_policy

if TYPE_CHECKING:
    from dragoman.config.documents import Document

OTHERS = "*"
"""The entry of users who have none of their own."""
_LIMITS = ("open", "idle")
_KEYS = {"token", "env", "policy"}


@dataclass(frozen=True)
class UsersFile:
    """The users of a gateway."""

    limits: UserLimits
    tokens: Mapping[str, str]
    """Users, by their tokens."""
    entries: Mapping[str, Mapping[str, Any]]
    """The arguments of `McpManager.as_user`, by user."""

    def settings(self, user: str) -> Mapping[str, Any] | None:
        """Return the arguments of `McpManager.as_user` for a user.

        `None` if the file has no entry for this user, and none for others.
        """
        # A user with the name `*` gets no more than the others.
        found = self.entries.get(user) if user != OTHERS else None
        return self.entries.get(OTHERS) if found is None else found


def read_users(path: Path, env: Mapping[str, str] | None = None) -> UsersFile:
    """Read the file; `${VARIABLE}` in tokens and in `env` is replaced.

    Raises:
        ConfigError: It cannot be read, or an entry is wrong.
    """
    try:
        document = read(path, "toml")
    except FileNotFoundError:
        msg = "the file does not exist"
        raise ConfigError(msg, source=str(path)) from None
    return _Reader(document, os.environ if env is None else env).users()


class _Reader:
    def __init__(self, document: Document, env: Mapping[str, str]) -> None:
        self._document = document
        self._expansion = ExpansionContext(env=env, root=str(Path.cwd()), home=str(Path.home()), fetched={})

    def users(self) -> UsersFile:
        found = cast("Mapping[str, Any]", self._document.data)
        self._check_keys((), found, {"users", *_LIMITS})
        limits = {key: found[key] for key in _LIMITS if key in found}
        if not isinstance(limits.get("open", 1), int) or not isinstance(limits.get("idle", 1), int | float):
            self._fail("`open` and `idle` must be numbers")
        tokens: dict[str, str] = {}
        entries: dict[str, dict[str, Any]] = {}
        for user, table in self._table(("users",), found.get("users", {})).items():
            if not 0 < len(user) <= MAX_USER_CHARS:
                self._fail("this is not the name of a user", "users", user)
            entry = self._entry(user, self._table(("users", user), table))
            token = entry.pop("token", None)
            if token is not None and tokens.setdefault(token, user) != user:
                self._fail(f"`{user}` and `{tokens[token]}` have the same token")
            entries[user] = entry
        try:
            return UsersFile(UserLimits(**limits, alone=True), tokens, entries)
        except ValueError as exc:
            self._fail(str(exc))

    def _entry(self, user: str, table: Mapping[str, Any]) -> dict[str, Any]:
        place = ("users", user)
        self._check_keys(place, table, _KEYS)
        entry = dict(table)
        if "token" in entry:
            entry["token"] = self._text((*place, "token"), entry["token"])
            if user == OTHERS:
                self._fail("`*` stands for users who come with a token of an issuer", *place, "token")
        if variables := self._table((*place, "env"), entry.get("env", {})):
            entry["env"] = {
                name: self._text((*place, "env", name), value) for name, value in variables.items()
            }
        # A rule that cannot be read denies what it names, but a gateway with a mistake is not started at all.
        if problems := read_policy(entry.get("policy", []), scope="code").problems:
            self._fail(str(problems[0]), *place, "policy")
        return entry

    def _check_keys(self, place: tuple[str, ...], table: Mapping[str, Any], known: set[str]) -> None:
        if unknown := sorted(table.keys() - known):
            self._fail(f"unknown key; the keys are {', '.join(sorted(known))}", *place, unknown[0])

    def _table(self, place: tuple[str, ...], value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._fail("this must be a table", *place)
        return cast("Mapping[str, Any]", value)

    def _text(self, place: tuple[str, ...], value: object) -> str:
        if not isinstance(value, str) or not value:
            self._fail("this must be a text that is not empty", *place)
        found = expand(value, self._expansion, lambda _, whole: self._fail(f"{whole} is not set", *place))
        if not found:
            self._fail("this is empty", *place)
        return found

    def _fail(self, what: str, *place: str) -> NoReturn:
        raise ConfigError(
            what,
            source=self._document.source,
            pointer=".".join(place),
            line=self._document.line(place),
            hint="fix the file and start the gateway again",
        )
