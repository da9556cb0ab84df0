"""Secrets from a keyring and from commands."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any

import keyring
import pytest
from keyring.backend import KeyringBackend

from dragoman import Http, ServerSpec, Stdio
from dragoman.config.templates import ExpansionContext, expand_auth, expand_transport
from dragoman.errors import MissingVariableError
from dragoman.model import Auth, Origin
from dragoman.server import prepare
from dragoman.server.prepare import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


class Drawer(KeyringBackend):
    """A keyring in memory, which may be locked, or wait for a person."""

    priority: Any = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str]] = []
        self.locked = False
        self.person = threading.Event()
        self.person.set()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append((service, username))
        self.person.wait(30)
        if self.locked:
            raise keyring.errors.KeyringLocked("the secret is canary-in-error")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    before, made = keyring.get_keyring(), Drawer()
    keyring.set_keyring(made)
    yield made
    made.person.set()
    keyring.set_keyring(before)


def around(folder: Path | str = "") -> ExpansionContext:
    return ExpansionContext(env=dict(os.environ), root=str(folder), home="/home/ann")


def python(code: str, *args: str) -> str:
    """A reference to what a piece of Python prints."""
    return f"${{command:{shlex.join([sys.executable, '-S', '-c', code, *args])}}}"


def printing(what: str) -> str:
    return python(f"import sys; sys.stdout.write({what!r})")


def spec_with(value: str, **more: Any) -> ServerSpec:
    return ServerSpec(
        "one",
        Http("https://example.com/mcp", headers={"Authorization": value}),
        origin=Origin(source="mcp.json", scope="user", pointer="mcpServers.one", line=2),
        lines={"headers.Authorization": 7},
        **more,
    )


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def value_of(reference: str, folder: Path | str = "") -> str:
    spec = spec_with(reference)
    transport = expand_transport(spec, await fetch(spec, around(folder)))
    assert isinstance(transport, Http)
    return transport.headers["Authorization"]


async def refusal(reference: str, **more: Any) -> MissingVariableError:
    with pytest.raises(MissingVariableError) as caught:
        await fetch(spec_with(reference, **more), around())
    return caught.value


async def test_nothing_is_asked_where_nothing_is_referred_to() -> None:
    expansion = around()
    assert await fetch(spec_with("Bearer ${TOKEN} $${command:false}"), expansion) is expansion


@pytest.mark.parametrize(
    ("printed", "value"), [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" ä ", " ä ")]
)
async def test_a_command_gives_what_it_prints_without_its_last_line_break(printed: str, value: str) -> None:
    code = f"import sys; sys.stdout.buffer.write({printed.encode()!r})"
    assert await value_of(f"Bearer {python(code)}!") == f"Bearer {value}!"


async def test_no_shell_reads_the_words(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    words = ["a b", "$HOME", ";touch", "x", "`y`", "$(z)", "|", ">out", "*"]
    assert await value_of(python(code, *words), tmp_path) == str(words)
    assert files_of(tmp_path) == []


async def test_a_command_runs_in_the_project_with_our_variables_and_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_SESSION", "open")
    code = "import os, sys; print(os.getcwd(), os.environ['VAULT_SESSION'], repr(sys.stdin.read(1)))"
    assert await value_of(python(code), tmp_path) == f"{tmp_path} open ''"


async def test_a_program_may_lie_in_the_home_directory(tmp_path: Path) -> None:
    program = tmp_path / "give"
    program.write_text("#!/bin/sh\necho given\n", "utf-8")
    program.chmod(0o755)
    spec = spec_with("${command:~/give}")
    found = await fetch(spec, around().replace(home=str(tmp_path)))
    assert found.fetched == {"command:~/give": "given"}


async def test_the_same_command_runs_once_for_all_fields(tmp_path: Path) -> None:
    count = tmp_path / "count"
    reference = python(f"open({str(count)!r}, 'a').write('x'); print('token')")
    transport = Http("https://example.com/mcp", headers={"A": reference, "B": f"Bearer {reference}"})
    spec = ServerSpec("one", transport, auth=Auth(mode="oauth", client_id="me", client_secret=reference))
    expansion = await fetch(spec, around())
    expanded, auth = expand_transport(spec, expansion), expand_auth(spec, expansion)
    assert isinstance(expanded, Http)
    assert (expanded.headers, auth and auth.client_secret) == ({"A": "token", "B": "Bearer token"}, "token")
    assert count.read_text("utf-8") == "x"


async def test_every_field_may_refer_to_a_command() -> None:
    one = printing("v")
    stdio = Stdio(one, [one], env={"A": one, "GONE": None}, cwd=one, env_file=[one], log_file=f"/{one}")
    spec = ServerSpec("one", stdio)
    expanded = expand_transport(spec, await fetch(spec, around()))
    assert expanded == Stdio("v", ["v"], env={"A": "v", "GONE": None}, cwd="v", env_file=["v"], log_file="/v")


@pytest.mark.parametrize(
    ("reference", "words", "hint"),
    [
        (python("raise SystemExit(3)"), "failed (exit code 3)", "in a terminal"),
        (python("import os; os.kill(os.getpid(), 9)"), "failed (signal 9)", "in a terminal"),
        (python("pass"), "printed nothing", "standard output"),
        (printing("\n"), "printed nothing", "standard output"),
        (printing("a\0b"), "printed something that is not text", "standard output"),
        (python("import sys; sys.stdout.buffer.write(b'\\xff')"), "is not text", "standard output"),
        ("${command:/no/such/program}", "could not be started (No such file", "PATH"),
        ("${command:'open}", "cannot be split into words", "quotes"),
        ("${command: }", "names no program", "write"),
    ],
)
async def test_a_command_without_a_value_is_an_error_that_says_where_it_stands(
    reference: str, words: str, hint: str
) -> None:
    error = await refusal(reference)
    assert words in str(error)
    assert hint in error.hint
    assert (error.source, error.line, error.pointer) == (
        "mcp.json",
        7,
        "mcpServers.one.headers.Authorization",
    )
    assert "`headers.Authorization` of server `one`" in str(error)


async def test_an_error_shows_neither_secrets_among_the_words_nor_what_was_printed() -> None:
    code = "import sys; print('canary-out'); print('canary-err', file=sys.stderr); sys.exit(1)"
    error = await refusal(python(code, "--token", "canary-word").replace("canary-out", "canary-o'+'ut"))
    assert "•••" in str(error)
    for text in (str(error), repr(error), error.variable):
        assert "canary-word" not in text
        assert "canary-out" not in text


async def test_a_command_that_prints_too_much_is_ended() -> None:
    error = await refusal(python("while True: print('x' * 10_000)"))
    assert "printed more than 65,536 bytes" in str(error)


async def test_a_command_that_does_not_end_is_ended() -> None:
    error = await refusal(python("import time; time.sleep(600)"), timeouts={"connect": 0.3})
    assert "gave nothing within 0.3 s" in str(error)
    assert "`timeouts.connect`" in error.hint


async def test_a_cancelled_fetch_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    # The command itself is gone at once; its child holds the output open, and the pipe that is watched here.
    code = (
        "import os, subprocess, sys\n"
        f"file = open({str(held)!r}, 'wb', buffering=0)\n"
        "os.set_inheritable(file.fileno(), True)\n"
        "sleep = 'import time; time.sleep(600)'\n"
        "subprocess.Popen([sys.executable, '-S', '-c', sleep], close_fds=False)\n"
        "file.write(b'x')"
    )
    task = asyncio.ensure_future(fetch(spec_with(python(code)), around()))
    with await asyncio.to_thread(held.open, "rb", buffering=0) as reader:
        assert await asyncio.to_thread(reader.read, 1) == b"x"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The end comes when no process has the pipe open.
        assert await asyncio.to_thread(reader.read, 1) == b""


async def test_a_keyring_gives_an_entry(drawer: Drawer) -> None:
    drawer.entries["https://example.com/x", "ann"] = "t0ken"
    assert await value_of("Bearer ${keyring:https://example.com/x/ann}") == "Bearer t0ken"
    assert drawer.asked == [("https://example.com/x", "ann")]


@pytest.mark.parametrize(
    ("reference", "words", "hint"),
    [
        ("${keyring:dragoman/ann}", "is not there", "keyring set dragoman ann"),
        ("${keyring:dragoman}", "names no entry", "service/name"),
        ("${keyring:/ann}", "names no entry", "service/name"),
    ],
)
async def test_a_keyring_entry_without_a_value_is_an_error(
    drawer: Drawer, reference: str, words: str, hint: str
) -> None:
    error = await refusal(reference)
    assert words in str(error)
    assert hint in error.hint
    assert error.line == 7


async def test_a_keyring_in_trouble_says_what_to_do_and_shows_nothing(drawer: Drawer) -> None:
    drawer.locked = True
    error = await refusal("${keyring:dragoman/ann}")
    assert "could not be read (KeyringLocked)" in str(error)
    assert "unlock" in error.hint
    assert "canary" not in f"{error!r}{error.__cause__!r}{error.__context__!r}"


async def test_a_keyring_that_waits_for_a_person_does_not_hold_the_loop(drawer: Drawer) -> None:
    drawer.person.clear()
    error = await refusal("${keyring:dragoman/ann}", timeouts={"connect": 0.05})
    assert "gave nothing within 0.05 s" in str(error)


async def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    error = await refusal("${keyring:dragoman/ann}")
    assert "dragoman[keyring]" in error.hint


def test_the_limits_are_ours() -> None:
    assert prepare.MAX_BYTES == 64 * 1024
