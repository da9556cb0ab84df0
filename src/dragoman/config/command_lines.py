"""Reads command lines as text: which class a program belongs to, and which words of a command are code.

The classes decide what an approval covers (`evidence.py`). A program of no class is unknown: it may read
anything. So a name that is missing here makes an approval cover more, never less.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from itertools import dropwhile
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dragoman.config.packages import CONTAINERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHELLS = frozenset("sh bash zsh dash ash ksh fish pwsh powershell cmd source".split())
WRAPPERS = frozenset(
    "env nice nohup timeout stdbuf setsid sudo doas su xargs flock script time ionice chrt taskset xvfb-run "
    "systemd-run tini dumb-init gosu strace unbuffer watch parallel busybox exec command builtin".split()
)
"""Programs that only run the command in their arguments."""
SCRIPTS = frozenset(
    "python pypy node nodejs deno bun ruby perl php lua luajit java tsx ts-node osascript elixir uvicorn "
    "hypercorn mcp".split()
)
"""Programs that run the script, module or code in their arguments."""
LAUNCHERS = frozenset(
    "npx npm pnpm pnpx yarn bun bunx uv uvx pipx poetry pdm hatch rye pipenv bundle python pypy".split()
)
"""Programs that run another one by its name: from a registry, an environment or a manifest."""
PLAIN = frozenset(
    ": [ test true false echo printf cat head tail tee sleep cd pushd popd export set unset alias umask "
    "ulimit trap wait read exit return local declare readonly shift for case function in mkdir rm cp mv ln "
    "ls pwd touch chmod date id whoami hostname uname dirname basename realpath readlink which type kill jq "
    "grep sed cut tr sort uniq wc base64 openssl curl wget ssh git gh glab pass gopass op bw rbw security "
    "secret-tool keyring aws gcloud az vault docker podman nerdctl kubectl".split()
)
"""Programs that run nothing of a project by themselves."""
KEYWORDS = frozenset("eval if then elif else while until do ! { } fi done esac".split())
"""Words of a shell in front of a command."""
_WORDS_TOO = frozenset("cmd make just task mcp mix go fish java source compose".split())
"""Programs whose name is an ordinary word: an argument of another program may be the same word."""

_MODULES = frozenset("python pypy uv".split())
NODE = frozenset("npx npm pnpm pnpx yarn bun bunx".split())
PYTHON = frozenset("uv uvx pipx poetry pdm hatch rye pipenv".split())
_NPM = (".npmrc", ".yarnrc*", ".pnpmfile.cjs", "bunfig.toml")
_PYTHON = ("pyproject.toml", "uv.toml", "Pipfile", ".python-version", "poetry.toml", "hatch.toml")
_BUILD = (*_PYTHON, "setup.py", "setup.cfg", "hatch_build.py")
_COMPOSE = ("*compose*.y*ml", ".env", "*Dockerfile*", "*Containerfile*", "docker-bake*")
READS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("npx", "pnpx", "bunx"), _NPM),
    **dict.fromkeys(("npm", "pnpm"), (*_NPM, "package.json", "pnpm-workspace.yaml")),
    **dict.fromkeys(PYTHON, _BUILD),
    **dict.fromkeys(("uvx", "pipx"), _PYTHON),
    **dict.fromkeys(("compose", "docker-compose", "podman-compose"), _COMPOSE),
    **dict.fromkeys(("tsx", "ts-node"), ("tsconfig*.json",)),
    "yarn": (*_NPM, "package.json", ".yarn/releases", ".yarn/plugins", ".pnp.*"),
    "bun": (*_NPM, "package.json", "tsconfig.json", ".env*"),
    "pipenv": (*_BUILD, ".env"),
    "deno": ("deno.json*",),
    "make": ("GNUmakefile", "[Mm]akefile"),
    "just": (".[Jj]ustfile", "[Jj]ustfile", "*.just", ".env"),
    "task": ("[Tt]askfile*", ".taskrc*"),
    "go": ("go.mod", "go.work", "*.go"),
    "bundle": ("Gemfile", ".bundle/config", "*.gemspec"),
}
"""Files and folders that a program reads although the command does not name them."""
MANIFESTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(PYTHON, ("pyproject.toml", "hatch.toml", "Pipfile")),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
}
"""Files with scripts that a program runs by their names."""
BUILDERS: Mapping[str, str] = {
    **dict.fromkeys(("gradle", "gradlew", "mvn", "mvnw", "sbt", "mill"), ".java .kt .groovy .scala"),
    **dict.fromkeys(("lein", "clj", "clojure"), ".clj .cljc .java"),
    **dict.fromkeys(("stack", "cabal"), ".hs"),
    **dict.fromkeys(("dart", "flutter"), ".dart"),
    "cargo": ".rs",
    "dotnet": ".cs .fs .vb",
    "dune": ".ml .mli",
    "go": ".go",
    "mix": ".ex .exs",
    "rake": ".rb",
    "swift": ".swift",
    "zig": ".zig",
}
"""Programs that compile and run the folder that they are in, and the suffixes of what they compile."""
RECIPES = SHELLS | frozenset("make just task compose docker-compose podman-compose".split())
"""Programs whose files name other files that they run."""
KNOWN = SHELLS | WRAPPERS | SCRIPTS | LAUNCHERS | BUILDERS.keys() | READS.keys() - {"compose"}
CLASSES = KNOWN | PLAIN

SUBCOMMANDS = frozenset("run exec x dlx tool start task compose module shell serve dev -- /c /C".split())
_VERBS = SUBCOMMANDS | frozenset("stdio http sse mcp server streamable-http".split())
"""Words that a server takes as its mode."""
FLAGS = frozenset(
    "-y --yes -q --quiet -u -B -E -s -S -O -OO --offline --isolated --no-install --no-cache --frozen".split()
)
"""Options that take no value; the word after any other option may be its value."""
CODE = frozenset("-e -p -r --eval --print /c /C /k -Command --command --split-string".split())
_COMMAND = re.compile(r"-[a-zA-Z]{0,9}[cS]|--[\w-]{0,20}(?:exec|cmd|command|stdio|run|call|shell|script)")
"""Options whose value may be a command line."""
_BARE = re.compile(r"--[\w-]{0,20}(?:exec|cmd|command|stdio|call)")
"""Options whose value is one even if it is one word."""
SUFFIXES = tuple(".js .cjs .mjs .json .node .ts .mts .cts .tsx .py .pyc .rb .pm .lua .php .sh .class".split())
"""Suffixes that programs add to a name."""


def program_name(word: str) -> str:
    """Return a program's name without its folder and its version."""
    name = re.split(r"[\\/]", word)[-1]
    if name[-4:].lower() in (".exe", ".cmd", ".bat"):
        name = name[:-4]
    return "source" if word == "." else name.rstrip("0123456789.")


