"""The file of users: what it gives, and what is said about mistakes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.config.users import read_users
from dragoman.errors import ConfigError

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


def test_a_user_without_an_entry_is_unknown_unless_there_is_one_for_others(tmp_path: Path) -> None:
    users = read_users(written(tmp_path, GOOD.replace("${", "$${")))
    assert users.settings("mallory") is users.settings("*") is None
    users = read_users(written(tmp_path, "[users.bob]\n[users.'*']\nenv = { A = 'x' }"))
    assert users.settings("mallory") == users.settings("*") == {"env": {"A": "x"}}
    assert users.settings("bob") == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[users.a]\ntoken = '${NOT_SET}'", "2: users.a.token: ${NOT_SET} is not set"),
        ("[users.a]\ntoken = '${NOT_SET:-}'", "users.a.token: this is empty"),
        ("[users.a]\ntoken = '${keyring:a/b}'", "users.a.token: ${keyring:a/b} is not set"),
        ("[users.a]\ntoken = 't'\n[users.b]\ntoken = 't'", "`b` and `a` have the same token"),
        ("[users.a]\ntoken = ''", "users.a.token: this must be a text that is not empty"),
        ("[users.a]\ntoken = 3", "users.a.token: this must be a text that is not empty"),
        ("[users.a]\nenv = 3", "users.a.env: this must be a table"),
        ("[users.a]\nenv = { A = 3 }", "users.a.env.A: this must be a text"),
        ("[users.a]\npolicy = [{ action = 'allwo' }]", "users.a.policy: rule 1: `action` must be"),
        ("[users.a]\npolicy = 3", "users.a.policy: `rules` must be a list"),
        ("[users.a]\ntokens = 't'", "users.a.tokens: unknown key; the keys are env, policy, token"),
        ("[users]\na = 3", "users.a: this must be a table"),
        ("[users.'']", "this is not the name of a user"),
        ("[user.a]\ntoken = 't'", "user: unknown key"),
        ("users = 3", "users: this must be a table"),
        ("open = 0", "`open` is at least 1"),
        ("open = 'x'", "`open` and `idle` must be numbers"),
        ("[users.'*']\ntoken = 't'", "`*` stands for users who come with a token of an issuer"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(content: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as failed:
        read_users(path, {})
    assert str(failed.value).startswith(str(path))
    assert said in str(failed.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file does not exist"):
        read_users(tmp_path / "users.toml")
