"""Create Python environments from the lock files: the project's `.venv`, and one for each test server.

Runs before anything is installed, so it uses only the standard library. A stamp file in each environment
records its inputs; if the stamp matches, nothing is installed and the network is not used.

Usage: python scripts/environment.py run|dev   set `.venv` up
       python scripts/environment.py lock NAME  print requirements/NAME.txt with its hashes, as pip takes it
       python scripts/environment.py share      move the hashes of all locks into requirements/hashes.txt
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
HASHES = REQUIREMENTS / "hashes.txt"
OLDEST_PYTHON = (3, 11)
AT_ONCE = 2
"""How many installations run in parallel."""
_PIN = re.compile(r"[a-z0-9._-]+==[^ ;\\]+")


class InstallError(Exception):
    """An installation step failed; the message contains its output."""


def python_in(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    folder = "Scripts" if os.name == "nt" else "bin"
    return environment / folder / "python"


def fingerprint(*files: Path) -> str:
    """Return a hash of everything an environment depends on: the files, the interpreter and its location."""
    digest = hashlib.sha256(f"{sys.version}\n{ROOT}\n".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_current(environment: Path, name: str, stamp: str) -> bool:
    """Return whether the environment has this stamp."""
    file = environment / f".{name}-stamp"
    return file.is_file() and file.read_text("utf-8") == stamp and python_in(environment).exists()


def write_stamp(environment: Path, name: str, stamp: str) -> None:
    """Mark the environment as complete."""
    (environment / f".{name}-stamp").write_text(stamp, "utf-8")


def run_quietly(
    command: list[str],
    *,
    cwd: Path = ROOT,
    env: dict[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run a command without showing its output, unless it fails.

    Args:
        command: The command.
        cwd: Where it runs.
        env: Its environment.
        on_line: Called with each line of its output.

    Raises:
        InstallError: The command exited with a code other than 0.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if on_line is not None:
                on_line(line)
    if process.returncode:
        msg = f"`{' '.join(command)}` exited with {process.returncode}:\n{''.join(lines).strip()}"
        raise InstallError(msg)


def _last_part(text: str) -> str:
    """Return the file's name of a path, and any other text as it is."""
    return text.split(" ", maxsplit=1)[0].rpartition("/")[2] if text.startswith(("/", ".")) else text


class Progress:
    """Shows how far pip is with a lock file: one changing line in a terminal, a few lines elsewhere."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self._total = total
        self._out = out or sys.stdout
        self._is_live = self._out.isatty()
        self._done = 0

    def line(self, text: str) -> None:
        """Take one line of pip's output."""
        if text.startswith("Ignoring "):  # a package for another system
            self._total -= 1
        elif text.startswith(("Collecting ", "Processing ")):
            self._done += 1
            name = re.split(r"[=<>\[; ]|-\d", _last_part(text.partition(" ")[2]), maxsplit=1)[0]
            # Elsewhere each quarter is enough.
            if self._is_live or self._done * 4 // self._total > (self._done - 1) * 4 // self._total:
                self._show(f"  package {self._done} of {self._total}: {name.strip()}")
        elif text.startswith("Installing collected packages"):
            self._show(f"  installing {self._done} packages …")

    def end(self) -> None:
        """Remove the changing line."""
        if self._is_live and self._done:
            print("\r\x1b[K", end="", file=self._out, flush=True)

    def _show(self, text: str) -> None:
        if self._is_live:
            print(f"\r\x1b[K{text[:78]}", end="", file=self._out, flush=True)
        else:
            print(text, file=self._out, flush=True)


def create(environment: Path) -> None:
    """Create an empty environment, replacing an existing one."""
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "venv", str(environment)]
    # Debian can have pip and venv without ensurepip; its pip can install into the environment from outside.
    if importlib.util.find_spec("ensurepip") is None:
        command.insert(3, "--without-pip")
    run_quietly(command)


def pip_install(environment: Path, *arguments: str, on_line: Callable[[str], None] | None = None) -> None:
    """Run `pip install` for an environment, with its own pip or, if it has none, with ours.

    Args:
        environment: The environment.
        arguments: What to install.
        on_line: Called with each line of pip's output.
    """
    python = python_in(environment)
    inside = (
        subprocess.run([str(python), "-c", "import pip"], capture_output=True, check=False).returncode == 0
    )
    pip = [str(python), "-m", "pip"] if inside else [sys.executable, "-m", "pip", "--python", str(python)]
    quiet = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_USER": "0",
        "PIP_PROGRESS_BAR": "off",
    }
    noise = [] if on_line else ["--quiet"]
    run_quietly([*pip, "install", *noise, *arguments], env=os.environ | quiet, on_line=on_line)


