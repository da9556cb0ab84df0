"""Covers files: which files of an entry count, and a hash of the content of each.

It knows nothing of commands; `evidence.py` says which paths and folders to look at. Paths are resolved as the
kernel does. Files of the system and of the user's installations are not covered. Everything is bounded, only
regular files are read, and nothing is run.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
import sys
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.command_lines import pieces_of, with_stars
from dragoman.config.documents import MAX_PROJECT_BYTES
from dragoman.config.files import read
from dragoman.config.templates import expand_home
from dragoman.errors import ConfigError
from dragoman.trust.approvals import Covered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NO_DATA = frozenset[str]()
DATA = frozenset(".db .db3 .sqlite .sqlite3 .duckdb .db-wal .db-shm .log .lock .pid".split())
NOTES = DATA | frozenset(
    ".md .rst .adoc .txt .csv .tsv .jsonl .ndjson .parquet .xlsx .docx .pdf .html .css .svg .png .jpg .gif "
    ".jpeg .webp .ico .woff .woff2 .ttf .mp3 .mp4 .wav .lockb .sum .bak .tmp .swp".split()
)
"""What is data unless the command names it."""
_NO_NOTES = re.compile(r"(?i)(?:requirements|constraints).*|.*lists\.txt")
_IDLE = re.compile(r".*-lock\.(?:json|yaml)|\.gitignore|\.DS_Store|LICENSE")
SOURCES = frozenset(
    ".py .pyi .js .mjs .cjs .jsx .ts .mts .cts .tsx .vue .svelte .go .rs .rb .java .kt .scala .c .h .cc .cpp "
    ".hpp .cs .fs .php .pl .pm .lua .swift .ex .exs .hs .ml .zig .dart .r .jl .sh .ps1 .sql .ipynb".split()
)
"""Of these, an installed program that is not known reads only those with a name of `STARTS` by itself."""
VERSIONS = (".tool-versions", "mise.toml", ".mise.toml", ".nvmrc")
"""Files by which a version manager chooses what its shims run."""
FORMATS = frozenset(".json .jsonc .json5 .yaml .yml .toml .xml .ini .cfg .conf".split())
"""Of these, an unknown program reads below the top of its folder only those with a name of `STARTS`."""
STARTS = re.compile(
    r"(?i).*file|.*settings|(?:.*[.-])?(?:config|conf|rc|versions|scripts)|\..*|tasks?|dodo|duties|conftest|manage|"
    r"setup|build|package|project|main|index|app|server|wsgi|asgi|__main__|sitecustomize|usercustomize|application"
)
ENTRIES = tuple(
    "package.json index.js index.mjs index.cjs index.ts __main__.py main.py pyproject.toml setup.py go.mod "
    "main.go Cargo.toml sitecustomize.py usercustomize.py".split()
)
"""Files that a runner looks for in a folder; of the project's own folder, only these are covered."""
CACHES = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox".split()
)
"""Subfolders that are skipped: what is installed or generated there is not covered."""
OUTPUTS = CACHES | frozenset("dist build target out coverage vendor".split())
"""Subfolders in which no unknown program is expected to find its settings."""
ENVIRONMENTS = frozenset("node_modules site-packages dist-packages .venv venv .tox .nox".split())
SYSTEM = tuple(
    "/bin /sbin /lib /lib32 /lib64 /usr/bin /usr/sbin /usr/lib /usr/lib64 /usr/libexec /usr/share /usr/local "
    "/usr/include /etc /opt /nix /snap /dev /proc /sys /run /boot /var/lib /var/run /System /Library "
    "/Applications /home/linuxbrew".split()
)
_OF_HOME = re.compile(r"\.|(?:bin|go|Library|AppData|\w+conda\d*|\w+forge\d*)(?![^\\/])")
"""Folders of the home directory in which programs are installed."""


_PATTERN = re.compile(r"[*?\[]")
TOO_MUCH = "it names too much: not all of it was looked for on disk"

MAX_BYTES = 64 * 2**20
"""Of all files of an entry together; beyond this, a file is covered by its size and modification time."""
MAX_FILES = 5_000
"""Of one folder."""
MAX_PIECES = 100_000
"""Of all possible paths in an entry."""
MAX_CHARS = 100_000
"""Of one argument or value."""
MAX_PLACES = 10
"""Of the folders that a recipe names."""
MAX_FOLDERS = 100
"""The most folders in which a runner's files are looked for."""


