"""Finds the files that are part of what a user approves: the program, and the files that it runs.

An approval covers their content, so that a script cannot change after it. Covered are the files that an
entry names (the command, its arguments, variables, `${command:…}`, env files, TLS files, the key of a login),
the files that a known program reads by itself, and for a program that is not known the files at the top of
its folder. A text with blanks is read as a command line in turn. Paths are resolved as the kernel does. Files
of the system and of the user's installations are not covered; a program there is covered by its path.

Words before the script belong to the program (`python -X dev server.py`): a folder among them is code and is
covered with its files. After the script, folders, databases and logs count as data, which the server may
write; an executable file is never data. Everything is bounded, only regular files are read, and nothing is
run. It reads the disk: use it in a thread.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.config.command_lines import (
    BUILDERS,
    CLASSES,
    CODE_OPTION,
    KNOWN,
    LAUNCHERS,
    MANIFESTS,
    NODE,
    PLAIN,
    READS,
    RECIPES,
    SCRIPTS,
    SHELLS,
    SUBCOMMANDS,
    WRAPPERS,
    command_lines,
    commands_of,
    computes,
    inner_commands,
    is_assignment,
    is_server,
    is_word,
    launched_by,
    on_host,
    pieces_of,
    program_name,
    runner_zone,
    runs_tests,
    served_command,
    takes_line,
)
from dragoman.config.covered_files import (
    DATA,
    MAX_CHARS,
    MAX_FOLDERS,
    MAX_PLACES,
    NO_DATA,
    NOTES,
    SOURCES,
    TOO_MUCH,
    VERSIONS,
    CoveredFiles,
    is_in,
    is_named,
    is_special,
    plain_paths,
    read_manifest,
    real_path,
    texts_in,
)
from dragoman.config.files import read_env_file
from dragoman.config.templates import ExpansionContext, expand, expand_home
from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.trust.approvals import Evidence, input_ids, loads, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.model import Input, ServerSpec

NAMES_CODE = re.compile(
    r"(?:\w+_)?(?:APP|MODULE|SETTINGS|CONFIG|PLUGINS?|OPTIONS|OPTS|ARGS|FLAGS|HOOKS?|SCRIPT|CMD|COMMAND|EXEC|FILE)",
    re.IGNORECASE,
)
"""Variables whose value may name code, in addition to those of loaders."""
NAMES_DATA = re.compile(
    r"(?:\w+_)?(?:DB|DATABASE|SQLITE|LOGS?|DATA|STORE|STORAGE|MEMORY|CACHE|HISTORY|STATE|OUTPUT)(?:_(?:FILE|PATH|DIR))*",
    re.IGNORECASE,
)
"""Variables whose value names what the server writes, unless they are those of loaders."""
_BUILDS = frozenset("compose build buildx bake stack".split())
_INSTALLS = frozenset("install i ci add update".split())
_OF_INSTALLS = ("preinstall", "install", "postinstall", "prepublish", "prepare")


MAX_COMMANDS = 500
"""Of all commands in an entry."""


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
            look.at_source(words)
    return look.evidence().replace(inputs=used)


class _Place(NamedTuple):
    """Where a command runs."""

    cwd: str
    path: str | None = None
    """Its `PATH`."""
    installed: bool = False
    """Whether its programs are those of an environment."""


class _Look(CoveredFiles):
    """Collects the evidence of one entry."""

    def __init__(
        self,
        spec: ServerSpec,
        root: str | os.PathLike[str],
        inputs: Sequence[Input],
        env: Mapping[str, str],
    ) -> None:
        super().__init__(root, env, os.path.join(root, spec.origin.source))
        self._spec = spec
        self._keeps = spec.unset_variables == "keep"
        defaults = {one.id: one.default for one in inputs if one.default is not None}
        self._around = ExpansionContext(env=env, root=self.root, home=self._home, inputs=defaults)
        self._programs: dict[str, str] = {}
        self._commands: set[tuple[str, ...]] = set()
        self._recipes: set[tuple[str, str]] = set()

    def text(self, template: str) -> str:
        """Expand a template as a connection does, except values from a keyring or a command."""
        return expand(template, self._around, lambda _, whole: whole if self._keeps else "")

    def evidence(self) -> Evidence:
        files = [self._files[path] for path in sorted(self._files)]
        return Evidence(programs=self._programs, files=files, gaps=list(self._gaps))

    def _path(self, template: str) -> str:
        return os.path.join(self.root, expand_home(self.text(template), self._home))

    def at_named(self, templates: Iterable[str]) -> None:
        """Cover files that the entry names as files, wherever they are."""
        for path in map(self._path, templates):
            if len(path) < MAX_CHARS and "\n" not in path:
                self._cover(path, always=True, folders=True)

    def at_command(self, stdio: Stdio) -> None:
        """Cover the files that a command runs."""
        cwd = self._path(stdio.cwd or "")
        if stdio.cwd and real_path(cwd) != os.path.normpath(cwd):
            self._note_link(cwd)
        self.at_named(stdio.env_file)
        env: dict[str, str] = {}
        for template in stdio.env_file:
            try:
                env |= read_env_file(Path(self._path(template)))
            except (ConfigError, OSError, ValueError):
                continue  # starting the child reports it
        path = env.get("PATH", self._around.env.get("PATH"))
        for name, value in stdio.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = self.text(value)
            if name == "PATH":
                path = env.get("PATH")
        self._env |= {**env, "PWD": cwd}
        words = [expand_home(self.text(stdio.command), self._home), *map(self.text, stdio.args)]
        if sources(self._spec.replace(transport=stdio.replace(env={}), auth=None)):
            gap = "part of it is known only when it is started: files named there are not covered"
            self._gaps[gap] = None
        place = _Place(cwd, path)
        self._find_program(words[0], place, shown=stdio.command.split(" ")[0])
        self._at_words(words, place)
        if computes(words):
            self._gaps["a shell works out part of what it runs: files named there may not be covered"] = None
        for name, value in env.items():
            is_data = NAMES_DATA.fullmatch(name) and not loads(re.sub(r"(?i)PATH$", "", name))
            is_code = not is_data and (loads(name) or bool(NAMES_CODE.fullmatch(name)))
            data = NOTES | {".json"} if is_data else NO_DATA if is_code else DATA
            self._at_text(value, cwd, folders=is_code, is_code=is_code, data=data)
            if loads(name) and "" in value.split(os.pathsep)[1 - bool(value) :]:
                self._cover(cwd, folders=True)
            if is_code:
                self._at_line(value, place, is_sure=False)

    def at_source(self, line: str) -> None:
        """Cover the files of a command that prints a secret; it runs in the project's directory."""
        try:
            words = shlex.split(self.text(line))
        except ValueError:
            words = self.text(line).split()
        for word in words[:1]:
            words[0] = expand_home(word, self._home)
            self._find_program(words[0], _Place(self.root), shown=word)
        self._at_words(words, _Place(self.root))

    # Commands

    def _at_line(self, line: str, place: _Place, *, is_sure: bool = True) -> None:
        """Cover the files of each command in a text.

        If it is not sure that the text is a command line, only known programs and files in it count.
        """
        if len(line) > MAX_CHARS:
            return  # `_at_text` reports it
        if is_sure:
            self._at_text(line, place.cwd, folders=True, is_code=True)
        places = [place]
        for words in commands_of(line):
            if words[0] in ("cd", "pushd") and len(words) > 1:
                folder = os.path.join(places[-1].cwd, expand_home(words[-1], self._home))
                places = [*places[-2:], place._replace(cwd=folder)]
            for each in places:
                is_path = os.path.dirname(words[0]) and os.path.isfile(os.path.join(each.cwd, words[0]))
                if is_sure or is_path or program_name(words[0]) in KNOWN:
                    self._at_words(words, each)
                    continue
                for inner in words:  # a quoted command in the code of another language
                    if " " in inner and inner != line:
                        self._at_line(inner, each, is_sure=False)

    def _at_words(self, words: Sequence[str], place: _Place) -> None:
        """Cover the files of one command: those that its words name, and those that its program reads."""
        cwd = place.cwd
        if words and " " in words[0] and not os.path.exists(os.path.join(cwd, words[0])):
            words = [*words[0].split(), *words[1:]]
        words = on_host(list(dropwhile(is_assignment, words)))
        if not words or (cwd, *words) in self._commands:
            return
        if len(self._commands) >= MAX_COMMANDS:
            self._gaps[TOO_MUCH] = None
            return
        self._commands.add((cwd, *words))
        name, zone, has_line = program_name(words[0]), runner_zone(words), False
        has_code = zone > 1 and takes_line(words, zone - 1)
        is_reader = name not in PLAIN or bool(_BUILDS.intersection(words))
        is_unknown = name not in CLASSES and not is_server(words[0])
        for index, word in enumerate(words):
            # `--plugin x` and `--plugin=x`
            option = (word if "=" in word else words[index - 1] if index else "").partition("=")[0]
            # `tail -f x.log` reads data.
            names_code = CODE_OPTION.fullmatch(option) and (is_reader or option != "-f")
            is_code = index < zone or bool(names_code)
            if index or os.path.dirname(word):
                self._at_text(word, cwd, folders=is_code, is_code=is_code)
            if is_unknown:
                self._at_text(word, cwd, is_code=True, data=DATA)
            for line, is_sure in command_lines(words, index) if index else ():
                has_line |= is_sure
                self._at_line(line, place, is_sure=is_sure)
        inner, folders = inner_commands(words, zone), [cwd]
        found = self._find_program(words[0], place)
        if "shims" in found.split(os.sep):
            for folder in self._folders((), cwd):
                for file in (*VERSIONS, f".{name}-version"):
                    self._cover(os.path.join(folder, file))
        is_installed = place.installed or name in LAUNCHERS
        if name in WRAPPERS:
            starts = [at for at, word in enumerate(words) if at and not re.match(r"-|\w+=", word)]
            if not inner and not has_line:
                inner = [*(at for at in starts if self._find_program(words[at], place)), *starts][:1]
            # A wrapper may change the directory: `env --chdir=folder make`.
            folders += self._named(words[1 : max([1, *inner])], cwd)
        elif is_server(launched_by(words[:zone]) or words[0]) or "--" in words[zone:] or has_code:
            at = served_command(words, zone)
            if at and not os.path.isdir(os.path.join(cwd, words[at])):
                inner, is_installed = [*inner, at], True
        for at in inner:
            if (
                (at < zone or name in WRAPPERS)
                and os.sep not in words[at]
                and program_name(words[at]) in KNOWN
            ):
                self._find_program(words[at], place, shown=words[at])
            for folder in dict.fromkeys(folders):
                self._at_words(words[at:], _Place(folder, place.path, is_installed))
        if (
            name in BUILDERS.keys() - READS.keys()
            or name not in CLASSES
            or (name not in READS and self._is_own(found, words[0]))
        ):
            self._at_unknown(words, found, place)
        elif name in PLAIN and _BUILDS.intersection(takewhile(lambda word: word != "run", words[1:])):
            self._at_known("compose", words, len(words), cwd)
        elif name not in PLAIN | WRAPPERS:
            self._at_known(name, words, zone, cwd)
            if name in SCRIPTS | {"go"} and (runs_tests(words) or any("..." in word for word in words)):
                self._at_unknown(words, found, place)

    def _at_unknown(self, words: Sequence[str], found: str, place: _Place) -> None:
        """Cover the files that an unknown program may read: at the top of the folders that it may search.

        An installed program has its own code elsewhere: of the source files, it gets only those with the name
        of a file that runners look for. One with a subcommand or a task gets them from subfolders, too.
        """
        word, is_own, is_installed = words[0], self._is_own(found, words[0]), place.installed
        folders = self._folders(words, place.cwd)
        name = program_name(word).lower()
        if is_server(word) and not is_own:
            for folder in folders:
                for one in self._names(folder):
                    if is_named(one, name):
                        self._cover(os.path.join(folder, one), data=NOTES)
            return
        if is_own:
            folders = list(dict.fromkeys([*folders, os.path.dirname(found)]))
            if interpreter := _interpreter(found):
                self._at_words([*interpreter, found, *words[1:]], place)
                is_installed = True
        is_whole = not is_installed and (is_own or not found) and name not in KNOWN
        compiled = SOURCES if runs_tests(words) else frozenset(BUILDERS.get(name, "").split())
        is_deep = bool(compiled) or any(map(is_word, words[1:2])) or name in KNOWN
        deep = [real_path(place.cwd), *self._named(words, place.cwd)] if is_deep else []
        for folder in folders:
            self._cover_top(folder, is_whole=is_whole, is_deep=folder in deep, compiled=compiled)
            config = os.path.join(folder, ".config")
            hidden = [os.path.join(folder, one) for one in self._names(folder) if one[:1] == "."]
            for path in (*hidden, *(os.path.join(config, one) for one in self._names(config))):
                if is_named(os.path.basename(path), name):
                    self._cover(path, folders=True)
        where = (
            ", ".join(dict.fromkeys(self._shown(folder) or "this folder" for folder in folders))
            or "no folder"
        )
        what = "files (not data)" if is_whole else "settings and main files"
        gap = f"`{word}` is not a known program: the {what} at the top of {where} are watched"
        below = ", settings and main files below" if deep else ""
        self._gaps[f"{gap}{below}, and nothing else that it reads by itself"] = None

    def _at_known(self, name: str, words: Sequence[str], zone: int, cwd: str) -> None:
        """Cover files that a known program reads although the command does not name them."""
        is_script = False
        for folder in self._folders(words[:zone], cwd):
            for match in (
                one for file in READS.get(name, ()) for one in self._fitting(os.path.join(folder, file))
            ):
                self._cover(match, folders=True)
                self._at_recipes(name, match, folder)
            if name in NODE or any(word.startswith("--run") for word in words[1:]):
                for word in words[1:zone]:
                    # A package in the project is run instead of the registry's.
                    package = word[:1] + word[1:].partition("@")[0]
                    for bin_ in {package, package.rpartition("/")[2]} - {"", ".", ".."}:
                        self._cover(os.path.join(folder, "node_modules", ".bin", bin_))
                is_script |= self._at_manifest(folder, "package.json", words)
            for file in MANIFESTS.get(name, ()):
                is_script |= self._at_manifest(folder, file, words)
            if "setup.py" in READS.get(name, ()):
                project = read_manifest(os.path.join(folder, "pyproject.toml"))
                self._at_value(project.get("build-system"), folder)
                for text in texts_in(project.get("tool")):
                    self._at_text(text if text.endswith(".py") else "", folder)
        for word in words[1:zone] if name in SHELLS else words[1:]:
            path = os.path.join(cwd, word)
            for folder in {cwd: None, **({os.path.dirname(path): None} if name in SHELLS else {})}:
                self._at_recipes(name, path, folder)
        if any(word.startswith("--env") for word in words[:zone]):
            self._cover(os.path.join(cwd, ".env"))
        if not is_script and (launched := launched_by(words[:zone])):
            is_module = name in SCRIPTS and name not in NODE
            names = pieces_of(launched, is_code=True) if is_module else [launched]
            if not any(os.path.exists(os.path.join(cwd, one)) for one in names):
                self._at_unknown([launched, *words[zone:]], "", _Place(cwd, installed=True))

    # Programs

    def _find_program(self, command: str, place: _Place, *, shown: str = "") -> str:
        """Find a program, by the child's directory and PATH, and cover it if it is ours; return its path.

        With `shown`, its path becomes part of the evidence.
        """
        if os.path.dirname(command):
            found = os.path.join(place.cwd, command)
            found = found if shown or (os.path.isfile(found) and os.access(found, os.X_OK)) else ""
        else:
            path = self._around.env.get("PATH", os.defpath) if place.path is None else place.path
            placed = os.pathsep.join(os.path.join(place.cwd, folder) for folder in path.split(os.pathsep))
            found = shutil.which(command, path=placed) or ""
        found = plain_paths(found)[0] if found else ""
        if shown:
            self._programs.setdefault(shown, found)
        real = real_path(found)
        if found and (self._is_in_project(real) or self._is_own(real, command)):
            self._cover(found)
        elif self._is_own(found, command):
            self._note_link(found)
        return found

    def _is_own(self, found: str, word: str) -> bool:
        """Return whether a program is the project's, or another one that the entry names by its path."""
        is_named = bool(found) and (self._is_in_project(found) or bool(os.path.dirname(word)))
        return is_named and not self._is_installed(found)

    def _folders(self, words: Iterable[str], cwd: str) -> list[str]:
        """Return the folders that a program searches: up to the repository, and next to its arguments."""
        found = [real_path(cwd)]
        while self._is_in_project(found[-1]) and found[-1] not in (self._project, self._repository):
            found.append(os.path.dirname(found[-1]))
        found.append(self._project)
        while found[-1] != self._repository:
            found.append(os.path.dirname(found[-1]))
        found += self._named(words, cwd)
        # A home or a temporary directory holds everything.
        too_large = (tempfile.gettempdir(), real_path(tempfile.gettempdir()))
        folders = [one for one in dict.fromkeys(found) if not is_in(self._home, one) and one not in too_large]
        return folders[:MAX_FOLDERS]

    def _named(self, words: Iterable[str], cwd: str) -> list[str]:
        """Return the folders that words name, and those of the files that they name."""
        found: list[str] = []
        for word in words:
            parts = {word, *re.split("[=:]", word)} if len(word) < MAX_CHARS else set[str]()
            if re.match(r"[\w-]+\.\w+/", word):  # a Go package by its full name
                tails = word.split("/")[1:50]
                parts |= {"/".join(tails[at:]) for at in range(len(tails))}
            for piece in sorted({*parts, *(part.lstrip("/") for part in parts)} - {""}):
                path = os.path.join(cwd, piece)
                if "\0" not in piece and os.path.exists(path) and self._is_ours(path):
                    found.append(real_path(path if os.path.isdir(path) else os.path.dirname(path)))
        return found

    def _at_package(self, folder: str, words: Sequence[str]) -> bool:
        """Cover the scripts of a `package.json` and its workspaces that a command names; return whether."""
        file = os.path.join(folder, "package.json")
        package = read_manifest(file)
        is_found = self._at_scripts(file, words)
        scripts = package.get("scripts")
        if package and "start" in words and not (isinstance(scripts, dict) and "start" in scripts):
            self._cover(os.path.join(folder, "server.js"))
        bins = package.get("bin")
        own = {str(package.get("name")).rpartition("/")[2]: bins} if isinstance(bins, str) else bins
        if isinstance(own, dict) and any(word.partition("@")[0] in own for word in words):
            is_found = True
            self._cover(file)
            self._at_value(cast("object", own), folder)
        if not is_found and words[0] == "npm" and not {"start", *SUBCOMMANDS}.intersection(words):
            # `npm t` and the like
            is_found = self._at_scripts(file, [name for name, _ in _scripts(package)])
        return is_found

    def _at_manifest(self, folder: str, name: str, words: Sequence[str]) -> bool:
        """Cover the scripts of a manifest and of the members of its workspace; return whether."""
        file = os.path.join(folder, name)
        is_found = (
            self._at_package(folder, words) if name == "package.json" else self._at_scripts(file, words)
        )
        tables = [read_manifest(file), read_manifest(os.path.join(folder, "pnpm-workspace.yaml"))]
        for pattern in islice((text for table in tables for text in _members(table)), MAX_FOLDERS):
            for path in self._fitting(os.path.join(folder, pattern)):
                is_found |= self._at_scripts(os.path.join(path, name), words)
        return is_found

    def _at_recipes(self, name: str, path: str, folder: str) -> None:
        """Cover the files that a makefile or the like names, and the recipes in the folders that it names."""
        if name not in RECIPES or (path, folder) in self._recipes or is_special(path):
            return
        self._recipes.add((path, folder))
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_CHARS + 1)
        except (OSError, ValueError):
            return
        self._at_text(text, folder)
        pieces = list(pieces_of(text[:MAX_CHARS]))
        places = [
            one for one in pieces if os.path.isdir(os.path.join(folder, one)) and os.path.normpath(one) != "."
        ]
        for place in (os.path.join(folder, one) for one in places[:MAX_PLACES]):
            for file in READS[name]:
                for match in self._fitting(os.path.join(place, file)):
                    self._cover(match)
                    self._at_recipes(name, match, place)
            for piece in pieces:
                if os.path.isfile(os.path.join(place, piece)):
                    self._cover(os.path.join(place, piece), data=DATA)

    def _at_scripts(self, file: str, words: Sequence[str]) -> bool:
        """Cover the scripts of a manifest that a command names, and those that they run; return whether."""
        scripts, folder = dict(_scripts(read_manifest(file))), os.path.dirname(file)
        given = [*words, *(_OF_INSTALLS if _INSTALLS.intersection(words) else ())]
        given += [word.partition("=")[2] for word in words]
        todo = [
            name for word in given for name in (f"pre{word}", word, f"post{word}", word.rpartition(":")[2])
        ]
        is_found = False
        while todo and scripts:
            value = scripts.pop(todo.pop(), None)
            if value is not None:
                is_found = True
                self._cover(file)
                self._at_value(value, folder)
                for text in texts_in(value):
                    todo += text[:MAX_CHARS].split()
                    if not re.fullmatch(r"[\w.]+:[\w.]+", text):  # an entry point of Python
                        self._at_line(text, _Place(folder, installed=True))
        return is_found


def _interpreter(path: str) -> list[str]:
    """Return the words after `#!` in the first line of a file."""
    if is_special(path):
        return []
    try:
        with open(path, "rb") as file:
            line = file.readline(500)
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []


def _scripts(value: Mapping[str, Any], depth: int = 8) -> Iterator[tuple[str, object]]:
    """Yield the scripts of a manifest by name, from all of its tables."""
    for key, inner in value.items():
        if isinstance(inner, dict) and depth:
            table = cast("dict[str, Any]", inner)
            if key in ("scripts", "gui-scripts", "tasks", "entry-points"):
                yield from table.items()
            yield from _scripts(table, depth - 1)


def _members(value: object, depth: int = 8) -> Iterator[str]:
    """Yield the patterns of the members of a workspace."""
    for key, inner in cast("dict[str, object]", value).items() if isinstance(value, dict) and depth else ():
        if key in ("workspaces", "members", "packages"):
            yield from texts_in(inner)
        yield from _members(inner, depth - 1)
