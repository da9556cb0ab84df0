"""A reader at work: the blocks of a page are done one after the other, in one folder, with one home.

| block | is |
| --- | --- |
| any, below `<!-- file: NAME -->` | written to that file; a configuration in it must have no problem |
| `sh` | run line by line by a shell; every line ends with 0 |
| `console` | the same at a terminal of 80 columns, `$ ` before each command; what it shows is what the page shows |
| `python` | run as a program; it ends with 0 |
| `text` | what the program before it has printed |
| `toml`, `json` | a configuration without a problem |
| `go`, `rust`, `typescript` | passed over: `make prove ONLY=stubs` compiles or runs it where the language is installed |

In what a page shows, `…` stands for anything within a line, and a line of it for any lines; a duration stands for
any duration, and the width of columns is free. A console command with another exit code than 0 says so by
`$ command  # exit 3`. What a command asks is answered with yes.

The programs are those that a reader has: `dragoman`, `python`, and `npx` and `uvx`, which find the servers that the
tests install and go to no network.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time
import tomllib
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

import pyte
from tests.real.servers import CACHE, NPM
from tests.warm import Warm, interpreter, run

from dragoman.config.load import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.docs.pages import Block

COLUMNS, LINES = 80, 500
PROGRAMS = Path(sys.executable).parent
PATIENCE = 50
"""Seconds without a word after which a command hangs."""
_DURATION = r"\d+(?:\.\d+)? (?:ms|s)"
_PIECE = re.compile(rf"…|[ ]{{2,}}|\b{_DURATION}\b|.", re.DOTALL)
_PLAIN = re.compile(r"[^$`~*?\[\]{}|&;<>()#!\\\n]+")
"""A line without anything that only a shell understands."""
_EXIT = re.compile(r"\s+# exit (\d+)$")


class Screen(pyte.Screen):
    """A screen that knows which of its lines are one: a page has as one line what the terminal breaks."""

    def __init__(self, columns: int, lines: int) -> None:
        self._goes_on: set[int] = set()
        self._drawing = False
        super().__init__(columns, lines)

    def draw(self, data: str) -> None:
        """Draw characters; a line feed meanwhile is the terminal's own."""
        self._drawing = True
        super().draw(data)
        self._drawing = False

    def linefeed(self) -> None:
        """Go to the next line."""
        if self._drawing:
            self._goes_on.add(self.cursor.y)
        super().linefeed()

    def asks(self) -> bool:
        """Return whether the line of the cursor ends as a question with choices does."""
        # Only this line: to read all of them after every chunk takes longer than many a command.
        row = self.buffer[self.cursor.y]
        return "".join(row[x].data for x in range(self.columns)).rstrip().endswith("]:")

    def text(self) -> str:
        """Return what is on the screen."""
        lines = enumerate(self.display)
        return "".join(line if y in self._goes_on else f"{line.rstrip()}\n" for y, line in lines).strip("\n")