class CoveredFiles:
    """The covered files of one entry, and what is not covered."""

    def __init__(self, root: str | os.PathLike[str], env: Mapping[str, str], origin: str) -> None:
        """Cover nothing yet.

        Args:
            root: The project's directory.
            env: The environment that the server would be started in.
            origin: The file of the entry.
        """
        self.root = os.path.abspath(root)
        self._project = real_path(os.fspath(root))
        # Another entry in the file of this entry is another server's.
        self._origin = real_path(os.path.join(self.root, origin))
        self._home = str(Path.home())
        self._repository = self._find_repository()
        installed = (*SYSTEM, sys.prefix, sys.base_prefix, *map(env.get, ("SYSTEMROOT", "PROGRAMFILES")))
        self._installed = [place for place in installed if place and not is_in(self._project, place)]
        self._env = dict(env)
        self._files: dict[str, Covered] = {}
        self._gaps: dict[str, None] = {}
        self._left = MAX_BYTES
        self._pieces = MAX_PIECES
        self._walked = 0
        self._listings: dict[str, list[os.DirEntry[str]]] = {}

    def _at_value(self, value: object, folder: str) -> None:
        """Cover the files in a manifest's value: a command line, or a module in the folder or its `src`."""
        for text in texts_in(value):
            for base in (folder, os.path.join(folder, "src")):
                self._at_text(text, base, folders=True, is_code=True)

    def _at_text(
        self,
        text: str,
        cwd: str,
        *,
        folders: bool = False,
        is_code: bool = False,
        data: frozenset[str] | None = None,
    ) -> None:
        """Cover the files that a text names, with data only if it is code."""
        data = (NO_DATA if is_code else DATA) if data is None else data
        if len(text) > MAX_CHARS:
            self._gaps["an argument or a value is too long to look for files in it"] = None
            return
        texts = [text]
        if "$" in text or (is_code and re.search(r"`|~\+", text)):
            texts.append(re.sub(r"\$\{?(\w+)\}?", lambda match: self._env.get(match[1], match[0]), text))
            texts += with_stars(texts[-1])
        for piece in (piece for one in dict.fromkeys(texts) for piece in pieces_of(one, is_code=is_code)):
            self._pieces -= 1
            if self._pieces < 0:
                self._gaps[TOO_MUCH] = None
                return
            # This process has another working directory than the child.
            place = re.sub(
                r"^/proc/(?:thread-)?self/cwd(?=/|$)", lambda _: cwd, expand_home(piece, self._home)
            )
            for path in self._fitting(os.path.join(cwd, place)):
                self._cover(path, folders=folders, data=data)

    def _fitting(self, path: str) -> Sequence[str]:
        """Return a path, and those that fit it as a pattern; a pattern without a letter fits too much."""
        if not _PATTERN.search(path):
            return (path,)
        parts = path.split(os.sep)
        fixed = list(takewhile(lambda part: not _PATTERN.search(part), parts))
        found, rest = [os.sep.join(fixed) or os.sep], parts[len(fixed) :]
        if not re.search(r"[^\W_]", "".join(rest)) and (
            len(rest) > 1 or real_path(found[0]) == self._project
        ):
            return (path,)
        for at, part in enumerate(rest):
            if part == "**" and "**" not in rest[:at]:
                found = [folder for one in found[:MAX_PLACES] for folder in self._subfolders(one)]
                continue
            self._pieces -= 10 * len(found[:MAX_FOLDERS])  # resolving a path costs more than reading a word
            if self._pieces < 0:
                self._gaps[TOO_MUCH] = None
                return (path,)
            ours = [folder for folder in found[:MAX_FOLDERS] if self._is_ours(folder)]
            found = [
                os.path.join(folder, name)
                for folder in ours
                for name in (self._matching(folder, part) if _PATTERN.search(part) else [part])
            ]
        return [path, *found]

    def _matching(self, folder: str, pattern: str) -> list[str]:
        """Return the names in a folder that fit a pattern, as a shell has it."""
        names = self._names(folder)
        self._pieces -= len(names) // 10
        is_open = not pattern.startswith(("*", "?"))
        return [name for name in fnmatch.filter(names, pattern) if is_open or name[0] != "."]

    def _subfolders(self, folder: str) -> list[str]:
        """Return a folder and the folders in it, at any depth, without what is installed or generated."""
        found, todo = list[str](), [folder]
        while todo and len(found) < MAX_FOLDERS:
            found.append(todo.pop(0))
            todo += [entry.path for entry in self._entries(found[-1]) if _is_open(entry)]
        if todo:
            self._note_many(folder)
        return found

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        if folder not in self._listings:
            try:
                with os.scandir(folder) as entries:
                    found = sorted(islice(entries, MAX_FILES + 1), key=lambda entry: entry.name)
            except (OSError, ValueError):
                found = []
            if len(found) > MAX_FILES:
                self._note_many(folder)
            self._listings[folder] = found
        return self._listings[folder]

    def _names(self, folder: str) -> list[str]:
        return [entry.name for entry in self._entries(folder)]

    def _note_many(self, folder: str) -> None:
        shown = self._shown(folder)
        self._gaps[f"{shown or '.'} has more than {MAX_FILES:,} files: not all of them are covered"] = None
        # Files that come later must not hide others unasked.
        many = os.path.join(shown, "*")
        self._files[many] = Covered(path=many, digest="many")

    def _cover_top(self, folder: str, *, is_whole: bool, is_deep: bool, compiled: frozenset[str]) -> None:
        """Cover the files in a folder that a program may read by itself; subfolders only if it is deep."""
        todo = [folder]
        while todo and self._walked < MAX_FILES:
            place = todo.pop()
            for entry in self._entries(place):
                self._walked += place != folder
                name, (stem, suffix) = entry.name, os.path.splitext(entry.name)
                if is_deep and _is_open(entry):
                    todo.append(entry.path)
                # `tasks/__init__.py` counts by the name of its folder.
                named = os.path.basename(place) if stem == "__init__" and place != folder else stem
                is_start = suffix in compiled or bool(STARTS.fullmatch(named))
                if suffix.lower() in SOURCES and not is_whole:
                    is_start |= is_deep and os.access(entry.path, os.X_OK)
                else:
                    is_start |= place == folder or suffix.lower() not in FORMATS | SOURCES
                if is_start and not _IDLE.fullmatch(name) and real_path(entry.path) != self._origin:
                    self._cover(entry.path, data=NO_DATA if _NO_NOTES.fullmatch(name) else NOTES)
        if todo:
            self._note_many(folder)

    def _cover(
        self, path: str, *, always: bool = False, folders: bool = False, data: frozenset[str] = NO_DATA
    ) -> None:
        """Cover a path if it exists, is ours and not data; with `always`, in any case.

        Programs resolve `link/..` as the kernel does, or as text: if these differ, both are covered.
        """
        names = plain_paths(path)
        found = [name for name in names if os.path.lexists(name)]
        for name in found:
            if always or self._is_ours(name):
                self._cover_one(name, real_path(name), folders=folders, data=data)
        if always and not found:
            shown = self._shown(names[0])
            self._files[shown] = Covered(path=shown, digest="absent")

    def _cover_one(self, path: str, real: str, *, folders: bool, data: frozenset[str]) -> None:
        shown = self._shown(path)
        try:
            mode = os.stat(real).st_mode
        except (OSError, ValueError):
            return
        if shown in self._files:
            return
        target = "" if self._shown(real) == shown else self._shown(real)
        if stat.S_ISDIR(mode):
            if folders:
                self._cover_folder(path, real, shown, target)
            return
        if data and not self._is_in_project(real):
            data |= NOTES
        if _is_data(path, mode, data) or (data and not stat.S_ISREG(mode) and not self._is_in_project(real)):
            return
        digest, size = self._digest(real)
        if digest == "special":
            self._gaps[f"{shown} is not a regular file: what it gives is not covered"] = None
        self._files[shown] = Covered(path=shown, digest=digest, size=size, target=target)
        if path.endswith(".py"):
            for made in _unchecked(os.path.dirname(path), os.path.basename(path)[:-2]):
                self._cover(made)

    def _cover_folder(self, path: str, real: str, shown: str, target: str) -> None:
        if is_in(self._project, real):
            # A project changes all the time, so cover only the files that start something.
            self._gaps["it names the project's own folder: only the files it starts with are covered"] = None
            package = read_manifest(os.path.join(path, "package.json"))
            self._at_value([package.get("main"), package.get("bin"), package.get("directories")], path)
            for entry in ENTRIES:
                self._cover(os.path.join(path, entry))
            return
        whole, size, count = hashlib.sha256(), 0, 0
        seen: set[str] = set()
        for folder, names, files in os.walk(real, followlinks=True):
            place = real_path(folder)
            # A link may lead to a folder that was visited already.
            names[:] = [] if place in seen else sorted(name for name in names if name not in CACHES)
            files[:] = [] if place in seen else files
            seen.add(place)
            whole.update(json.dumps([os.path.relpath(folder, real), place]).encode())
            count += 1
            made = _unchecked(folder) if files else ()
            for file in sorted([*(os.path.join(folder, name) for name in files), *made]):
                with suppress(OSError):
                    if _is_data(file, os.stat(file).st_mode, DATA):
                        continue
                count += 1
                if count > MAX_FILES:
                    self._note_many(path)
                    break
                digest, length = self._digest(file)
                size += length
                row = [os.path.relpath(file, real), real_path(file), digest, length]
                whole.update(json.dumps(row).encode())
            if count > MAX_FILES:
                break
        name = f"{shown}{os.sep}"
        self._files[shown] = Covered(path=name, digest=whole.hexdigest(), size=size, target=target)

    def _digest(self, path: str) -> tuple[str, int]:
        """Return the hash of a file's content, or a word if it cannot be read, and its size."""
        if is_special(path):
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
        """Return whether a path, or what it leads to, is neither the system's nor one of an installation."""
        places = (path, real_path(path))
        return any(map(self._is_in_project, places)) or not self._is_installed(places[1])

    def _is_installed(self, path: str) -> bool:
        root = next((one for one in (self._repository, self.root) if is_in(path, one)), "")
        if not root and any(is_in(path, place) for place in self._installed):
            return True
        if not root and is_in(path, self._home) and _OF_HOME.match(path, len(self._home) + 1):
            return True
        environment = os.path.join(os.path.dirname(os.path.dirname(path)), "pyvenv.cfg")
        return bool(ENVIRONMENTS.intersection(path.removeprefix(root).split(os.sep))) or os.path.exists(
            environment
        )

    def _is_in_project(self, path: str) -> bool:
        return any(is_in(path, root) for root in (self._repository, self._project, self.root))

    def _find_repository(self) -> str:
        """Return the top of the project's repository; the project if it is in none."""
        folder = self._project
        while not is_in(self._home, folder) and folder != os.path.dirname(folder):
            if os.path.exists(os.path.join(folder, ".git")):
                return folder
            folder = os.path.dirname(folder)
        return self._project

    def _shown(self, path: str) -> str:
        for root in (self._project, self.root):
            if is_in(path, root):
                return path[len(root.rstrip(os.sep)) + 1 :]
        return path

    def _note_link(self, path: str) -> None:
        """Cover where a link leads to, without what is there."""
        shown, target = self._shown(path), self._shown(real_path(path))
        self._files.setdefault(shown, Covered(path=shown, digest="link", target=target))