def is_server(name: str) -> bool:
    """Return whether the name of a program or package says that it is a server, and not a runner."""
    return bool(re.search(r"(?i)(?:\b|_)mcp(?:\b|_)|(?<!dev-)(?<!dev)(?:\b|_)server(?:$|[@-])", name))


def on_host(words: Sequence[str]) -> list[str]:
    """Return a container's command with the paths of mounted files as they are outside of it."""
    text = "\n".join(words) if words and program_name(words[0]) in CONTAINERS else ""
    mounts = re.findall(r"(?:^|=)([^:=,\n]+):(/[^:,\n]+)", text, re.MULTILINE)
    for line in text.split("\n"):
        parts = [part.split("=", 1) for part in line.rpartition("--mount=")[2].split(",") if "=" in part]
        keys = dict(parts)
        outside = keys.get("src") or keys.get("source")
        inside = keys.get("dst") or keys.get("target") or keys.get("destination")
        mounts += [(outside, inside)] if outside and inside else []
    for outside, inside in mounts[:20]:
        words = [
            outside + word[len(inside) :] if word.startswith(inside.rstrip("/") + "/") else word
            for word in words
        ]
    return list(words)


def runner_zone(words: Sequence[str]) -> int:
    """Return how many words of a command are code: the program, its options and the script."""
    name = program_name(words[0]) if words else ""
    if name not in KNOWN or name in WRAPPERS:
        return min(1, len(words))
    may_be_value = False
    for index, word in enumerate(words[1:], 1):
        if takes_line(words, index) or (words[index - 1] in ("-m", "--module") and name in _MODULES):
            return index + 1
        if word.startswith("-") and word != "--":
            may_be_value = word not in FLAGS and "=" not in word
        elif word in SUBCOMMANDS or program_name(word) in KNOWN or is_assignment(word) or may_be_value:
            may_be_value = False
        else:
            return index + 1
    return len(words)


def takes_line(words: Sequence[str], index: int) -> bool:
    """Return whether a word is a program text: the value of an option such as `-c`."""
    before, name = words[index - 1], program_name(words[0])
    if words[index].startswith("-"):
        return False
    if name in SHELLS:
        options = [word for word in words[1:index] if word.startswith(("-", "/"))]
        is_first = len(options) == index - 1
        return is_first and any(word in CODE or _COMMAND.fullmatch(word) for word in options)
    return before == "-c" or (before in CODE and name in SCRIPTS)


def is_assignment(word: str) -> bool:
    """Return whether a word sets a variable for the command behind it."""
    return bool(re.match(r"\w+=", word))


def inner_commands(words: Sequence[str], zone: int) -> list[int]:
    """Return where other commands begin among the words of a command."""
    name = program_name(words[0])
    known = [at for at, word in enumerate(words) if at and program_name(word) in KNOWN]
    if name in WRAPPERS:
        return known[:1]
    first = next((at for at in range(max(zone, 1), len(words)) if not words[at].startswith("-")), 0)
    return [
        at
        for at in known
        if at < zone or program_name(words[at]) not in (WRAPPERS if at == first else _WORDS_TOO | WRAPPERS)
    ]


