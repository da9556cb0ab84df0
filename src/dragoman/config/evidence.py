"""Finds the files that a server's entry names: the program, and the files of the project that it uses.

An approval covers their content, so that a script cannot change after it. These are checked: the command, its
arguments (each as a whole, and its parts: `--flag=file`, `module:app`, words of a shell line), the values of
variables, the words of `${command:…}`, env files, TLS files and the key of a login. Files in the project are
covered by content; a program by its path, and by content too if it is in the project.

Words before the script belong to the runner (`python -X dev server.py`): a folder among them is code and is
covered with its files. After the script, folders, databases and logs count as data, which the server may
write. Everything is bounded, only regular files are read, and nothing is run. It reads the disk: use it in a
thread.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from dragoman.config.documents import MAX_PROJECT_BYTES
from dragoman.config.files import read, read_env_file
from dragoman.config.templates import ExpansionContext, expand, expand_home
from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.trust.approvals import Covered, Evidence, input_ids, loads, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.model import Input, ServerSpec

# ── Runners: which words of a command are code, and which files a runner reads by itself


RUNNERS = frozenset(
    "python pypy node nodejs bun bunx deno npx npm pnpm pnpx yarn tsx ts-node uv uvx pipx poetry pdm hatch "
    "rye pipenv ruby bundle rake perl php lua luajit java go cargo dotnet sh bash zsh dash ash ksh fish pwsh "
    "powershell cmd env nohup nice timeout stdbuf setsid sudo doas xvfb-run script direnv mise nix make just "
    "task mvn mvnw gradle gradlew uvicorn gunicorn hypercorn fastmcp mcp flask osascript Rscript julia "
    "elixir mix pixi".split()
)
"""Programs that run another program or script."""
_WORDS_TOO = frozenset("cmd env script direnv nix make just task mcp mix go fish nice timeout java".split())
"""Runners whose name is an ordinary word: an argument of another program may be the same word."""
SUBCOMMANDS = frozenset("run exec x dlx tool start task compose module shell serve dev -- /c /C".split())
FLAGS = frozenset(
    "-y --yes -q --quiet -u -B -E -s -S -O -OO --offline --isolated --no-install --no-cache --frozen".split()
)
"""Options of runners that take no value; the word after any other option may be its value."""
CODE = frozenset("-c -e -p --eval --print -lc -ic /c /C -Command".split())
"""Options whose value is the program itself."""
DATA = frozenset(".db .db3 .sqlite .sqlite3 .duckdb .db-wal .db-shm .log .lock .pid".split())
CACHES = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox".split()
)
"""Subfolders that are skipped: what is installed or generated there is not covered."""
SUFFIXES = tuple(".js .cjs .mjs .json .node .ts .mts .cts .tsx .py .pyc .rb .pm .lua .php .sh .class".split())
"""Suffixes that runners add to a name."""
ENTRIES = tuple(
    "package.json index.js index.mjs index.cjs index.ts __main__.py main.py pyproject.toml setup.py go.mod "
    "main.go Cargo.toml sitecustomize.py usercustomize.py".split()
)
"""Files that a runner looks for in a folder; of the project's own folder, only these are covered."""
NODE = frozenset("npx npm pnpm pnpx yarn bun bunx".split())
PYTHON = frozenset("uv uvx pipx poetry pdm hatch rye pipenv".split())
_NPM = (".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml")
_YARN = (*_NPM, "package.json", ".yarn/releases", ".yarn/plugins", ".pnp.cjs", ".pnp.loader.mjs")
_BUN = tuple(f".env{end}" for end in ("", ".local", ".development", ".production", ".test"))
_PYTHON = ("pyproject.toml", "uv.toml", "Pipfile", ".python-version", "poetry.toml", "hatch.toml")
_COMPOSE = (
    *("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", ".env"),
    *("compose.override.yaml", "compose.override.yml"),
    *("docker-compose.override.yaml", "docker-compose.override.yml"),
)
_DOTNET = (
    *("*.csproj", "*.fsproj", "*.vbproj", "*.cs", "*.fs", "Directory.Build.props", "Directory.Build.targets"),
    *("Directory.Packages.props", "nuget.config", "NuGet.Config", "global.json"),
)
_MAVEN = ("pom.xml", ".mvn", "src/main")
_GRADLE = (
    *("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties"),
    *("gradle/wrapper", "buildSrc", "src/main"),
)
READS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("npx", "pnpx", "bunx"), _NPM),
    **dict.fromkeys(("npm", "pnpm"), (*_NPM, "package.json", "pnpm-workspace.yaml")),
    **dict.fromkeys(PYTHON, _PYTHON),
    **dict.fromkeys(("compose", "docker-compose", "podman-compose"), _COMPOSE),
    **dict.fromkeys(("mvn", "mvnw"), _MAVEN),
    **dict.fromkeys(("gradle", "gradlew"), _GRADLE),
    **dict.fromkeys(("tsx", "ts-node"), ("tsconfig.json",)),
    "yarn": _YARN,
    "bun": (*_NPM, "package.json", "tsconfig.json", *_BUN),
    "pipenv": (*_PYTHON, ".env"),
    "deno": ("deno.json", "deno.jsonc"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile", ".env"),
    "task": tuple(f"{name}.{end}" for name in ("Taskfile", "taskfile") for end in ("yml", "yaml")),
    "cargo": ("Cargo.toml", "build.rs", ".cargo", "rust-toolchain", "rust-toolchain.toml", "src"),
    "go": ("go.mod", "go.work", "*.go"),
    "dotnet": _DOTNET,
    "bundle": ("Gemfile", ".bundle/config"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb", "Gemfile"),
    "direnv": (".envrc", ".env"),
    "mise": ("mise.toml", ".mise.toml", ".tool-versions", "mise.local.toml", ".config/mise"),
    "nix": ("flake.nix", "shell.nix", "default.nix"),
    "pixi": ("pixi.toml", "pyproject.toml"),
    "mix": ("mix.exs", "config"),
    "gunicorn": ("gunicorn.conf.py",),
    "flask": (".env", ".flaskenv", "app.py", "wsgi.py"),
    "fastmcp": ("fastmcp.json", ".env"),
    "Rscript": (".Rprofile", ".Renviron"),
    "julia": ("Project.toml", "Manifest.toml"),
}
"""Files and folders that a runner reads although the command does not name them, by runner."""
NAMES_CODE = re.compile(
    r"\w+_(?:APP|MODULE|SETTINGS|CONFIG|PLUGINS?|OPTIONS|OPTS|ARGS|FLAGS|HOOKS?|SCRIPT|CMD|COMMAND|EXEC|FILE)",
    re.IGNORECASE,
)
"""Variables whose value may name code, in addition to those of loaders."""

_PIECES = re.compile(r"[\s;&|()<>{}'\"`,=]+")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SHELLS = frozenset("sh bash zsh dash ash ksh fish pwsh powershell cmd".split())


def runner_zone(words: Sequence[str]) -> int:
    """Return how many words of a command belong to the runner: its options and the script itself.

    A runner may follow another program (`flock FILE python -m server`): what it runs is code too.
    """
    inner = RUNNERS - _WORDS_TOO
    starts = [at for at, word in enumerate(words) if at and program_name(word) in inner]
    return max([_zone(words), *(at + _zone(words[at:]) for at in starts[-1:])])


def computes(words: Sequence[str]) -> bool:
    """Return whether a shell computes part of what it runs."""
    is_shell = any(program_name(word) in _SHELLS for word in words)
    return is_shell and any(sign in word for word in words for sign in ("$", "`"))


def _zone(words: Sequence[str]) -> int:
    if not words or program_name(words[0]) not in RUNNERS:
        return min(1, len(words))
    may_be_value = False
    for index, word in enumerate(words[1:], 1):
        if words[index - 1] in CODE:
            return index + 1
        if word.startswith("-") and word != "--":
            may_be_value = word not in FLAGS and "=" not in word
        elif word in SUBCOMMANDS or program_name(word) in RUNNERS or re.match(r"\w+=", word) or may_be_value:
            may_be_value = False
        else:
            return index + 1
    return len(words)


def pieces_of(text: str, *, is_code: bool = False) -> Iterator[str]:
    """Yield every part of an argument or a value that may be a path."""
    seen = {""}
    whole = [text, *(_PIECES.split(text) if _PIECES.search(text) else ())]
    if is_code and ("\\" in text or '"' in text or "'" in text):
        with suppress(ValueError):  # not a shell's line
            whole += shlex.split(text)
    for one in whole:
        glued = one[2:] if one.startswith("-") and not one.startswith("--") else ""
        for piece in (
            one,
            glued,
            *one.split(":"),
            *one.split(os.pathsep),
            *one.split("@"),
            one.partition("[")[0],
        ):
            plain = re.split(r"[?#]", piece, maxsplit=1)[0]
            # After a shell variable such as `$PWD`, the rest may be a path in the project.
            behind = re.sub(r"^(?:\$\w*)?/+", "", piece) if is_code else ""
            for name in (piece, plain, unquote(plain) if "%" in plain else "", behind):
                yield from _with_suffixes(name, seen, is_code=is_code)


def _with_suffixes(name: str, seen: set[str], *, is_code: bool) -> Iterator[str]:
    names = [name]
    if is_code and name and not name.startswith("-"):
        names += [name + suffix for suffix in SUFFIXES]
        if _NAME.fullmatch(name):
            module = name.replace(".", os.sep)
            names += [f"{module}.py", f"{module}.class"]
            names += [name.partition(".")[0], f"{name.partition('.')[0]}.py"]
    for one in names:
        if one not in seen and "\0" not in one:
            seen.add(one)
            yield one


def program_name(word: str) -> str:
    """Return a program's name without its folder and its version."""
    name = re.split(r"[\\/]", word)[-1]
    if name[-4:].lower() in (".exe", ".cmd", ".bat"):
        name = name[:-4]
    return name.rstrip("0123456789.")


# ── Covering files


MAX_BYTES = 64 * 2**20
"""Of all files of an entry together; beyond this, a file is covered by its size and modification time."""
MAX_FILES = 5_000
"""Of one folder."""
MAX_PIECES = 100_000
"""Of all possible paths in an entry."""
MAX_CHARS = 100_000
"""Of one argument or value."""
MAX_FOLDERS = 100
"""The most folders in which a runner's files are looked for."""


def gather(
    spec: ServerSpec,
    root: str | os.PathLike[str],
    inputs: Iterable[Input] = (),
    *,
    env: Mapping[str, str] | None = None,
) -> Evidence:
    """Return the evidence of an entry: its programs and files. Reads files.

    Args:
        spec: The server, with its variables not yet replaced.
        root: The project's directory.
        inputs: The inputs of the configuration.
        env: The environment that the server would be started in; this process's by default.
    """
    wanted = input_ids(spec)
    used = sorted((one for one in inputs if one.id in wanted), key=lambda one: one.id)
    look = _Look(spec, root, used, os.environ if env is None else env)
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
    """Collects the evidence of one entry."""

    def __init__(
        self,
        spec: ServerSpec,
        root: str | os.PathLike[str],
        inputs: Sequence[Input],
        env: Mapping[str, str],
    ) -> None:
        self._spec = spec
        self.root = os.path.abspath(root)  # noqa: PTH100 -- paths are texts here, for speed
        self._project = os.path.realpath(root)
        self._home = str(Path.home())
        self._keeps = spec.unset_variables == "keep"
        defaults = {one.id: one.default for one in inputs if one.default is not None}
        self._around = ExpansionContext(env=env, root=self.root, home=self._home, inputs=defaults)
        self._files: dict[str, Covered] = {}
        self._programs: dict[str, str] = {}
        self._gaps: dict[str, None] = {}
        self._left = MAX_BYTES
        self._pieces = MAX_PIECES

    def text(self, template: str) -> str:
        """Expand a template as a connection does, except values from a keyring or a command."""
        return expand(template, self._around, lambda _, whole: whole if self._keeps else "")

    def evidence(self) -> Evidence:
        files = [self._files[path] for path in sorted(self._files)]
        return Evidence(programs=self._programs, files=files, gaps=list(self._gaps))

    def at_named(self, templates: Iterable[str]) -> None:
        """Cover files that the entry names as files, wherever they are."""
        for template in templates:
            name = self.text(template)
            if len(name) < MAX_CHARS and "\n" not in name:
                self._cover(os.path.join(self.root, expand_home(name, self._home)), always=True, folders=True)  # noqa: PTH118

    def at_command(self, stdio: Stdio) -> None:
        """Cover the files that a command runs."""
        cwd = os.path.join(self.root, expand_home(self.text(stdio.cwd or ""), self._home))  # noqa: PTH118
        self.at_named(stdio.env_file)
        env: dict[str, str] = {}
        for template in stdio.env_file:
            try:
                path = os.path.join(self.root, expand_home(self.text(template), self._home))  # noqa: PTH118
                env |= read_env_file(Path(path))
            except (ConfigError, OSError, ValueError):
                continue  # starting the child reports it
        path = env.get("PATH", self._around.env.get("PATH"))
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
        if computes(words):
            self._gaps["a shell works out part of what it runs: files named there may not be covered"] = None
        for name, value in env.items():
            is_code = loads(name) or bool(NAMES_CODE.fullmatch(name))
            self._at_text(value, cwd, folders=loads(name), is_code=is_code)

    def at_line(self, line: str) -> None:
        """Cover the files of a command that prints a secret; it runs in the project's directory."""
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
            if 0 < index < zone and program_name(word) in RUNNERS and os.sep not in word:
                self._find_program(word, cwd, path, word)
        return zone

    # Programs

    def _find_program(self, command: str, cwd: str, path: str | None, shown: str) -> None:
        """Find the program of a command, by the child's directory and PATH."""
        if os.path.dirname(command):  # noqa: PTH120
            found = os.path.join(cwd, command)  # noqa: PTH118
        else:
            path = self._around.env.get("PATH", os.defpath) if path is None else path
            folders = path.split(os.pathsep)
            placed = os.pathsep.join(os.path.join(cwd, folder) for folder in folders)  # noqa: PTH118
            found = shutil.which(command, path=placed) or ""
        self._programs.setdefault(shown, os.path.normpath(found) if found else "")
        if found and self._is_ours(os.path.realpath(found)):
            self._cover(found)

    def _read_by(self, zone: Sequence[str], words: Sequence[str], cwd: str) -> None:
        """Cover files that a runner reads although the command does not name them."""
        names = dict.fromkeys(program_name(word) for word in (*zone, *words[:1]))
        if "compose" in words[1:]:
            names["compose"] = None
        names = {name: READS.get(name, ()) for name in names}
        folders = self._folders(zone if "compose" not in names else words, cwd) if any(names.values()) else ()
        for folder in folders:
            for file in dict.fromkeys(file for files in names.values() for file in files):
                self._cover_all(os.path.join(folder, file), folders=True)  # noqa: PTH118
            if names.keys() & NODE:
                for word in zone[1:]:
                    # A package in the project is run instead of the registry's.
                    package = word[:1] + word[1:].partition("@")[0]
                    for bin_ in {package, package.rpartition("/")[2]} - {"", ".", ".."}:
                        self._cover(os.path.join(folder, "node_modules", ".bin", bin_))  # noqa: PTH118
                self._at_package(folder, words)
            if names.keys() & (PYTHON | {"pixi"}):
                self._at_manifests(folder, ("pyproject.toml", "hatch.toml", "pixi.toml"), words)
            for file in (file for name in ("make", "just", "task") for file in names.get(name, ())):
                self._at_recipes(os.path.join(folder, file), folder)  # noqa: PTH118
            if "deno" in names:
                self._at_manifests(folder, ("deno.json", "deno.jsonc"), words)

    def _folders(self, words: Iterable[str], cwd: str) -> list[str]:
        """Return the folders that a runner searches: up to the project, and next to its arguments."""
        found = {cwd: None, self.root: None}
        folder = cwd = os.path.normpath(cwd)
        while self._is_ours(folder) and folder not in (self.root, self._project):
            found[folder] = None
            folder = os.path.dirname(folder)  # noqa: PTH120
        for word in words:
            for piece in (word, word.partition("=")[2]) if len(word) < MAX_CHARS else ():
                path = os.path.normpath(os.path.join(cwd, piece))  # noqa: PTH118
                if piece and "\0" not in piece and self._is_ours(path) and os.path.exists(path):  # noqa: PTH110
                    found[path if os.path.isdir(path) else os.path.dirname(path)] = None  # noqa: PTH112, PTH120
        return list(found)[:MAX_FOLDERS]

    def _at_package(self, folder: str, words: Sequence[str]) -> None:
        """Cover the scripts of a `package.json` and its workspaces that a command names."""
        package = _manifest(os.path.join(folder, "package.json"))  # noqa: PTH118
        self._at_scripts(package, words, folder)
        scripts = package.get("scripts")
        if package and "start" in words and not (isinstance(scripts, dict) and "start" in scripts):
            self._cover(os.path.join(folder, "server.js"))  # noqa: PTH118 -- the default of `npm start`
        bins = package.get("bin")
        own = {str(package.get("name")).rpartition("/")[2]: bins} if isinstance(bins, str) else bins
        if isinstance(own, dict) and any(word.partition("@")[0] in own for word in words):
            self._cover(os.path.join(folder, "package.json"))  # noqa: PTH118
            self._at_value(cast("object", own), folder)
        spaces = package.get("workspaces")
        patterns = cast("dict[str, Any]", spaces).get("packages") if isinstance(spaces, dict) else spaces
        for pattern in cast("list[object]", patterns)[:MAX_FOLDERS] if isinstance(patterns, list) else ():
            for path in self._fitting(os.path.join(folder, str(pattern))):  # noqa: PTH118
                file = os.path.join(path, "package.json")  # noqa: PTH118
                inner = _manifest(file)
                if any(str(inner.get("name")) in re.split(r"[=\s]", word) for word in words if inner):
                    self._cover(file)
                    self._at_scripts(inner, words, path)

    def _at_recipes(self, path: str, folder: str) -> None:
        """Cover the files that a makefile or a similar file names."""
        if not _is_special(path):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                    text = file.read(MAX_CHARS + 1)
            except OSError:
                return
            self._at_text(text, folder)

    def _at_manifests(self, folder: str, files: Iterable[str], words: Sequence[str]) -> None:
        for file in files:
            self._at_scripts(_manifest(os.path.join(folder, file)), words, folder)  # noqa: PTH118

    def _at_scripts(self, table: Mapping[str, Any], words: Iterable[str], folder: str) -> None:
        """Cover the scripts of a manifest that a command names, and those that they run in turn."""
        scripts = dict(_scripts(table))
        todo = [
            name for word in words for name in (f"pre{word}", word, f"post{word}", word.rpartition(":")[2])
        ]
        while todo and scripts:
            value = scripts.pop(todo.pop(), None)
            if value is not None:
                self._at_value(value, folder)
                todo += [name for text in _texts(value) for name in text[:MAX_CHARS].split()]

    def _at_value(self, value: object, folder: str) -> None:
        """Cover the files in a manifest's value: a command line, or a module in the folder or its `src`."""
        for text in _texts(value):
            for base in (folder, os.path.join(folder, "src")):  # noqa: PTH118
                self._at_text(text, base, folders=True, is_code=True)

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
            self._cover_all(os.path.join(cwd, piece), folders=folders, is_code=is_code)  # noqa: PTH118

    def _cover_all(self, path: str, *, folders: bool = False, is_code: bool = True) -> None:
        """Cover a path, or all matches if its last part is a pattern."""
        for each in self._fitting(path):
            self._cover(each, folders=folders, is_code=is_code)

    def _fitting(self, path: str) -> Sequence[str]:
        folder, name = os.path.split(path)
        if not re.search(r"[*?\[]", name) or not self._is_ours(os.path.normpath(folder)):
            return (path,)
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_FILES))
        except (OSError, ValueError):
            return ()
        return [os.path.join(folder, one) for one in fnmatch.filter(names, name)]  # noqa: PTH118

    def _cover(self, path: str, *, always: bool = False, folders: bool = False, is_code: bool = True) -> None:
        """Cover a path if it exists and is in the project; with `always`, in any case."""
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
        if path.endswith(".py"):
            for made in _unchecked(os.path.dirname(path), os.path.basename(path)[:-2]):  # noqa: PTH119, PTH120
                self._cover(made)

    def _cover_folder(self, path: str, real: str, shown: str, target: str) -> None:
        if self._project == real or self._project.startswith(real.rstrip(os.sep) + os.sep):
            # A project changes all the time, so cover only the files that start something.
            self._gaps["it names the project's own folder: only the files it starts with are covered"] = None
            package = _manifest(os.path.join(path, "package.json"))  # noqa: PTH118
            self._at_value([package.get("main"), package.get("bin"), package.get("directories")], path)
            for entry in ENTRIES:
                self._cover(os.path.join(path, entry))  # noqa: PTH118
            return
        whole, size, count = hashlib.sha256(), 0, 0
        seen: set[str] = set()
        for folder, names, files in os.walk(real, followlinks=True):
            place = os.path.realpath(folder)
            # A link may lead to a folder that was visited already.
            names[:] = [] if place in seen else sorted(name for name in names if name not in CACHES)
            files[:] = [] if place in seen else files
            seen.add(place)
            whole.update(json.dumps([os.path.relpath(folder, real), place]).encode())
            count += 1
            made = _unchecked(folder) if files else ()
            for file in sorted([*(os.path.join(folder, name) for name in files), *made]):  # noqa: PTH118
                if os.path.splitext(file)[1].lower() in DATA:  # noqa: PTH122
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
        """Return the hash of a file's content, or a word if it cannot be read, and its size."""
        if _is_special(path):
            return "special", 0
        # Non-blocking: opening a named pipe must not wait for its other end.
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


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 -- as above
    except OSError:
        return False
    return not stat.S_ISREG(mode)