def real_path(path: str) -> str:
    """Return where a path leads to, as the kernel resolves it."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # it cannot exist
        return os.path.normpath(path)


def is_in(path: str, folder: str) -> bool:
    """Return whether a path is a folder or something in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def plain_paths(path: str) -> list[str]:
    """Return a path without dots; if a link makes that another path, both."""
    plain = os.path.normpath(path)
    is_same = ".." not in path or real_path(plain) == real_path(path)
    return [plain] if is_same else [path, plain]


def _is_open(entry: os.DirEntry[str]) -> bool:
    """Return whether a program may find its files in a subfolder: not in what is installed or generated."""
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
    return is_folder and entry.name not in OUTPUTS and entry.name[0] != "."


def is_named(file: str, program: str) -> bool:
    """Return whether a file is named after a program: `.mise`, `mise.toml`, `mise-tasks`."""
    name = re.split(r"[@\d]", program)[0].replace("_", "-").lower()
    stem = file.lstrip(".").replace("_", "-").lower()
    return len(name) > 1 and (stem.startswith(name) or (len(stem) > 2 and name.startswith(stem)))


def _is_data(path: str, mode: int, data: frozenset[str]) -> bool:
    """Return whether a file is data by its suffix; an executable file never is."""
    return os.path.splitext(path)[1].lower() in data and not mode & 0o111


