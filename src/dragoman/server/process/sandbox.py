"""Looks at the disk, and says what one start of a server may read, write and reach, by its entry.

`trust.sandbox` has the rules, `landlock` applies the result between `fork` and `exec`. Landlock only grants,
and what it grants holds for everything below. So a folder with a store of secrets is granted entry by entry,
without the store. New entries cannot be made there; they land in the *private home* of the server, the folder
to which its `HOME` points: it has a link for every entry of the real one that is granted.
"""

# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH114, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208 -- pathlib is slow

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import stat
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dragoman.config.packages import package_of
from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.server.process import landlock
from dragoman.server.process.environment import is_launcher, is_program
from dragoman.storage.files import cache_folder, data_folder, private_folder, state_folder
from dragoman.trust.approvals import loads
from dragoman.trust.sandbox import (
    CACHE_VARIABLES,
    CONTAINERS,
    DEVICES,
    ETC,
    FILE_VARIABLES,
    HERE,
    LAUNCHERS,
    RUNTIMES,
    STARTUP_FILES,
    STORES,
    SYSTEM,
    Rules,
    Tree,
    add_path,
    below,
    denied_paths,
    needed_store,
    patterns_of,
    rules_of,
    store_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from dragoman.model import ServerSpec
    from dragoman.server.process.watchdog import StartOrder

logger = logging.getLogger("dragoman")

_SOCKET_VARIABLES = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST")
_PROJECT_FILES = ("package.json", "pyproject.toml", "setup.py", "deno.json", "go.mod", "Cargo.toml")
_OUTERMOST = 6
"""How many folders up the project of a script is looked for."""
_PATH = re.compile(r"(?:[\w+.-]{1,30}:/?/?)?(?=[~/])([~/][^\0]*)")
"""A path alone, or behind the scheme of an address: `file://`, `sqlite:///`."""
_IMPORT = re.compile(rb"^[ \t]{0,40}(?:from|import)[ \t]{1,8}([A-Za-z_]\w{0,80})", re.MULTILINE)
_WORD = rb"[^\s'\"$;|&<>()]"
_RUNS = re.compile(rb"(?<!%b)/%b{1,400}/(?:python[\d.]{0,9}|node|deno|bun|ruby|java)\b" % (_WORD, _WORD))
_STANDARD = frozenset({"re", "sys", "importlib", "os"})
_warned: set[str] = set()
_looking = Lock()
"""Links change what is known of the stores."""
Access: TypeAlias = Literal["r", "w"]
"""Reading, or everything."""


def state_of(stdio: Stdio, env: Mapping[str, str]) -> str:
    """Return what a person should know of a server's sandbox, as one word: its level, or why it has none.

    `container` is a command that brings its own box, `unavailable` a level that this machine cannot keep.
    """
    rules = rules_of(stdio.sandbox)
    if rules.level == "off":
        return "off" if rules == Rules(level="off") else "network"
    if is_program(stdio.command, CONTAINERS, env, stdio.env):
        return "container"
    return "unavailable" if _missing(rules) else rules.level


def confine(stdio: Stdio, order: StartOrder, name: str) -> StartOrder:
    """Return an order in the sandbox that an expanded entry wants; makes the server's private home.

    Raises:
        ConfigError: The sandbox cannot be kept on this machine, or not be read.
    """
    try:
        rules = rules_of(stdio.sandbox)
    except (TypeError, ValueError) as error:
        msg = f"the sandbox of server `{name}` cannot be read: {error}"
        raise ConfigError(msg) from error
    if rules == Rules(level="off") or is_program(stdio.command, CONTAINERS, os.environ, stdio.env):
        return order
    _check_files(stdio, order, name)
    order = order._replace(box=_filters(rules))
    if not _is_kept(rules, name) or rules.level == "off":
        return order
    if (store := needed_store([name, stdio.command, *stdio.args[:3]])) and store not in rules.read:
        _warn(
            f"{name}: its sandbox hides {store}, which it may need; {_to_allow(stdio, name, 'read', store)}"
        )
    with _looking:
        return _Grants(stdio, rules, order, name).confined()


def _check_files(stdio: Stdio, order: StartOrder, name: str) -> None:
    """Refuse files that we open for a server through a link that it could have made.

    Raises:
        ConfigError: `env_file` or `log_file` is such a file.
    """
    here = os.path.abspath(order.cwd or ".")
    for key, file in [*(("env_file", one) for one in stdio.env_file), ("log_file", stdio.log_file or "")]:
        path = os.path.normpath(os.path.join(here, file)) if file else ""
        if path and _is_bent(path, [here, str(Path.home())]):
            msg = f"`{key}` of server `{name}` leads through a link that the server could have made"
            raise ConfigError(msg, hint=f"name the file itself: {os.path.realpath(path)}")


def denial_hint(spec: ServerSpec, text: str) -> str:
    """Return what to add to an entry so that its sandbox allows what a text says was refused.

    It is empty unless a server in a sandbox got EACCES or EPERM for a path that we may use ourselves.
    """
    stdio = spec.transport
    if not isinstance(stdio, Stdio) or state_of(stdio, os.environ) not in ("credentials", "strict"):
        return ""
    rules, home, private = rules_of(stdio.sandbox), str(Path.home()), str(home_of(stdio, spec.name))
    for said, writes in denied_paths(text):
        path = said.replace(private, home, 1) if said.startswith(f"{private}/") else said
        path = os.path.normpath(home + path[1:] if path.startswith("~") else path)
        wanted = store_of(path, home)
        while not os.path.lexists(wanted):
            wanted = os.path.dirname(wanted)
        is_ours = os.access(wanted, os.W_OK if writes else os.R_OK)
        if not is_ours or f"{home}/".startswith(f"{wanted.rstrip('/')}/"):
            continue
        shown = f"~{wanted[len(home) :]}" if wanted.startswith(f"{home}/") else wanted
        if _said_of(_own_folders(), os.path.realpath(wanted)) is not None:
            continue  # These are never granted.
        # What may be read already was to be written.
        key = "write" if writes or shown in rules.read or not os.path.lexists(path) else "read"
        return f"its sandbox refuses `{said}`; {_to_allow(stdio, spec.name, key, shown)}"
    return ""


def _to_allow(stdio: Stdio, name: str, key: str, path: str) -> str:
    """Return the line to add to an entry, and the command that adds it."""
    kept: dict[str, Any] = {"level": rules_of(stdio.sandbox).level}
    kept |= stdio.sandbox if isinstance(stdio.sandbox, dict) else {}
    kept[key] = [*kept.get(key, ()), path]
    command = shlex.join(["dragoman", "set", name, f"sandbox={json.dumps(kept)}"])
    return f"to allow it, add sandbox.{key} = {json.dumps([path])}: `{command}`"


def home_of(stdio: Stdio, name: str) -> Path:
    """Return the private home of a server at its level: links of one level lead nowhere at another."""
    package = package_of(stdio)
    text = "\0".join((name, Path(stdio.command).name, package.name if package else ""))
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    shown = re.sub(r"[^\w.-]", "_", name)[:40].lstrip(".")
    return data_folder() / "homes" / f"{shown}-{mark}" / rules_of(stdio.sandbox).level


@cache
def _abi() -> int:
    return landlock.abi()


def _missing(rules: Rules) -> str:
    """Return what this machine lacks for some rules; empty if nothing."""
    if rules.level != "off" and _abi() < landlock.TRUNCATES:
        return f"Landlock of Linux 6.2 or later (this kernel has version {_abi()} of 3)"
    if not isinstance(rules.network, str) and _abi() < landlock.PORTS:
        return "Landlock of Linux 6.7 or later, for ports"
    has_all = landlock.has_filters() or (rules.network == "on" and rules.sockets)
    return "" if has_all else "a filter of system calls for this kind of machine"


def _is_kept(rules: Rules, name: str) -> bool:
    """Return whether files can be restricted; refuse what must not be silently off, warn about the rest."""
    missing = _missing(rules)
    if missing and (rules.level != "credentials" or rules.network != "on" or not rules.sockets):
        msg = f"server `{name}` cannot be started in its sandbox: this system lacks {missing}"
        raise ConfigError(msg, hint='without one: `sandbox = "off"`')
    if missing:
        how = "with less of" if _abi() else "without"
        _warn(f"servers run {how} the sandbox `credentials`: this system lacks {missing}")
        return _abi() > 0
    if _abi() < landlock.SCOPES:
        _warn("servers in a sandbox can send signals to other processes: that takes Linux 6.12")
    if os.geteuid() == 0:
        _warn(
            "as root, a server in a sandbox can read the environment of other processes (/proc/PID/environ)"
        )
    return True


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)


