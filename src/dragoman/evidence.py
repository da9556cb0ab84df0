"""What is on disk of what an entry names: the program that runs, and the files in the project that it uses.

An approval covers their content, so that a script cannot change under it. Looked at are the command, its
arguments (each as a whole, and its pieces: `--flag=file`, `module:app`, words of a shell line), the values of
variables, the words of `${command:…}`, env files, TLS files and the key of a login. What lies in the project
counts by content; a program counts by its path, and by content too if it lies in the project.

The words up to the script belong to the runner (`python -X dev server.py`): a folder among them is code and
counts with its files. Behind it a folder is taken for data, and so is a database or a log, which the server
itself may write. Everything is bounded, only regular files are read, and nothing is run. It takes disk time:
use it in a thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from dragoman.config.expand import Surroundings, expand, expand_home
from dragoman.config.files import read_env_file
from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.trust.content import Covered, Evidence, input_ids, loads, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.model import Input, ServerSpec

MAX_BYTES = 64 * 2**20
"""Of all files of an entry together; beyond it a file counts by its size and the time of its last change."""
MAX_FILES = 5_000
"""Of one folder."""
MAX_PIECES = 20_000
"""Of what an entry names."""
MAX_CHARS = 100_000
"""Of one argument or value."""

RUNNERS = frozenset(
    "python pypy node nodejs bun bunx deno npx npm pnpm pnpx yarn tsx ts-node uv uvx pipx poetry pdm hatch "
    "rye pipenv ruby bundle rake perl php lua luajit java go cargo dotnet sh bash zsh dash ash ksh fish pwsh "
    "powershell cmd env nohup nice timeout stdbuf setsid sudo doas xvfb-run script direnv mise nix make just "
    "task mvn gradle uvicorn gunicorn hypercorn fastmcp mcp flask osascript Rscript julia elixir mix".split()
)
"""Programs that run what they are given."""
SUBCOMMANDS = frozenset("run exec x dlx tool start task compose module shell serve dev -- /c /C".split())
FLAGS = frozenset(
    "-y --yes -q --quiet -u -B -E -s -S -O -OO --offline --isolated --no-install --no-cache --frozen".split()
)
"""Options of runners that take no value: the word behind any other option may belong to it."""
CODE = frozenset("-c -e -p --eval --print -lc -ic /c /C -Command".split())
"""Options whose value is the program itself."""
DATA = frozenset(".db .db3 .sqlite .sqlite3 .duckdb .db-wal .db-shm .log .lock .pid .pyc .pyo".split())
CACHES = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox".split()
)
"""Folders within a folder that are not looked into: what is installed or made there is not covered."""
SUFFIXES = (".js", ".cjs", ".mjs", ".json", ".node", ".ts", ".py")
"""What runners add to a name."""
ENTRIES = (
    *("package.json", "index.js", "index.mjs", "index.cjs", "index.ts", "__main__.py", "main.py"),
    *("pyproject.toml", "setup.py", "go.mod", "main.go", "Cargo.toml"),
)
"""What a runner looks for in a folder; all that counts of the project's own."""
_NPM = (".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml")
_PYTHON = ("pyproject.toml", "uv.toml", "Pipfile", ".python-version", "poetry.toml")
_COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
READS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("npx", "pnpx", "bunx"), _NPM),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), (*_NPM, "package.json")),
    **dict.fromkeys(("uv", "uvx", "poetry", "pdm", "hatch", "rye", "pipenv"), _PYTHON),
    "deno": ("deno.json", "deno.jsonc"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "go": ("go.mod",),
    "bundle": ("Gemfile", ".bundle/config"),
    "rake": ("Rakefile", "Gemfile"),
    "mvn": ("pom.xml", ".mvn/jvm.config", ".mvn/maven.config", ".mvn/extensions.xml"),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "gradle.properties"),
    "direnv": (".envrc",),
    "mise": ("mise.toml", ".mise.toml", ".tool-versions"),
    "nix": ("flake.nix", "shell.nix", "default.nix"),
    "compose": _COMPOSE,
    "docker-compose": _COMPOSE,
}
"""Files that decide what a runner does although nobody names them, by runner."""

