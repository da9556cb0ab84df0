"""Every command that a message says to type: it is run as it was printed, in the situation that printed it.

The commands are collected from the sources. A new one without a situation here fails a test.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from tests.behaviour.turning import SERVER as COAT
from tests.behaviour.turning import Turncoat
from tests.unit.cli.program import SERVERS, configure, dragoman, dragoman_process, entry
from tests.unit.cli.terminal import CTRL_D, PROMPT, at_terminal

import dragoman as package
from dragoman.cli.main import cli
from dragoman.server.oauth.token_store import Login, TokenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

SOURCES = Path(package.__file__).parent
COMMANDS = frozenset(cli.list_commands(click.Context(cli)))
NOUNS = {
    "call log": "the name of a log",
    "map 1": "the format of a journal",
    "map": "the name of a program in a message",
    "daemon": "the name of a thread",
    "login": "the beginning of a command, which is compared",
    "set ([^": "a pattern that finds such commands",
    "trust approve": "a text that is replaced by the same command with options",
    "unset": "the name of the command that removes a value",
    "top": "the command that was typed",
    "serve": "the command that an application starts",
    "install": "the command that was typed",
}
"""What looks like a command but is not one to type."""
ELSEWHERE = {
    "login {} --paste": "behaviour/test_cli_logins.py::on_a_terminal",
    "skills {} --approve {}": 'behaviour/test_cli_tasks.py::"skills", "m", "--approve"',
    "serve --http 8000": 'behaviour/test_gateway.py::"--http"',
    "map TOOL rows.csv --out results.csv": 'unit/cli/commands/test_map.py::"--out", "out.csv"',
    "trust pin {}{}": 'behaviour/test_cli_pins.py::"trust", "pin"',
    "approvals": 'unit/cli/commands/test_approvals.py::dragoman("approvals")',
    "approvals show {}": 'unit/cli/commands/test_approvals.py::"approvals", "show"',
    "approvals show {}{}": 'unit/cli/commands/test_approvals.py::"approvals", "show"',
    "approvals approve {}{}": 'unit/cli/commands/test_approvals.py::"approvals", "approve"',
    "approvals deny {}{}": 'unit/cli/commands/test_approvals.py::"approvals", "deny"',
    "web": 'unit/cli/commands/test_web.py::"web"',
    "completion bash": "unit/cli/test_completing.py::bash",
    "completion powershell | Out-String | Invoke-Expression": "unit/cli/test_completing.py::powershell",
    "completion powershell | Out-String | Invoke-Expression # in $PROFILE": (
        "unit/cli/test_completing.py::powershell"
    ),
    "completion zsh": "unit/cli/test_completing.py::zsh",
    "completion fish > ~/.config/fish/completions/dragoman.fish": "unit/cli/test_completing.py::fish",
}
"""Commands that another test carries out: its file, and what it has of the command."""

Situation = dict[str, "Callable[..., None]"]
SITUATIONS: Situation = {}


def prints(*commands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a test as the situation of some commands."""

    def register(test: Callable[..., None]) -> Callable[..., None]:
        SITUATIONS.update(dict.fromkeys(commands, test))
        return test

    return register


def printed(done: CompletedProcess[str] | str, beginning: str) -> list[str]:
    """Return the words of the only command with this beginning that a text says to type."""
    text = done if isinstance(done, str) else done.stdout + done.stderr
    said = [one[1] or one[2] for one in re.finditer(r"`(dragoman [^`]+)`|(?:→|:) (dragoman [^\n)`]+)", text)]
    found = {one.strip().rstrip(".") for one in said if one.startswith(f"dragoman {beginning}")}
    assert len(found) == 1, f"{beginning!r} is printed as {found} in:\n{text}"
    program, *words = shlex.split(found.pop())
    assert program == "dragoman"
    return words


def typed(done: CompletedProcess[str] | str, beginning: str, stdin: str = "") -> CompletedProcess[str]:
    """Type the command that a text says to type; it must succeed."""
    found = dragoman(*printed(done, beginning), stdin=stdin)
    assert found.returncode == 0, found.stdout + found.stderr
    return found


