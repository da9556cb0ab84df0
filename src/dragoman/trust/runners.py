"""What runs the rest of a command: which of its words are code, and which files a runner reads unnamed.

Only words are looked at here; `evidence.py` looks for them on disk.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RUNNERS = frozenset(
    "python pypy node nodejs bun bunx deno npx npm pnpm pnpx yarn tsx ts-node uv uvx pipx poetry pdm hatch "
    "rye pipenv ruby bundle rake perl php lua luajit java go cargo dotnet sh bash zsh dash ash ksh fish pwsh "
    "powershell cmd env nohup nice timeout stdbuf setsid sudo doas xvfb-run script direnv mise nix make just "
    "task mvn mvnw gradle gradlew uvicorn gunicorn hypercorn fastmcp mcp flask osascript Rscript julia "
    "elixir mix pixi".split()
)
"""Programs that run what they are given."""
_WORDS_TOO = frozenset("cmd env script direnv nix make just task mcp mix go fish nice timeout java".split())
"""Runners whose name is an ordinary word, so that an argument of another program may be called the same."""
SUBCOMMANDS = frozenset("run exec x dlx tool start task compose module shell serve dev -- /c /C".split())
FLAGS = frozenset(
    "-y --yes -q --quiet -u -B -E -s -S -O -OO --offline --isolated --no-install --no-cache --frozen".split()
)
"""Options of runners that take no value: the word behind any other option may belong to it."""
CODE = frozenset("-c -e -p --eval --print -lc -ic /c /C -Command".split())
"""Options whose value is the program itself."""
DATA = frozenset(".db .db3 .sqlite .sqlite3 .duckdb .db-wal .db-shm .log .lock .pid".split())
CACHES = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox".split()
)
"""Folders within a folder that are not looked into: what is installed or made there is not covered."""
SUFFIXES = tuple(".js .cjs .mjs .json .node .ts .mts .cts .tsx .py .pyc .rb .pm .lua .php .sh .class".split())
"""What runners add to a name."""
ENTRIES = tuple(
    "package.json index.js index.mjs index.cjs index.ts __main__.py main.py pyproject.toml setup.py go.mod "
    "main.go Cargo.toml sitecustomize.py usercustomize.py".split()
)
"""What a runner looks for in a folder; all that counts of the project's own."""
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
"""Files and folders that decide what a runner does although the command does not name them, by runner."""
NAMES_CODE = re.compile(
    r"\w+_(?:APP|MODULE|SETTINGS|CONFIG|PLUGINS?|OPTIONS|OPTS|ARGS|FLAGS|HOOKS?|SCRIPT|CMD|COMMAND|EXEC|FILE)",
    re.IGNORECASE,
)
"""Variables whose value may name code, besides those of loaders."""

_PIECES = re.compile(r"[\s;&|()<>{}'\"`,=]+")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_SHELLS = frozenset("sh bash zsh dash ash ksh fish pwsh powershell cmd".split())


def runner_zone(words: Sequence[str]) -> int:
    """Return how many words of a command belong to what runs the rest: options, and the script itself.

    A runner may stand behind another program (`flock FILE python -m server`): what it runs is code too.
    """
    inner = RUNNERS - _WORDS_TOO
    starts = [at for at, word in enumerate(words) if at and program_name(word) in inner]
    return max([_zone(words), *(at + _zone(words[at:]) for at in starts[-1:])])


def computes(words: Sequence[str]) -> bool:
    """Return whether a shell works out part of what it runs."""
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
    """Yield everything in an argument or a value that may be a path."""
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
            # Behind a variable of the shell's, such as `$PWD`, the rest may be a path in the project.
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
    """Return what a program is called, without its folder and its version."""
    name = re.split(r"[\\/]", word)[-1]
    if name[-4:].lower() in (".exe", ".cmd", ".bat"):
        name = name[:-4]
    return name.rstrip("0123456789.")
