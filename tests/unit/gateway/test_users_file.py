"""The file of users: what it gives, and what is said about mistakes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.auth import Refused
from dragoman.gateway.users_file import read_users

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("users-gateway", "users-policy")

GOOD = """
open = 5

[users.alice]
token = "${ALICE}"
env = { MAIL = "Bearer ${ALICE_MAIL}" }
policy = [{ action = "deny", server = "files" }]

[users.bob]
token = "b"
"""


def written(folder: Path, content: str) -> Path:
    path = folder / "users.toml"
    path.write_text(content)
    return path


def test_variables_are_replaced_and_tokens_kept_apart(tmp_path: Path) -> None:
    users = read_users(written(tmp_path, GOOD), {"ALICE": "a", "ALICE_MAIL": "m"})
    assert users.tokens == {"a": "alice", "b": "bob"}
    rules = [{"action": "deny", "server": "files"}]
    assert users.settings("alice") == {"env": {"MAIL": "Bearer m"}, "policy": rules}
    assert users.settings("bob") == {}
    assert (users.limits.open, users.limits.idle, users.limits.alone) == (5, 600, True)


def test_a_user_without_an_entry_is_refused_unless_there_is_one_for_others(tmp_path: Path) -> None:
    users = read_users(written(tmp_path, GOOD.replace("${", "$${")))
    for user in ("mallory", "*"):
        with pytest.raises(Refused):
            users.settings(user)
    users = read_users(written(tmp_path, "[users.bob]\n[users.'*']\nenv = { A = 'x' }"))
    assert users.settings("mallory") == users.settings("*") == {"env": {"A": "x"}}
    assert users.settings("bob") == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[users.a]\ntoken = '${NOT_SET}'", "`users.a.token`: ${NOT_SET} is not set"),
        ("[users.a]\ntoken = '${NOT_SET:-}'", "`users.a.token` is empty"),
        ("[users.a]\ntoken = '${keyring:a/b}'", "`users.a.token`: ${keyring:a/b} is not set"),
        ("[users.a]\ntoken = 't'\n[users.b]\ntoken = 't'", "`b` and `a` have the same token"),
        ("[users.a]\ntoken = ''", "`users.a.token` must be a text that is not empty"),
        ("[users.a]\ntoken = 3", "`users.a.token` must be a text that is not empty"),
        ("[users.a]\nenv = 3", "`users.a.env` must be a table of texts"),
        ("[users.a]\nenv = { A = 3 }", "`users.a.env.A` must be a text"),
        ("[users.a]\npolicy = [{ action = 'allwo' }]", "`users.a.policy`: rule 1: `action` must be"),
        ("[users.a]\npolicy = 3", "`users.a.policy`: `rules` must be a list"),
        ("[users.a]\ntokens = 't'", "unknown key `tokens`; it takes env, policy, token"),
        ("[users]\na = 3", "`users.a` must be a table"),
        ("[users.'']", "`users.` must be a table with the name of a user"),
        ("[user.a]\ntoken = 't'", "unknown key `user`"),
        ("users = 3", "`users` must be a table"),
        ("open = 0", "`open` is at least 1"),
        ("open = 'x'", "`open` and `idle` must be numbers"),
        ("[users.'*']\ntoken = 't'", "`*` cannot have a token"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_mistake_is_named(content: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as failed:
        read_users(path, {})
    assert str(failed.value).startswith(str(path))
    assert said in str(failed.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_users(tmp_path / "users.toml")