def script(text: str) -> dict[str, Any]:
    """Return the entry of a program that runs some lines, and then is an ordinary server."""
    path = Path("moody.py").absolute()
    server = f"import runpy; runpy.run_path({str(SERVERS / 'plain.py')!r}, run_name='__main__')"
    head = f"import os, sys; sys.path.insert(0, {str(SERVERS)!r})"
    path.write_text(f"{head}\n{text}\n{server}\n", "utf-8")
    return {"command": sys.executable, "args": [str(path)]}


# What is collected


def collected() -> dict[str, list[str]]:
    """Return every command in a text of the sources, with `{}` for what is filled in, and where it stands."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        left_out: set[ast.AST] = set()
        for node in ast.walk(tree):
            body: list[ast.stmt] = (
                getattr(node, "body", None) if isinstance(node, ast.Module | _BODIES) else []
            )  # type: ignore[assignment]
            left_out |= {one.value for one in body or [] if isinstance(one, ast.Expr)}
            left_out |= set(node.values) if isinstance(node, ast.JoinedStr) else set()
        for node in ast.walk(tree):
            if node not in left_out and isinstance(node, ast.Constant | ast.JoinedStr):
                for command in in_text(filled(node)):
                    found.setdefault(command, []).append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    return found


_BODIES = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def filled(node: ast.AST) -> str:
    """Return the text of a literal; what an expression fills in is `{}`, or the option that it may add."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(filled(one) for one in values)
        case ast.FormattedValue(value=ast.BinOp(left=ast.Constant(value=str(text)))):
            return text
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="typed"), args=[given, *_])):
            return filled(given)
        case ast.FormattedValue():
            return "{}"
        case _:
            return ""


def in_text(text: str) -> list[str]:
    """Return the commands in a text: in backticks, or up to the end of the line."""
    found: list[str] = []
    for match in re.finditer(r"`dragoman ([^`]+)`?|\bdragoman ([a-z][^`\n)\"]*)", text):
        said = re.split(r"\. [A-Z][^:]*: dragoman ", " ".join((match[1] or match[2]).split()))
        found += [command for command in said if command.partition(" ")[0] in COMMANDS]
    return found


def test_every_command_that_is_printed_has_a_situation() -> None:
    found = collected()
    assert len(found) > 60
    known = NOUNS.keys() | ELSEWHERE.keys() | FORMS.keys() | SITUATIONS.keys()
    assert {one: found[one] for one in found.keys() - known} == {}, "these need a situation"
    assert known - found.keys() == set(), "these are not printed"


def test_what_is_carried_out_elsewhere_is_there() -> None:
    for command, place in ELSEWHERE.items():
        file, _, words = place.partition("::")
        assert words in (Path(__file__).parents[1] / file).read_text("utf-8"), command


def test_every_option_that_a_text_names_exists() -> None:
    context = click.Context(cli)
    commands = [cli, *(cli.get_command(context, name) for name in COMMANDS)]
    commands += [
        one for command in commands if isinstance(command, click.Group) for one in command.commands.values()
    ]
    known = {
        name
        for command in commands
        if command
        for one in command.params
        for name in (*one.opts, *one.secondary_opts)
    }
    named: set[str] = set()
    for path in (SOURCES / "cli").rglob("*.py"):
        named |= set(re.findall(r"`(--[a-z-]+)`", path.read_text("utf-8")))
    assert len(named) > 15
    assert named - known - {"--help"} == set()


# Forms: what the user fills in