def is_special(path: str) -> bool:
    """Return whether there is something else than a regular file: a pipe, a device, a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode)


def _unchecked(folder: str, name: str = "") -> list[str]:
    """Return the compiled modules in a folder that Python runs without checking their source (PEP 552)."""
    cache, found = os.path.join(folder, "__pycache__"), list[str]()
    try:
        with os.scandir(cache) as entries:
            names = [entry.name for entry in islice(entries, MAX_FILES)]
    except (OSError, ValueError):
        return []
    for one in names:
        path = os.path.join(cache, one)
        if one.startswith(name) and one.endswith(".pyc") and not is_special(path):
            try:
                with open(path, "rb") as file:
                    if file.read(8)[4:] == b"\1\0\0\0":
                        found.append(path)
            except OSError:
                continue
    return sorted(found)


def read_manifest(path: str) -> dict[str, Any]:
    """Return the table in a JSON or TOML file; empty if there is none."""
    try:
        kind = "toml" if os.path.basename(path) == "Pipfile" else None
        data: object = read(Path(path), kind, only_regular=True, most=MAX_PROJECT_BYTES).data
    except (ConfigError, OSError, ValueError):
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def texts_in(value: object, depth: int = 8) -> Iterator[str]:
    """Yield every text in a value of a manifest."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth:
        table = cast("dict[object, object] | list[object]", value)
        for inner in table.values() if isinstance(table, dict) else table:
            yield from texts_in(inner, depth - 1)