def _unchecked(folder: str, name: str = "") -> list[str]:
    """Return the compiled modules in a folder that Python runs without checking their source (PEP 552)."""
    cache, found = os.path.join(folder, "__pycache__"), list[str]()  # noqa: PTH118
    try:
        with os.scandir(cache) as entries:
            names = [entry.name for entry in islice(entries, MAX_FILES)]
    except (OSError, ValueError):
        return []
    for one in names:
        path = os.path.join(cache, one)  # noqa: PTH118
        if one.startswith(name) and one.endswith(".pyc") and not _is_special(path):
            try:
                with open(path, "rb") as file:  # noqa: PTH123 -- paths are texts here
                    if file.read(8)[4:] == b"\1\0\0\0":
                        found.append(path)
            except OSError:
                continue
    return sorted(found)


def _manifest(path: str) -> dict[str, Any]:
    """Return the table in a JSON or TOML file; empty if there is none."""
    try:
        data: object = read(Path(path), only_regular=True, most=MAX_PROJECT_BYTES).data
    except (ConfigError, OSError, ValueError):
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _scripts(value: Mapping[str, Any], depth: int = 8) -> Iterator[tuple[str, object]]:
    """Yield the scripts of a manifest by name, from all of its tables."""
    for key, inner in value.items():
        if isinstance(inner, dict) and depth:
            table = cast("dict[str, Any]", inner)
            if key in ("scripts", "gui-scripts", "tasks", "entry-points"):
                yield from table.items()
            yield from _scripts(table, depth - 1)


def _texts(value: object, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth:
        table = cast("dict[object, object] | list[object]", value)
        for inner in table.values() if isinstance(table, dict) else table:
            yield from _texts(inner, depth - 1)