def _filters(rules: Rules) -> list[str]:
    network = rules.network if isinstance(rules.network, str) else ",".join(map(str, rules.network))
    return [
        *([] if network == "on" else [f"network={network}"]),
        *([] if rules.sockets else ["sockets=off"]),
    ]


class _Grants:
    """Collects what one start is granted, and the links of its private home."""

    def __init__(self, stdio: Stdio, rules: Rules, order: StartOrder, name: str) -> None:
        self._stdio = stdio
        self._rules = rules
        self._order = order
        env = self._env = dict(order.env)
        self._here = os.path.abspath(order.cwd or ".")
        self._program = os.path.join(self._here, order.argv[0])
        own_home = stdio.env.get("HOME")
        given = env.get("HOME", "") if own_home is None else ""
        self._home = os.path.realpath(given if given.startswith("/") else Path.home())
        self._other_home = own_home if own_home and os.path.realpath(own_home) != self._home else ""
        """Another home directory that the entry chooses."""
        self._private = home_of(stdio, name)
        self._tree = _stores(frozenset({self._home, os.path.realpath(Path.home()), *_own_home()}))
        self._own = [self._here]
        """Where the server could have made a link itself: nothing is granted through one."""
        self._words = dict[str, Access]()
        self._links: set[str] = set()
        self._again = True

    def confined(self) -> StartOrder:
        """Return the order with all of it."""
        is_strict, stdio, env, cwd = self._rules.level == "strict", self._stdio, self._env, self._order.cwd
        if self._is_above_home(self._here) and (is_strict or self._here != "/"):
            self._here = cwd = str(self._private)
        for folder in (self._private, self._private.with_name("tmp")):
            private_folder(folder)
        self._own += map(self._absolute, [*self._rules.write, *filter(None, [self._other_home])])
        self._own += filter(None, map(self._env.get, CACHE_VARIABLES))
        self._own += [path for path, access in self._packages() if access == "w"]
        while self._again:
            # A link to a store adds its target to the stores: then everything is looked at once more.
            self._again = False
            self._words = {os.path.realpath(one): "w" for one in (self._private, f"{self._private}/../tmp")}
            self._links.clear()
            self._strict() if is_strict else self._open("/", self._tree, "w")
            self._launcher()
            self._entry()
        self._make_home()
        if not self._other_home:
            env["HOME"] = str(self._private)
        temporary = os.path.realpath(env.get("TMPDIR") or "/tmp")  # noqa: S108 -- what programs use
        is_granted = any(f"{temporary}/".startswith(f"{word}/") for word in self._words)
        if "TMPDIR" not in stdio.env and not is_granted and (is_strict or os.path.exists(temporary)):
            env["TMPDIR"] = str(self._private.with_name("tmp"))
        for name in () if self._rules.sockets else _SOCKET_VARIABLES:
            if name not in stdio.env:
                env.pop(name, None)
        if not isinstance(self._rules.network, str):
            env.setdefault("RES_OPTIONS", "use-vc")  # Names are asked for over TCP, if it has port 53.
        words = [f"{access}{path}" for path, access in self._words.items()]
        return self._order._replace(env=env, cwd=cwd, box=[*self._order.box, *words])

    def _strict(self) -> None:
        for path, real in _system(self._home):
            if self._home.startswith(f"{real}/"):
                without_home = copy.deepcopy(self._tree)  # The stores are kept for the next start.
                add_path(without_home, self._home)
                self._give(path, "r", without_home)
            else:
                self._grant(real, "w" if real in DEVICES else "r")
                self._link(path)
        self._give(self._here, "w")
        for path in self._code():
            self._give(path, "r")
        for path, access in self._packages():
            self._give(path, access)

    def _launcher(self) -> None:
        """Grant the caches of a package launcher, and the logins of its private sources."""
        if not is_launcher(self._stdio.command, os.environ, self._stdio.env):
            return
        caches, logins = LAUNCHERS.get(Path(self._stdio.command).stem.lower(), ("", ""))
        for path in caches.split():
            self._give(f"{self._home}/{path}", "w")
        given = [self._env.get(name, "") for name in FILE_VARIABLES]
        for path in (*(f"{self._home}/{one}" for one in logins.split()), *filter(None, given)):
            self._give(path, "r", explicit=True)
        for path in filter(None, map(self._env.get, CACHE_VARIABLES)):
            self._give(path, "w", explicit=True)

    def _entry(self) -> None:
        """Grant what the entry names."""
        for path, access in self._named():
            self._give(path, access, explicit=True)
        if self._other_home:
            self._give(self._other_home, "w", explicit=True)
        rules: Sequence[tuple[Access, Sequence[str]]] = (("r", self._rules.read), ("w", self._rules.write))
        for access, paths in rules:
            for path in map(self._absolute, paths):
                # A store can be named, but no link leads to one, to home or to what is above it.
                is_itself = os.path.realpath(path) == path
                self._give(path, access, _own_folders() if is_itself else None, explicit=is_itself)

    # What the entry means

    def _named(self) -> Iterator[tuple[str, Access]]:
        """Yield every existing path that the entry's arguments and variables name."""
        words: list[tuple[str, Access]] = []
        for arg in self._stdio.args:
            words.extend((part, "w") for part in (arg, arg.partition("=")[2]) if part)
        for name, value in self._stdio.env.items():
            if value and name != "HOME":
                access: Access = "r" if loads(name) else "w"
                words.extend((part, access) for part in (value, *value.split(os.pathsep)))
        own = [self._here, *(self._absolute(word) for word, access in words if access == "w")]
        for word, access in words:
            path = self._absolute(word)
            if os.path.lexists(path) and not self._is_above_home(path) and not _is_bent(path, own):
                yield path, access

    def _absolute(self, word: str) -> str:
        found = _PATH.fullmatch(word)
        text = found[1] if found else word
        if text == "~" or text.startswith("~/"):
            text = self._home + text[1:]
        return os.path.normpath(os.path.join(self._here, text))

    def _code(self) -> Iterator[str]:
        """Yield the folders of the program, of what interprets it, and of the scripts in its arguments."""
        todo, seen = [self._program, *self._scripts()], set[str]()
        while todo:
            path = todo.pop()
            if path in seen or not os.path.isfile(path):
                continue
            seen.add(path)
            for one in {path, os.path.realpath(path)}:
                folder = whole = os.path.dirname(one)
                prefix = os.path.dirname(folder)
                if os.path.basename(folder) in ("bin", "sbin", "shims") and _is_prefix(prefix, self._home):
                    whole = prefix
                # In a folder that everyone may write to, such as /tmp, nothing else belongs to it.
                is_shared = bool(os.stat(whole).st_mode & stat.S_ISVTX)
                yield one if is_shared or self._is_above_home(whole) else whole
                if base := _setting(f"{prefix}/pyvenv.cfg", b"home"):
                    todo.append(f"{base}/python3")
            todo += self._interpreter(path)

    def _interpreter(self, path: str) -> list[str]:
        text = _start_of(path)
        if not text.startswith(b"#!"):
            return []
        found = [os.fsdecode(word) for word in text[2:].partition(b"\n")[0].split()]
        found, rest = found[:1], found[1:]
        if found and found[0].endswith("/env"):
            found += [shutil.which(word, path=self._env.get("PATH")) or word for word in rest[:1]]
        # A shell often only starts an interpreter by its path; so do scripts of pip whose own is too long.
        in_shell = _RUNS.findall(text) if found and found[0].endswith("sh") else []
        told = [*found, *map(os.fsdecode, in_shell)]
        # The server may have written that line itself: at home, only interpreters are believed.
        return [one for one in told if _is_prefix(os.path.dirname(os.path.dirname(one)), self._home)]

    def _scripts(self) -> list[str]:
        """Return the file that an interpreter or a launcher is given to run; other files are data."""
        words = [arg for arg in self._stdio.args if not arg.startswith("-")]
        if Path(self._program).stem.lower() in ("uv", "npm", "pnpm", "yarn"):
            words = [word for word in words if word not in ("run", "exec", "tool")]
        path = self._absolute(words[0]) if words else ""
        is_bent = _is_bent(path, [self._here]) if path else True
        return [path] if os.path.isfile(path) and not is_bent else []

    def _packages(self) -> Iterator[tuple[str, Access]]:
        """Yield the folders of the server's own package, and those of what it needs."""
        program = os.path.realpath(self._program)
        for path in (program, *map(os.path.realpath, self._scripts())):
            outer, mark, _ = path.partition("/node_modules/")
            if mark:
                folder, _, inner = path.rpartition(mark)
                yield f"{outer}/node_modules", "r"
                yield f"{folder}{mark}{'/'.join(inner.split('/')[: 1 + inner.startswith('@')])}", "w"
            elif path != program and (project := self._project(path)):
                yield project, "w"
        for folder in self._modules():
            yield folder, "w"

    def _project(self, path: str) -> str:
        """Return the folder of the project that a script belongs to; empty if there is none."""
        for _ in range(_OUTERMOST):
            path = os.path.dirname(path)
            if self._is_above_home(path):
                break
            if any(os.path.exists(f"{path}/{name}") for name in _PROJECT_FILES):
                return path
        return ""

    def _modules(self) -> Iterator[str]:
        """Yield the folders of the Python modules that the command runs."""
        args, text = self._stdio.args, _start_of(self._program)
        names = {args[args.index("-m") + 1].partition(".")[0]} if "-m" in args[:-1] else set[str]()
        if text.startswith(b"#!") and b"python" in text.partition(b"\n")[0]:
            names |= {os.fsdecode(name) for name in _IMPORT.findall(text)} - _STANDARD
        for program in {self._program, os.path.realpath(self._program)} if names else ():
            for name in names:
                found = Path(program).parent.parent.glob(f"lib/python3*/site-packages/{name}")
                yield from (str(folder) for folder in found if folder.is_dir())

    # Grants

    def _give(self, path: str, access: Access, tree: Tree | None = None, *, explicit: bool = False) -> None:
        """Grant a path, if it exists, and what is below it, without the stores in it or what `tree` says.

        What the entry names (`explicit`) may be in a store itself.
        """
        real = os.path.realpath(path)
        if not os.path.exists(real) or (tree is None and self._is_above_home(real)):
            return
        if path != real and _is_bent(path, self._own):
            _warn(f"`{path}` is not granted: it leads through a link that the server could have made")
            return
        said = _said_of(tree or self._tree, real)
        if said == "r" and not explicit:
            access = "r"
        if isinstance(said, dict) and os.path.isdir(real):
            self._open(real, said, access)
        elif said != "" or (explicit and path == real and _said_of(_own_folders(), real) != ""):
            self._grant(real, access)
        if path != real:
            self._link(path)

    def _open(self, folder: str, tree: Tree, access: Access) -> None:
        """Grant the entries of a folder, without what the tree says otherwise about."""
        patterns = patterns_of(tree)
        access = "r" if tree.get(HERE) == "r" else access
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return  # Nothing is granted that we cannot see.
        for entry in entries:
            said: Tree | str | None = below(tree, entry.name, patterns)
            if entry.is_symlink():
                target = "" if said is None else os.path.realpath(entry.path)
                if target and not self._is_above_home(target) and add_path(self._tree, target, said or ""):
                    self._again = True
                if said is None or isinstance(said, dict):
                    self._link(entry.path)
            elif isinstance(said, dict) and entry.is_dir():
                self._open(entry.path, said, access)
            elif said != "":
                self._grant(entry.path, "r" if said == "r" else access)

    def _grant(self, path: str, access: Access) -> None:
        if self._words.get(path) != "w":
            self._words[path] = access
        self._link(path)

    def _is_above_home(self, path: str) -> bool:
        """Return whether a path is the home directory, or a folder that it is in."""
        real = os.path.realpath(path)
        return real == "/" or f"{self._home}/".startswith(f"{real}/")

    # The private home

    def _link(self, path: str) -> None:
        if path.startswith(f"{self._home.rstrip('/')}/"):
            self._links.add(path[len(self._home.rstrip("/")) + 1 :])

    def _make_home(self) -> None:
        """Make a link for each path at home that is granted.

        The server can write there, so no link of its own is followed: it would lead us anywhere.
        """
        by_folder: dict[str, list[str]] = {}
        for path in self._links:
            folder, _, last = path.rpartition("/")
            by_folder.setdefault(folder, []).append(last)
        for folder, names in sorted(by_folder.items()):
            with suppress(OSError), _opened(str(self._private), folder) as inside:
                for name in set(names) - set(os.listdir(inside)):
                    os.symlink(os.path.join(self._home, folder, name), name, dir_fd=inside)