_PIECES = re.compile(r"[\s;&|()<>{}'\"`,=]+")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def gather(spec: ServerSpec, root: str | os.PathLike[str], inputs: Iterable[Input] = ()) -> Evidence:
    """Look at what an entry names; reads files.

    Args:
        spec: The server, as its file has it.
        root: The project's directory.
        inputs: The inputs of the configuration.
    """
    wanted = input_ids(spec)
    used = sorted((one for one in inputs if one.id in wanted), key=lambda one: one.id)
    look = _Look(spec, root, used)
    if isinstance(spec.transport, Stdio):
        look.at_command(spec.transport)
    elif spec.transport.tls is not None:
        tls = spec.transport.tls
        look.at_named(path for path in (tls.ca, tls.cert, tls.key) if path)
    if spec.auth is not None and spec.auth.private_key:
        look.at_named([spec.auth.private_key])
    for kind, words in sources(spec):
        if kind == "command":
            look.at_line(words)
    return replace(look.evidence(), inputs=used)


class _Look:
    """One look at one entry."""

    def __init__(self, spec: ServerSpec, root: str | os.PathLike[str], inputs: Sequence[Input]) -> None:
        self._spec = spec
        self.root = os.path.abspath(root)  # noqa: PTH100 -- paths are texts here, for speed
        self._project = os.path.realpath(root)
        self._home = str(Path.home())
        self._keeps = spec.unset_variables == "keep"
        defaults = {one.id: one.default for one in inputs if one.default is not None}
        self._around = Surroundings(env=os.environ, root=self.root, home=self._home, inputs=defaults)
        self._files: dict[str, Covered] = {}
        self._programs: dict[str, str] = {}
        self._gaps: dict[str, None] = {}
        self._left = MAX_BYTES
        self._pieces = MAX_PIECES

    def text(self, template: str) -> str:
        """Expand a template as a connection does, but for what only a keyring or a command knows."""
        return expand(template, self._around, lambda _, whole: whole if self._keeps else "")

    def evidence(self) -> Evidence:
        files = [self._files[path] for path in sorted(self._files)]
        return Evidence(programs=self._programs, files=files, gaps=list(self._gaps))

    def at_named(self, templates: Iterable[str]) -> None:
        """Cover files that are named as such, wherever they lie."""
        for template in templates:
            name = self.text(template)
            if len(name) < MAX_CHARS and "\n" not in name:
                self._cover(os.path.join(self.root, expand_home(name, self._home)), always=True, folders=True)  # noqa: PTH118

    def at_command(self, stdio: Stdio) -> None:
        """Cover what a command runs."""
        cwd = os.path.join(self.root, expand_home(self.text(stdio.cwd or ""), self._home))  # noqa: PTH118
        self.at_named(stdio.env_file)
        env: dict[str, str] = {}
        for template in stdio.env_file:
            try:
                path = os.path.join(self.root, expand_home(self.text(template), self._home))  # noqa: PTH118
                env |= read_env_file(Path(path))
            except (ConfigError, OSError, ValueError):
                continue  # Starting the child says so.
        path = env.get("PATH", os.environ.get("PATH"))
        for name, value in stdio.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = self.text(value)
            if name == "PATH":
                path = env.get("PATH")
        command = expand_home(self.text(stdio.command), self._home)
        words = [command, *map(self.text, stdio.args)]
        if sources(replace(self._spec, transport=replace(stdio, env={}), auth=None)):
            self._gaps["part of it is known only when it is started: files named there are not covered"] = (
                None
            )
        self._find_program(command, cwd, path, stdio.command.split(" ")[0])
        zone = self.at_words(words, cwd, path)
        self._read_by(words[:zone], words, cwd)
        for name, value in env.items():
            self._at_text(value, cwd, folders=loads(name))

    def at_line(self, line: str) -> None:
        """Cover what a command that gives a secret runs, in the project's directory."""
        try:
            words = shlex.split(self.text(line))
        except ValueError:
            words = self.text(line).split()
        for word in words[:1]:
            self._find_program(expand_home(word, self._home), self.root, None, word)
        self.at_words(words, self.root)

    def at_words(self, words: Sequence[str], cwd: str, path: str | None = None) -> int:
        """Cover the files that the words of a command name; return how many belong to the runner."""
        zone = runner_zone(words)
        for index, word in enumerate(words):
            if index or os.path.dirname(word):  # noqa: PTH120
                self._at_text(word, cwd, folders=index < zone, is_code=index < zone)
            if 0 < index < zone and _program_name(word) in RUNNERS and os.sep not in word:
                self._find_program(word, cwd, path, word)
        return zone

    # Programs

    def _find_program(self, command: str, cwd: str, path: str | None, shown: str) -> None:
        """Find what a command starts, as its child's directory and PATH have it."""
        if os.path.dirname(command):  # noqa: PTH120
            found = os.path.join(cwd, command)  # noqa: PTH118
        else:
            path = os.environ.get("PATH", os.defpath) if path is None else path
            folders = path.split(os.pathsep)
            placed = os.pathsep.join(os.path.join(cwd, folder) for folder in folders)  # noqa: PTH118
            found = shutil.which(command, path=placed) or ""
        self._programs.setdefault(shown, os.path.normpath(found) if found else "")
        if found and self._is_ours(os.path.realpath(found)):
            self._cover(found)

    def _read_by(self, zone: Sequence[str], words: Sequence[str], cwd: str) -> None:
        """Cover what a runner reads although nobody names it."""
        names = dict.fromkeys(_program_name(word) for word in zone)
        if "compose" in words[1:3]:
            names["compose"] = None
        for folder in dict.fromkeys((cwd, self.root)):
            for name in names:
                for file in READS.get(name, ()):
                    self._cover(os.path.join(folder, file))  # noqa: PTH118
            if names.keys() & {"npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx"}:
                for word in zone[1:]:
                    # A package that the project brings is run instead of the registry's.
                    package = word[:1] + word[1:].partition("@")[0]
                    for bin_ in {package, package.rpartition("/")[2]} - {"", ".", ".."}:
                        self._cover(os.path.join(folder, "node_modules", ".bin", bin_))  # noqa: PTH118
                self._at_scripts(os.path.join(folder, "package.json"), words, folder)  # noqa: PTH118

    def _at_scripts(self, path: str, words: Sequence[str], folder: str) -> None:
        """Cover what the scripts of a `package.json` run that a command names."""
        package = _json_file(path)
        scripts = package.get("scripts")
        if isinstance(scripts, dict):
            table = cast("dict[str, object]", scripts)
            for word in words:
                for name in (f"pre{word}", word, f"post{word}"):
                    if isinstance(line := table.get(name), str):
                        self._at_text(line, folder, is_code=True)

    # Files

    def _at_text(self, text: str, cwd: str, *, folders: bool = False, is_code: bool = False) -> None:
        if len(text) > MAX_CHARS:
            self._gaps["an argument or a value is too long to look for files in it"] = None
            return
        for piece in pieces_of(text, is_code=is_code):
            self._pieces -= 1
            if self._pieces < 0:
                self._gaps["it names too much: not all of it was looked for on disk"] = None
                return
            self._cover(os.path.join(cwd, piece), folders=folders, is_code=is_code)  # noqa: PTH118

    def _cover(self, path: str, *, always: bool = False, folders: bool = False, is_code: bool = True) -> None:
        """Cover a path if it is there and lies in the project, or in any case if it is `always` covered."""
        path = os.path.normpath(path)
        try:
            os.lstat(path)
            real = os.path.realpath(path)
            mode = os.stat(real).st_mode  # noqa: PTH116
        except (OSError, ValueError):
            if always:
                self._files[self._shown(path)] = Covered(path=self._shown(path), digest="absent")
            return
        if not (always or self._is_ours(path) or self._is_ours(real)):
            return
        shown = self._shown(path)
        if shown in self._files:
            return
        target = "" if self._shown(real) == shown else self._shown(real)
        if stat.S_ISDIR(mode):
            if folders:
                self._cover_folder(path, real, shown, target)
            return
        if not is_code and os.path.splitext(path)[1].lower() in DATA:  # noqa: PTH122
            return
        digest, size = self._digest(real)
        if digest == "special":
            self._gaps[f"{shown} is not a regular file: what it gives is not covered"] = None
        self._files[shown] = Covered(path=shown, digest=digest, size=size, target=target)

    def _cover_folder(self, path: str, real: str, shown: str, target: str) -> None:
        if self._project == real or self._project.startswith(real.rstrip(os.sep) + os.sep):
            # All of a project changes all the time; what starts in it counts.
            self._gaps["it names the project's own folder: only the files it starts with are covered"] = None
            package = _json_file(os.path.join(path, "package.json"))  # noqa: PTH118
            named = [package.get("main"), package.get("bin")]
            for value in named:
                table = cast("dict[str, object]", value) if isinstance(value, dict) else {"": value}
                named_files = [file for file in table.values() if isinstance(file, str)]
                for file in named_files:
                    self._at_text(file, path, is_code=True)
            for entry in ENTRIES:
                self._cover(os.path.join(path, entry))  # noqa: PTH118
            return
        whole, size, count = hashlib.sha256(), 0, 0
        for folder, names, files in os.walk(real):
            names[:] = sorted(name for name in names if name not in CACHES)
            links = [name for name in names if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
            count += 1
            for name in sorted([*files, *links]):
                file = os.path.join(folder, name)  # noqa: PTH118
                if os.path.splitext(name)[1].lower() in DATA:  # noqa: PTH122
                    continue
                count += 1
                if count > MAX_FILES:
                    self._gaps[f"{shown} has more than {MAX_FILES:,} files: not all of them are covered"] = (
                        None
                    )
                    break
                digest, length = self._digest(file)
                size += length
                row = [os.path.relpath(file, real), os.path.realpath(file), digest, length]
                whole.update(json.dumps(row).encode())
            if count > MAX_FILES:
                break
        name = f"{shown}{os.sep}"
        self._files[shown] = Covered(path=name, digest=whole.hexdigest(), size=size, target=target)

    def _digest(self, path: str) -> tuple[str, int]:
        """Return the hash of a file's content and its size; a word if it has none that can be read."""
        if _is_special(path):
            return "special", 0
        # Non-blocking, so that a pipe that takes its place cannot make us wait.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
        try:
            number = os.open(path, flags | getattr(os, "O_BINARY", 0))
        except OSError:
            return "unreadable", 0
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                return "special", 0
            if status.st_size > self._left:
                moment = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
                return f"large:{hashlib.sha256(moment.encode()).hexdigest()}", status.st_size
            content, size = hashlib.sha256(), 0
            while size <= status.st_size and (chunk := os.read(number, 1 << 20)):
                content.update(chunk)
                size += len(chunk)
            self._left -= size
            return content.hexdigest(), size
        except OSError:
            return "unreadable", 0
        finally:
            os.close(number)

    def _is_ours(self, path: str) -> bool:
        roots = (self._project, self.root)
        return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)

    def _shown(self, path: str) -> str:
        for root in (self._project, self.root):
            if path.startswith(root.rstrip(os.sep) + os.sep):
                return os.path.relpath(path, root)
        return path