class Reader:
    """Does what a page says, in a folder; `home` is the folder that HOME names."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self.environment = os.environ | expansion(folder, home)
        # How long a start takes must not change what is printed: the daemon was named today already.
        cache = home / ".cache" / "dragoman"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        (cache / "slow.json").write_text(json.dumps({"told": time.time()}), "utf-8")
        self.printed = ""
        self._state = home / ".shell-state"

    def follow(self, blocks: Iterable[Block]) -> None:
        """Do every block; an assertion names the line of the one that fails."""
        for block in blocks:
            try:
                self.do(block)
            except AssertionError as error:
                msg = f"line {block.line}, {block.language}: {error}"
                raise AssertionError(msg) from error

    def do(self, block: Block) -> None:
        """Do one block."""
        if block.file:
            self._write(block)
            return
        match block.language:
            case "sh":
                for line in commands(block.text):
                    code, self.printed = self.at_a_terminal(line)
                    assert code == 0, f"`{line}` ended with {code}:\n{self.printed}"
            case "console":
                self._console(block.text)
            case "python":
                self._python(block.text)
            case "text":
                assert matches(block.text, self.printed), difference(block.text, self.printed)
            case "toml" | "json":
                checked(block.text, block.language, self.folder)
            case "go" | "rust" | "typescript":
                pass
            case _:
                msg = f"nothing runs a block of `{block.language}`: see tests/docs/running.py"
                raise AssertionError(msg)

    def at_a_terminal(self, command: str) -> tuple[int, str]:
        """Run one command where the one before it has left off; return its exit code and what is seen."""
        controller, end = pty.openpty()
        ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        process = self._start(command, end)
        os.close(end)
        screen = Screen(COLUMNS, LINES)
        stream, decoder = pyte.Stream(screen), codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while select.select([controller], [], [], PATIENCE)[0]:
                stream.feed(decoder.decode(os.read(controller, 65536)))
                if screen.asks():
                    os.write(controller, b"y\n")
            process.kill()
        except OSError:  # on Linux the end of a terminal is an error
            pass
        finally:
            os.close(controller)
        return process.wait(), screen.text()

    def _start(self, command: str, end: int) -> subprocess.Popen[bytes] | Warm:
        """Start the program if the line is nothing else and the shell has changed nothing; else a shell."""
        words = None if self._state.exists() or not _PLAIN.fullmatch(command) else shlex.split(command)
        if words is not None and words[0] == "dragoman":
            streams = (end, end, end)
            return Warm(words[1:], streams, self.environment, folder=self.folder, terminal=True)
        state = shlex.quote(str(self._state))
        script = (
            f"export -p > {state}.before; [ ! -f {state} ] || . {state}\n{command}\n"
            f'left=$?; export -p > {state}.after; [ "$PWD" = {shlex.quote(str(self.folder))} ] && cmp -s {state}.before {state}.after'
            f" || {{ cat {state}.after; echo \"cd '$PWD'\"; }} > {state}; exit $left"
        )
        return subprocess.Popen(
            ["/bin/sh", "-c", script],
            **dict.fromkeys(("stdin", "stdout", "stderr"), end),
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )

    def _console(self, text: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            ends = _EXIT.search(line)
            command = _EXIT.sub("", line)
            code, self.printed = self.at_a_terminal(command)
            assert code == (int(ends[1]) if ends else 0), f"`{command}` ended with {code}:\n{self.printed}"
            if shown.strip():
                assert matches(shown, self.printed), f"`{command}`:\n{difference(shown, self.printed)}"

    def _python(self, text: str) -> None:
        done = run([], code=text, folder=self.folder, environment=self.environment, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        self.printed = done.stdout

    def _write(self, block: Block) -> None:
        here = self.folder
        if self._state.exists():
            here = Path(shlex.split(self._state.read_text("utf-8").splitlines()[-1])[1])
        path = self.home / block.file[2:] if block.file.startswith("~/") else here / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")


def expansion(folder: Path, home: Path) -> dict[str, str]:
    """Give a reader the programs of one: return the variables that lead to them, and link what they need."""
    shutil.copy(NPM / "package.json", folder)
    (folder / "node_modules").symlink_to(NPM / "node_modules")
    tools = home / ".local/share/uv/tools"
    for server in (CACHE / "servers").iterdir():
        tool = tools / server.name
        tool.mkdir(parents=True)
        for item in server.iterdir():
            (tool / item.name).symlink_to(item)
        program = json.dumps({"name": server.name, "install-path": str(server / "bin" / server.name)})
        entry = re.sub(r'"([\w-]+)": ', r"\1 = ", program)
        (tool / "uv-receipt.toml").write_text(
            f'[tool]\nrequirements = [{{ name = "{server.name}" }}]\nentrypoints = [{entry}]\n', "utf-8"
        )
    return {
        "PATH": os.pathsep.join([str(Path(interpreter()).parent), str(PROGRAMS), os.environ["PATH"]]),
        "TERM": "xterm-256color",
        "UV_OFFLINE": "1",
        "npm_config_offline": "true",
        "npm_config_update_notifier": "false",
    }


def commands(text: str) -> list[str]:
    """Return the commands of a shell block; a line that ends in a backslash goes on in the next."""
    return [line for line in text.replace("\\\n", "").splitlines() if line.strip() and line[0] != "#"]


def matches(shown: str, printed: str) -> bool:
    """Return whether something was printed as a page shows it."""
    lines: list[str] = []
    for line in shown.strip("\n").splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append("".join(map(_pattern, _PIECE.findall(line.rstrip()))) + r"[ ]*\n")
    return re.fullmatch("".join(lines), printed.strip("\n") + "\n") is not None


def _pattern(piece: str) -> str:
    if piece == "…":
        return r"[^\n]*"
    if piece.isspace() and len(piece) > 1:
        return "[ ]+"
    return _DURATION if re.fullmatch(_DURATION, piece) else re.escape(piece)


def difference(shown: str, printed: str) -> str:
    """Say what was expected, and what came."""
    return f"the page shows\n{shown}\nand there was\n{printed}"


def checked(text: str, language: str, folder: Path) -> None:
    """Fail for a configuration that has a problem, or that cannot be read."""
    data = tomllib.loads(text) if language == "toml" else json.loads(text)
    if {"mcp", "mcpServers", "servers", "mcp_servers"} & set(data):
        file = folder / f"block.{language}"
        file.write_text(text, "utf-8")
        problems = load(config=str(file)).problems
        file.unlink()
        assert not problems, [str(problem) for problem in problems]