def share_hashes() -> None:
    """Move the hashes of all locks into one file: most packages are in several locks."""
    locks = sorted(path for path in REQUIREMENTS.rglob("*.txt") if path != HASHES)
    known = _known_hashes()
    used: dict[str, set[str]] = {}
    for lock in locks:
        lines: list[str] = []
        package = ""
        for line in lock.read_text("utf-8").splitlines():
            if line.startswith("    --hash="):
                used[package].add(line.strip().removeprefix("--hash=").removesuffix(" \\"))
            elif pin := _PIN.match(line):
                package = pin[0]
                used.setdefault(package, set(known.get(package, ())))
                lines.append(line.removesuffix(" \\"))
        lock.write_text("\n".join(lines) + "\n", "utf-8")
    HASHES.write_text("".join(f"{name} {' '.join(sorted(used[name]))}\n" for name in sorted(used)), "utf-8")


def _known_hashes() -> dict[str, list[str]]:
    if not HASHES.exists():
        return {}
    rows = [line.split() for line in HASHES.read_text("utf-8").splitlines()]
    return {name: hashes for name, *hashes in rows}


def complete(lock: Path) -> str:
    """Return a lock file as pip takes it, each package with its hashes.

    Raises:
        InstallError: A package has no hashes.
    """
    known = _known_hashes()
    lines: list[str] = []
    for line in lock.read_text("utf-8").splitlines():
        pin = _PIN.match(line)
        if pin is None or pin[0] not in known:
            msg = f"{lock.name}: `{line}` has no hashes in {HASHES.name}: run make lock"
            raise InstallError(msg)
        lines.append(" \\\n    ".join([line, *(f"--hash={one}" for one in known[pin[0]])]))
    return "\n".join(lines) + "\n"


def install_lock(environment: Path, lock: Path, *, shows_progress: bool = False) -> None:
    """Install exactly what a lock file lists, checking every hash."""
    text = complete(lock)
    total = len(lock.read_text("utf-8").splitlines())
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / lock.name
        whole.write_text(text, "utf-8")
        what = ("--require-hashes", "--no-deps", "-r", str(whole))
        if not shows_progress:
            pip_install(environment, *what)
            return
        progress = Progress(total)
        try:
            pip_install(environment, *what, on_line=progress.line)
        finally:
            progress.end()


def install_locked(environment: Path, lock: Path) -> bool:
    """Create an environment with what a lock file lists; return whether there was anything to do."""
    stamp = fingerprint(lock)
    if is_current(environment, "lock", stamp):
        return False
    print(f"  {environment.name}: installing …", flush=True)
    create(environment)
    install_lock(environment, lock)
    write_stamp(environment, "lock", stamp)
    return True


def install_each(steps: Mapping[str, Callable[[], bool]], names: Sequence[str]) -> int:
    """Run the named installations, or all, in parallel; return the exit code.

    Args:
        steps: Every installation by its name; each returns whether there was anything to do.
        names: The installations to run; all if empty.
    """
    unknown = [name for name in names if name not in steps]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(steps)}", file=sys.stderr)
        return 2

    def attempt(name: str) -> str | None:
        try:
            if steps[name]():
                print(f"  {name} is ready", flush=True)
        except InstallError as error:
            return f"{name}: {error}"
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = [text for text in pool.map(attempt, names or steps) if text]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def set_up(kind: str) -> None:
    """Install the locked run requirements, or the development requirements, into `.venv`."""
    environment = ROOT / ".venv"
    project = ROOT / "pyproject.toml"
    stamps = {name: fingerprint(ROOT / "requirements" / f"{name}.txt", project) for name in ("run", "dev")}
    if is_current(environment, kind, stamps[kind]):
        return
    purpose = {"run": "dragoman", "dev": "the development tools"}[kind]
    print(f"Setting up {purpose} in .venv (once, about a minute) …", flush=True)
    began = time.monotonic()
    place = fingerprint()
    if not is_current(environment, "place", place):
        create(environment)
        write_stamp(environment, "place", place)
    install_lock(environment, ROOT / "requirements" / f"{kind}.txt", shows_progress=True)
    pip_install(environment, "--no-build-isolation", "--no-deps", "--no-index", "--editable", str(ROOT))
    # pip compiles packages but not an editable project; compile it here, so that the first start is fast.
    run_quietly([str(python_in(environment)), "-m", "compileall", "-q", str(ROOT / "src")])
    for name in ("run", "dev") if kind == "dev" else ("run",):
        write_stamp(environment, name, stamps[name])
    print(f"Ready in {time.monotonic() - began:.0f} s.", flush=True)


def main(arguments: list[str]) -> int:
    """Set up the environment named by the arguments."""
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        print(
            f"dragoman needs Python {needed} or newer; this is {sys.version.split()[0]} ({sys.executable})."
        )
        print("Use another one: make run PYTHON=/path/to/python3")
        return 1
    try:
        match arguments:
            case ["run" | "dev" as kind]:
                set_up(kind)
            case ["lock", name]:
                print(complete(REQUIREMENTS / f"{name}.txt"), end="")
            case ["share"]:
                share_hashes()
            case _:
                print(__doc__)
                return 2
    except InstallError as error:
        print(f"Set-up failed. {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