def served_command(words: Sequence[str], zone: int) -> int:
    """Return where the command that a server or another program runs begins; 0 if it names none.

    It is the word behind `--`, or the first word that is neither a mode of the server nor an option's value.
    """
    behind = words.index("--", zone) + 1 if "--" in words[zone:-1] else 0
    if behind and re.match(r"[\w./~]", words[behind]):
        return behind
    for at in range(zone, len(words)):
        is_value = re.match(r"--?[A-Za-z][^=]*$", words[at - 1]) and at > zone
        if is_word(words[at]) and words[at] not in _VERBS and not is_value:
            return at
    return 0


def runs_tests(words: Sequence[str]) -> bool:
    """Return whether a command runs tests: it looks for them in every source file."""
    is_test = re.fullmatch(r"(?:py|unit)?tests?", program_name(words[0]))
    return bool(is_test) or words[1:2] == ["test"] or "--test" in words


def is_word(text: str) -> bool:
    """Return whether a text is a plain word, such as the name of a program or a task."""
    return bool(_NAME.fullmatch(text)) and "." not in text


def launched_by(zone: Sequence[str]) -> str:
    """Return the program that a launcher finds by name; empty if it runs a script."""
    name, word = program_name(zone[0]), zone[-1]
    if name not in LAUNCHERS or len(zone) == 1:
        return ""
    if name in _MODULES and (zone[-2] in ("-m", "--module") or word.startswith("-m")):
        return word.removeprefix("-m")
    package = zone[zone.index("--from") + 1] if "--from" in zone[:-1] else word
    is_run = name.endswith("x") or name in ("yarn", "bun") or SUBCOMMANDS.intersection(zone[1:])
    is_path = re.match(r"[./~]|.*@\.", package) or os.path.splitext(package)[1] in SUFFIXES  # noqa: PTH122 -- text
    is_name = not word.startswith("-") and word not in SUBCOMMANDS and program_name(word) not in KNOWN
    return word if is_run and is_name and not is_path and name not in SCRIPTS - NODE else ""


def command_lines(words: Sequence[str], index: int) -> list[tuple[str, bool]]:
    """Return the command lines in an argument, and whether each is surely one."""
    word, name = words[index], program_name(words[0])
    before, has_blanks = words[index - 1], bool(re.search(r"\s", word))
    pattern = _COMMAND if has_blanks or name in WRAPPERS else _BARE
    is_bare = has_blanks or name in WRAPPERS or not re.search(r"[./\\]", word)
    sure = name not in SCRIPTS if takes_line(words, index) else is_bare and bool(pattern.fullmatch(before))
    lines = [(inner, True) for inner in _substitutions(word)]
    if sure or has_blanks:
        glued = re.match(r"-{1,2}[\w-]+=|-\w*S|-\w", word)
        text = word[glued.end() :] if glued else word
        lines.append((text, sure or bool(glued) or name in WRAPPERS))
    return lines


CODE_OPTION = re.compile(
    r"--?(?:[\w-]+-)?(?:config|plugins?|hooks?|scripts?|require|load|preload|module|extension)(?:-\w+)?|-f|--file"
)
"""Options whose value may name code."""
_COMPUTED = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|`[^`]*`|\$\w+|~\+(?=/)")


def with_stars(text: str) -> list[str]:
    """Return patterns of the paths in a text that a shell computes: `bin/$NAME` may be any file in `bin`."""
    starred = _COMPUTED.sub("*", text)
    # The computed part may be the working directory.
    return [starred, re.sub(r"(?<![^\s;&|()<>{}'\",=:])\*/", "", starred)] if starred != text else []


def _substitutions(text: str) -> list[str]:
    found = re.findall(r"\$\(([^()]+)\)|`([^`]+)`", text)
    return [one or other for one, other in found]


def commands_of(line: str) -> Iterator[list[str]]:
    """Yield the words of each command in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>`\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # open quotes
        tokens = re.findall(r"[;|&()<>`\n]+|[^\s;|&()<>`]+", line)
    words: list[str] = []
    is_file = False
    for one in [*tokens, ";"]:
        if one.strip(";|&()<>`\n"):
            words += [] if is_file else [one]
            is_file = False
        elif not (is_file := bool(re.fullmatch(r"&?[<>]+&?", one))):
            if words := list(dropwhile(lambda word: word in KEYWORDS or is_assignment(word), words)):
                yield words
            words = []


def computes(words: Sequence[str]) -> bool:
    """Return whether a shell computes part of what it runs."""
    is_shell = any(program_name(word) in SHELLS for word in words)
    return is_shell and any(sign in word for word in words for sign in ("$", "`"))


_PIECES = re.compile(r"[\s;&|()<>{}'\"`,=]+")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


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