@contextmanager
def _opened(outer: str, inner: str) -> Generator[int]:
    """Open a folder below another one without following links; its missing parts are made."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:
        folder = os.open(outer, flags)
        stack.callback(os.close, folder)
        for part in filter(None, inner.split("/")):
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=folder)
            folder = os.open(part, flags, dir_fd=folder)
            stack.callback(os.close, folder)
        yield folder


def _said_of(tree: Tree, path: str) -> Tree | str | None:
    """Return what a tree says about a path."""
    said: Tree | str | None = tree
    for part in filter(None, path.split("/")):
        if isinstance(said, dict):
            found = below(said, part, patterns_of(said))
            said = "r" if found is None and said.get(HERE) == "r" else found
    return said


@cache
def _own_home() -> tuple[str, ...]:
    """Return the home directory that the system has for us, whatever our environment says."""
    try:
        import pwd

        found = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ()
    return (os.path.realpath(found),) if found and found != "/" else ()


@cache
def _system(home: str) -> list[tuple[str, str]]:
    """Return what of the system, and of the interpreters at home, `strict` has; each with its real path."""
    paths = [*SYSTEM, *DEVICES, *(f"{home}/{path}" for path in RUNTIMES)]
    for name in ETC:
        paths += map(str, Path("/etc").glob(name)) if "*" in name else [f"/etc/{name}"]
    return [(path, os.path.realpath(path)) for path in paths if os.path.exists(path)]


@cache
def _stores(homes: frozenset[str]) -> Tree:
    """Return where secrets are on this machine; targets of links to them are added to it."""
    tree = _own_folders()
    moved = {
        usual: base
        for usual, base in (
            (".config", os.environ.get("XDG_CONFIG_HOME", "")),
            (".local/share", os.environ.get("XDG_DATA_HOME", "")),
            (".cache", os.environ.get("XDG_CACHE_HOME", "")),
        )
        if base.startswith("/")
    }
    runtime = f"/run/user/{os.getuid()}"
    for name in ("containers", "keyring") if os.path.isdir(runtime) else ():
        add_path(tree, f"{runtime}/{name}")
    for paths, said in ((STORES, ""), (STARTUP_FILES, "r")):
        for path in paths:
            for home in homes:
                add_path(tree, f"{home}/{path}", said)
                for target in _targets(f"{home}/{path}") if "*" not in path else ():
                    add_path(tree, target, said)
            for usual, base in moved.items():
                if path.startswith(f"{usual}/"):
                    add_path(tree, f"{os.path.realpath(base)}{path[len(usual) :]}", said)
    return tree


def _targets(path: str) -> Iterator[str]:
    """Yield what a store leads to, if it is a link, or links in it do: people keep such files elsewhere."""
    if os.path.islink(path):
        yield os.path.realpath(path)
    with suppress(OSError), os.scandir(path) as entries:
        yield from (os.path.realpath(one.path) for one in entries if one.is_symlink())


def _own_folders() -> Tree:
    """Return dragoman's own folders, as a tree in which nothing of them may be used."""
    tree: Tree = {}
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    for folder in (data_folder(), state_folder(), cache_folder(), Path(config) / "dragoman"):
        add_path(tree, os.path.realpath(folder))
    return tree


def _is_bent(path: str, own: Sequence[str]) -> bool:
    """Return whether a path leads through a link that the server could have made itself."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        part = "/" + "/".join(parts[:count])
        if os.path.islink(part) and any(f"{part}/".startswith(f"{one}/") for one in own if one != part):
            return True
    return False


def _is_prefix(folder: str, home: str) -> bool:
    """Return whether a folder belongs to an interpreter alone, as `~/.local` does not."""
    if not folder.startswith(f"{home}/"):
        return True
    marks = ("pyvenv.cfg", "lib/node_modules", "conda-meta", "include", "lib/ruby", "lib/jvm")
    return folder != f"{home}/.local" and any(os.path.exists(f"{folder}/{mark}") for mark in marks)


def _start_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _setting(path: str, name: bytes) -> str:
    """Return a value of a `pyvenv.cfg`."""
    for line in _start_of(path).splitlines():
        key, _, value = line.partition(b"=")
        if key.strip() == name:
            return os.fsdecode(value.strip())
    return ""