def runner_zone(words: Sequence[str]) -> int:
    """Return how many words of a command belong to what runs the rest: options, and the script itself."""
    if not words or _program_name(words[0]) not in RUNNERS:
        return min(1, len(words))
    may_be_value = False
    for index, word in enumerate(words[1:], 1):
        if words[index - 1] in CODE:
            return index + 1
        if word.startswith("-") and word != "--":
            may_be_value = word not in FLAGS and "=" not in word
        elif word in SUBCOMMANDS or _program_name(word) in RUNNERS or re.match(r"\w+=", word) or may_be_value:
            may_be_value = False
        else:
            return index + 1
    return len(words)


def pieces_of(text: str, *, is_code: bool = False) -> Iterator[str]:
    """Yield everything in an argument or a value that may be a path."""
    seen = {""}
    whole = [text, *(_PIECES.split(text) if _PIECES.search(text) else ())]
    for one in whole:
        glued = one[2:] if one.startswith("-") and not one.startswith("--") else ""
        for piece in (one, glued, *one.split(":"), *one.split(os.pathsep), one.lstrip("@")):
            plain = re.split(r"[?#]", piece, maxsplit=1)[0]
            for name in (piece, plain, unquote(plain) if "%" in plain else ""):
                yield from _with_suffixes(name, seen, is_code=is_code)


def _with_suffixes(name: str, seen: set[str], *, is_code: bool) -> Iterator[str]:
    names = [name]
    if is_code and name and not name.startswith("-"):
        names += [name + suffix for suffix in SUFFIXES]
        if _NAME.fullmatch(name):
            module = name.replace(".", os.sep)
            names += [f"{module}.py", name.partition(".")[0], f"{name.partition('.')[0]}.py"]
    for one in names:
        if one not in seen and "\0" not in one:
            seen.add(one)
            yield one


def _program_name(word: str) -> str:
    """Return what a program is called, without its folder and its version."""
    name = re.split(r"[\\/]", word)[-1]
    name = re.sub(r"\.(?:exe|cmd|bat)$", "", name, flags=re.IGNORECASE)
    return re.sub(r"[\d.]+$", "", name)


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 -- as above
    except OSError:
        return False
    return not stat.S_ISREG(mode)


def _json_file(path: str) -> dict[str, Any]:
    """Return the table in a small JSON file; nothing if it is not one."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return {}
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return {}
        data: object = json.loads(os.read(number, 1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(number)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}