FORMS: dict[str, tuple[list[str], str]] = {
    "add": (["add", "--yes", "memory"], ""),
    "add --list": (["add", "--list"], ""),
    "add NAME {}": (["add", "--yes", "far", "http://127.0.0.1:9/mcp"], ""),
    "add {} COMMAND …": (["add", "--yes", "near", "server"], ""),
    "add NAME": (["add", "--yes", "memory"], ""),
    "call": (["call", "plain", "echo", "text=hi"], ""),
    "doctor -v": (["doctor", "-v"], ""),
    "calls": (["calls"], ""),
    "chat": (["chat"], "/quit\n"),
    "chat --price IN,OUT": (["chat", "--price", "1,2"], "/quit\n"),
    "chat --transcript talk.jsonl": (["chat", "--transcript", "talk.jsonl"], "/quit\n"),
    "config check": (["config", "check"], ""),
    "config hosts": (["config", "hosts"], ""),
    "config paths": (["config", "paths"], ""),
    "config show": (["config", "show"], ""),
    "config show {}": (["config", "show", "plain"], ""),
    "doctor": (["doctor"], ""),
    "help arguments": (["help", "arguments"], ""),
    "help topics": (["help", "topics"], ""),
    "import --all": (["import", "--all"], ""),
    "logs": (["logs", "plain"], ""),
    "remove": (["remove", "plain"], ""),
    "serve --http": (["serve", "--help"], ""),
    "set": (["set", "plain", "timeouts.call=2m"], ""),
    "status": (["status"], ""),
    "status --json": (["status", "--json"], ""),
    "status --no-connect": (["status", "--no-connect"], ""),
    "tasks": (["tasks"], ""),
    "tools": (["tools"], ""),
    "tools -- COMMAND": (["tools", "--", sys.executable, str(SERVERS / "plain.py")], ""),
    "tools --refresh": (["tools", "--refresh"], ""),
    "tools SERVER --schema": (["tools", "plain", "--schema"], ""),
    "trust approve NAME": (["trust", "approve", "plain", "--yes"], ""),
    "trust show": (["trust", "show"], ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_in_help_or_usage_runs_once_it_is_filled_in(form: str) -> None:
    configure(plain=entry("plain.py"))
    words, stdin = FORMS[form]
    done = dragoman(*words, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr


@prints("tools URL")
def test_a_server_of_the_command_line_is_tried(faults: str) -> None:
    assert dragoman("tools", f"{faults}/sound").returncode == 0


# Servers of other apps


def of_cursor(**servers: dict[str, Any]) -> Path:
    """Write servers into Cursor's file; the user has agreed to use them."""
    path = Path(os.environ["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


@prints("config hosts --use", "import --all --write")
def test_servers_of_other_apps_are_used_or_copied() -> None:
    of_cursor(plain=entry("plain.py"))
    done = dragoman("status")
    assert done.returncode == 3
    typed(done, "import --all")
    assert dragoman("status").returncode == 0
    Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json").unlink()
    typed(done, "config hosts")
    assert dragoman("status").returncode == 0


@prints("import {} --only {} --write")
def test_a_server_of_another_app_is_changed_there_or_copied_first() -> None:
    path = of_cursor(**{"my plain": entry("plain.py")})
    assert dragoman("config", "hosts", "--use").returncode == 0
    before = path.read_text("utf-8")
    done = dragoman("set", "my plain", "env.A=1")
    assert done.returncode == 3
    assert path.read_text("utf-8") == before
    assert "`--profile cursor`" in done.stderr
    assert "did you mean my plain?" in dragoman("enable", "my plan").stderr
    assert dragoman("set", "my plain", "env.A=1", "--profile", "cursor").returncode == 0
    assert path.read_text("utf-8") != before
    typed(done, "import cursor")
    assert dragoman("set", "my plain", "env.A=1").returncode == 0


@prints("install --skill", "install --skill --undo")
def test_the_skill_is_written_again_and_taken_back_as_printed() -> None:
    done = dragoman("install", "--skill", "--for", "cursor")
    (file,) = Path.home().glob(".cursor/skills/*/SKILL.md")
    text = file.read_text()
    file.write_text("changed")
    refused = dragoman("install", "--skill", "--for", "cursor")
    assert "`dragoman install --skill`" in refused.stderr
    file.unlink()
    typed(refused, "install --skill")
    assert file.read_text() == text
    typed(done, "install --skill --undo")
    assert not file.exists()


@prints("install {} --write", "install {} --undo")
def test_the_gateway_is_installed_and_taken_back_as_printed() -> None:
    path = of_cursor(plain=entry("plain.py"))
    before = path.read_text("utf-8")
    seen = dragoman("install", "cursor")
    pasted = json.loads(seen.stdout[seen.stdout.index("{") :])
    assert path.read_text("utf-8") == before
    done = typed(seen, "install cursor")
    assert json.loads(path.read_text("utf-8")) == pasted
    assert path.read_text("utf-8") != before
    typed(done, "install cursor")
    assert path.read_text("utf-8") == before


# What the doctor says


@prints("doctor {}", "set {} {}", "doctor --fix --yes {}")
@pytest.mark.parametrize("app", ["own", "another app"])
def test_a_variable_that_a_server_misses_is_named_and_entered(app: str) -> None:
    configures = configure if app == "own" else of_cursor
    configures(**{"my acme": script("key = os.environ['ACME_API_KEY']")})
    dragoman("config", "hosts", "--use")
    seen = dragoman("status", "my acme")
    assert seen.returncode == 4
    assert "it needs the variable `ACME_API_KEY`" in seen.stdout
    told = dragoman(*printed(seen, "doctor"))
    assert typed(told, "set", stdin="a-key\n").stdout.startswith("Set env.ACME_API_KEY")
    assert dragoman("status", "my acme").returncode == 0


@pytest.mark.parametrize("app", ["own", "another app"])
def test_a_variable_without_a_value_is_entered_as_printed(app: str) -> None:
    written = "${SLACK_TOKEN}" if app == "own" else "${env:SLACK_TOKEN}"
    made = script("assert os.environ['TOKEN'] == 'a-key'") | {"env": {"TOKEN": written}}
    (configure if app == "own" else of_cursor)(slack=made)
    dragoman("config", "hosts", "--use")
    for command, code in (("doctor", 3), ("config check", 0)):
        told = dragoman(*command.split())
        assert told.returncode == code
        assert "`export SLACK_TOKEN=…`" in " ".join(told.stdout.split())
        assert printed(told, "set slack")[2] == "env.TOKEN"
    assert dragoman("status", SLACK_TOKEN="a-key").returncode == 0
    typed(dragoman("doctor"), "set slack", stdin="a-key\n")
    assert dragoman("status").returncode == 0


def test_no_secret_is_asked_for_where_it_would_be_shared() -> None:
    servers = {"slack": entry("plain.py", env={"TOKEN": "${SLACK_TOKEN}"})}
    Path("mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    assert dragoman("trust", "approve", "slack", "--yes").returncode == 0
    told = dragoman("doctor").stdout
    assert "`export SLACK_TOKEN=…`" in told
    assert "dragoman set" not in told


def test_a_server_that_is_only_slow_gets_more_time_as_printed() -> None:
    of_cursor(slow=script("sys.stdin.read()"))
    dragoman("config", "hosts", "--use")
    told = dragoman("doctor", "slow", "--timeout", "0.5")
    assert printed(told, "set slow") == ["set", "slow", "timeouts.connect=2m"]
    refused = dragoman(*printed(told, "set slow"), "--profile", "cursor")
    assert refused.returncode == 3
    assert printed(refused, "import") == printed(told, "import")
    typed(refused, "import")
    assert typed(told, "set slow").stdout.startswith("Set timeouts.connect of `slow`")


def test_an_added_server_whose_program_is_missing_is_told_at_once() -> None:
    added = dragoman("add", "my broken", "--", "no-such-program")
    assert added.returncode == 0
    assert "`no-such-program` was not found" in added.stderr
    assert dragoman(*printed(added, "doctor")).returncode == 4
    assert dragoman("add", "sound", "--", sys.executable).stderr == ""


def test_in_the_session_a_command_is_typed_as_it_was_printed() -> None:
    configure(acme=script("key = os.environ['ACME_API_KEY']"))
    with at_terminal("chat", columns=120) as person:
        person.wait_until(lambda: person.current == PROMPT)
        words = printed(person.enter("/mcp doctor acme"), "set")
        person.typed(shlex.join(["dragoman", *words]), shlex.join(["dragoman", *words]))
        person.type("\r")
        person.wait_until(lambda: person.current.startswith("env.ACME_API_KEY"))
        person.type("a-key\r")
        person.wait_until(lambda: "replaced: acme" in person.text and person.current == PROMPT)
        assert "No model configured" in person.enter("dragoman is a program")
        person.type(CTRL_D)
        assert person.wait_for_end() == 0
    assert dragoman("status", "acme").returncode == 0
    assert "acme    ready" in dragoman("chat", stdin="dragoman status acme\n").stdout


FACED = {
    "spaced": ({"command": f"{sys.executable} {SERVERS / 'plain.py'}"}, {}),
    "misspelt": ({"command": f"{sys.executable}x", "args": [str(SERVERS / "plain.py")]}, {}),
    "not passed on": ("key = os.environ['ACME_API_KEY']", {"ACME_API_KEY": "k"}),
    "subcommand": (
        "if sys.argv[1:] != ['serve']: sys.exit('Usage: x COMMAND\\n  config   Write\\n  serve    Run\\n')",
        {},
    ),
    "http": ({"type": "http", "url": "{faults}/nothing-but-404/all-404"}, {}),
}


@pytest.mark.parametrize("name", FACED)
def test_doctor_fix_writes_what_the_doctor_can_infer(
    name: str, faults: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, environment = FACED[name]
    made = script(how) if isinstance(how, str) else how
    text = json.dumps(made).replace("{faults}", faults).replace("nothing-but-404/", "")
    if name == "misspelt":
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    configure(one=json.loads(text))
    shown = dragoman("doctor", "one", "--fix", **environment)
    assert shown.returncode == 4, shown.stdout
    again = dragoman(*printed(shown.stderr, "doctor --fix"), **environment)
    assert "Wrote " in again.stdout, again.stdout + again.stderr
    assert dragoman(*printed(again.stdout, "doctor one"), **environment).returncode == 0


@pytest.mark.parametrize(("path", "kind"), [("all-404", "http"), ("all-html", "sse"), ("sound", "sse")])
def test_another_address_or_transport_is_said_only_if_it_works(faults: str, path: str, kind: str) -> None:
    of_cursor(far={"type": kind, "url": f"{faults}/{path}"})
    assert dragoman("config", "hosts", "--use").returncode == 0
    told = dragoman("doctor", "far")
    assert told.returncode == 4
    typed(told, "set far")
    assert dragoman("doctor", "far").returncode == 0


def test_no_address_is_advised_where_none_works() -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        do_POST = do_GET  # noqa: N815 -- the name of the base class

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 -- as in the base class

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        thread = Thread(target=site.serve_forever)
        thread.start()
        configure(far={"type": "http", "url": f"http://127.0.0.1:{site.server_port}/docs"})
        told = dragoman("doctor", "far")
        site.shutdown()
        thread.join()
    assert "none at /mcp or /sse there. Check the address." in told.stdout
    assert "dragoman set" not in told.stdout


# Logins


@prints("login {} --with-token")
def test_a_server_without_oauth_gets_its_token(faults: str) -> None:
    of_cursor(locked={"url": f"{faults}/login"})
    assert dragoman("config", "hosts", "--use").returncode == 0
    seen = dragoman("status", "locked")
    assert seen.returncode == 5
    for told in (seen, dragoman("doctor", "locked"), dragoman("login", "locked")):
        words = printed(told, "login locked")
        assert words == ["login", "locked", "--with-token"]
    for token, problem in (
        ("two words", "one word of ASCII"),
        ("wrong", "`locked` rejects the token (HTTP 401)"),
    ):
        refused = dragoman("login", "locked", "--with-token", stdin=f"{token}\n")
        assert (refused.returncode, refused.stdout) == (5, "")
        assert problem in refused.stderr
    typed(seen, "login locked", stdin="Bearer right\n")
    done = dragoman("status", "locked")
    assert done.returncode == 0, done.stdout
    assert dragoman("logout", "locked").returncode == 0
    assert dragoman("status", "locked").returncode == 5


def test_a_saved_token_that_is_rejected_later_is_replaced_as_printed(
    faults: str,
) -> None:
    async def keep(token: str) -> None:
        store = TokenStore("locked", f"{faults}/login")
        async with store.locked():
            await store.save(Login(access_token=token))

    configure(locked={"type": "http", "url": f"{faults}/login"})
    asyncio.run(keep("revoked"))
    seen = dragoman("status", "locked")
    assert "the saved token was rejected (HTTP 401)" in seen.stdout
    assert "The saved token is wrong or has expired." in dragoman("doctor", "locked").stdout
    typed(seen, "login locked", stdin="right\n")
    assert dragoman("status", "locked").returncode == 0


def test_a_token_that_cannot_be_checked_is_kept_and_said_to_be_unchecked() -> None:
    configure(far={"type": "http", "url": "http://127.0.0.1:9/mcp"})
    done = dragoman("login", "far", "--with-token", stdin="right\n")
    assert (done.returncode, done.stdout) == (4, "")
    assert "the token of `far` is kept, but not checked: cannot reach `far`" in done.stderr


def test_a_rejected_header_is_replaced_as_printed_and_keeps_its_scheme(faults: str) -> None:
    path = of_cursor(law={"url": f"{faults}/login", "headers": {"Authorization": "Bearer old"}})
    assert dragoman("config", "hosts", "--use").returncode == 0
    words = printed(dragoman("doctor", "law"), "set law")
    with at_terminal("doctor", "--fix", "law") as person:
        person.wait_until(lambda: "token for headers.Authorization of `law`:" in person.current)
        person.type("right\r")
        person.wait_until(lambda: person.current.endswith("[y/N]:"))
        person.type("n\r")
        assert person.wait_for_end() == 5
    unusual = dragoman(*words, stdin="ri\x1bght\n")
    assert unusual.returncode == 2
    assert "control characters" in unusual.stderr
    assert "Bearer old" in path.read_text("utf-8")
    assert dragoman(*words, stdin="right\n").returncode == 0
    assert dragoman("status", "law").returncode == 0


@prints("unset {} auth")
def test_a_login_that_the_entry_rules_out_names_what_rules_it_out(faults: str) -> None:
    law = {"type": "http", "url": f"{faults}/login", "headers": {"Authorization": "Bearer old"}}
    configure(law=law, off={**law, "headers": {}, "auth": "none"})
    refused = dragoman("login", "law")
    assert refused.returncode == 3
    assert "none" not in refused.stderr
    told = dragoman(*printed(refused, "doctor law"))
    typed(told, "set law", stdin="right\n")
    assert dragoman("status", "law").returncode == 0
    typed(dragoman("login", "off"), "unset off auth")
    typed(dragoman("login", "off"), "login off", stdin="right\n")
    assert dragoman("status", "off").returncode == 0


@prints("login {}")
def test_an_input_is_asked_for_once_and_kept_until_logout() -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"], "Code", "User")
    folder.mkdir(parents=True)
    vault = script("assert os.environ['VAULT_KEY'] == 'k1'") | {"env": {"VAULT_KEY": "${input:vault-key}"}}
    document = {
        "inputs": [{"id": "vault-key", "type": "promptString", "password": True}],
        "servers": {"my vault": vault},
    }
    (folder / "mcp.json").write_text(json.dumps(document), "utf-8")
    assert dragoman("config", "hosts", "--use").returncode == 0
    for told in (dragoman("status"), dragoman("doctor"), dragoman("call", "my vault", "echo", "text=hi")):
        assert told.returncode == 3
        words = printed(told, "login")
    assert dragoman(*words).returncode == 2  # there is no terminal to ask at
    empty = dragoman(*words, "--with-token", stdin="\n")
    with at_terminal(*words) as person:
        person.wait_until(lambda: "vault-key (for my vault)" in person.current)
        person.type("\r")
        assert person.wait_for_end() == 3, person.text
        for text in (empty.stdout + empty.stderr, person.text):
            assert "nothing was given for `vault-key`" in text
            assert "logged in" not in text
    assert printed(empty, "login") == words
    with at_terminal("call", "my vault", "echo", "text=hi") as person:
        person.wait_until(lambda: "vault-key (for my vault)" in person.current)
        person.type("k1\r")
        assert person.wait_for_end() == 0
        assert "k1" not in person.text
    kept = Path(os.environ["XDG_DATA_HOME"], "dragoman", "answers.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert dragoman("call", "my vault", "echo", "text=hi").stdout == "hi\n"
    assert dragoman("logout", "my vault").returncode == 0
    assert dragoman("status").returncode == 3
    assert dragoman(*words, "--with-token", stdin="k1\n").returncode == 0
    assert dragoman("status").returncode == 0


def test_the_answer_for_a_projects_server_is_not_for_the_users_own() -> None:
    servers = {"one": entry("plain.py", env={"KEY": "${input:key}"})}
    Path(".vscode").mkdir()
    Path(".vscode", "mcp.json").write_text(json.dumps({"servers": servers}), "utf-8")
    profile = ("--profile", "vscode")
    assert dragoman("login", "one", "--with-token", *profile, stdin="k\n").returncode == 8
    assert dragoman("trust", "approve", "one", "--yes", *profile).returncode == 0
    assert dragoman("login", "one", "--with-token", *profile, stdin="theirs\n").returncode == 0
    assert dragoman("status", *profile).returncode == 0
    configure(own=entry("plain.py", env={"KEY": "${input:key}"}))
    assert dragoman("status", "own").returncode == 3


# Approvals


@prints("trust approve {}", "trust show {}", "trust show {} --refresh")
def test_what_a_project_would_run_is_approved_as_printed() -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"my files": entry("plain.py")}}), "utf-8")
    words = printed(dragoman("status"), "trust approve")
    with at_terminal(*words) as person:
        person.wait_until(lambda: person.current.endswith("[y/N]:"))
        person.type("y\r")
        assert person.wait_for_end() == 0
    assert dragoman("status").returncode == 0
    assert dragoman("trust", "show", "my files", "--refresh").returncode == 0


def test_a_changed_tool_is_reviewed_and_approved_as_printed(tmp_path: Path) -> None:
    coat = Turncoat(tmp_path, trust="strict")
    configure(coat={"command": sys.executable, "args": ["-S", str(COAT), str(coat.file)], "trust": "strict"})
    assert dragoman("tools", "coat").returncode == 0
    coat.change(lambda offer: offer["tools"][0].update(description="Now something else."))
    told = dragoman("doctor", "coat")
    assert typed(told, "trust show coat --refresh").stdout
    blocked = dragoman("call", "coat", "read", "path=x")
    assert "is blocked: its definition changed" in blocked.stderr
    with at_terminal(*printed(blocked, "trust approve")) as person:
        person.wait_until(lambda: person.current.endswith("[y/N]:"))
        person.type("y\r")
        assert person.wait_for_end() == 0
    assert dragoman("call", "coat", "read", "path=x").returncode == 0
    assert "trust show coat" not in dragoman("doctor", "coat").stdout


@prints("trust approve --settings")
def test_the_settings_of_a_project_are_approved_as_printed() -> None:
    Path("dragoman.toml").write_text('[mcp]\nnaming = "{tool}"\n', "utf-8")
    configure(one=entry("plain.py"))
    told = dragoman("trust", "show")
    words = printed(told, "trust approve --settings")
    with at_terminal(*words) as person:
        person.wait_until(lambda: person.current.endswith("[y/N]:"))
        person.type("y\r")
        assert person.wait_for_end() == 0
    assert "trust approve --settings" not in dragoman("trust", "show").stdout


# The rest of what errors say


@prints("enable {}")
def test_a_disabled_server_is_enabled_as_printed() -> None:
    configure(**{"my plain": entry("plain.py", disabled=True)})
    done = dragoman("call", "my plain", "echo", "text=hi")
    assert done.returncode == 3
    typed(done, "enable")
    assert dragoman("call", "my plain", "echo", "text=hi").stdout == "hi\n"


@prints("tools {}", "tools {} --refresh")
def test_tools_are_listed_and_refreshed_as_printed() -> None:
    configure(**{"my plain": entry("plain.py")})
    assert "echo" in typed(dragoman("call", "my plain"), "tools").stdout
    assert typed(dragoman("call", "my plain", "ecko", "text=hi"), "tools").stdout


@prints("doctor -v {}", "logs {}")
def test_the_stderr_of_a_server_is_made_and_shown_as_printed() -> None:
    configure(**{"my noisy": entry("noisy.py", env={"TOKEN": "t"})})
    typed(dragoman("logs", "my noisy"), "doctor -v")
    assert dragoman("tools", "my noisy").returncode == 0
    typed(dragoman("logs"), "logs")


@prints("calls show {}")
def test_a_call_that_cannot_be_repeated_is_shown_as_printed() -> None:
    configure(plain=entry("plain.py"), off=entry("plain.py"))
    assert dragoman("call", "plain", "environment", "API_TOKEN=sesame-sesame").returncode == 0
    done = dragoman("calls", "replay", "1")
    if done.returncode != 0 and "calls show" in done.stderr:
        typed(done, "calls show")
    assert dragoman("calls", "show", "1").returncode == 0


@prints("daemon start", "daemon logs")
def test_the_daemon_is_started_as_printed() -> None:
    words = printed(dragoman_process("daemon", "status"), "daemon start")
    assert dragoman_process(*words).returncode == 0
    try:
        assert dragoman_process("daemon", "logs").returncode == 0
    finally:
        assert dragoman_process("daemon", "stop").returncode == 0


@prints("chat --model NAME")
def test_a_model_is_chosen_as_the_help_says() -> None:
    done = dragoman("chat", "--model", "no-such-model", stdin="/quit\n")
    assert "No such option" not in done.stderr
