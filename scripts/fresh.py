"""Run `make run`, every example, `make docs` and `make test` as on a new machine.

Each step runs in its own mount namespace: HOME is empty except for the settings that tell pip and npm where
packages are, the temporary folders and the user's caches are empty, and only the variables below are passed
on. The code is a fresh clone of HEAD, one for `make test` and one for the others. Needs Linux, and root or
user namespaces. Everything is removed at the end; logs of failed steps stay in `.cache/fresh/`.

Usage: python scripts/fresh.py [STEP …]   (all of them without a name)
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "fresh"
HOME = Path.home()
EXAMPLES = ("excelmanus", "legal", "otter", "kode", "rrclaw")
STEPS = {
    "run": ["make", "run"],
    **{name: ["make", "example", f"NAME={name}"] for name in EXAMPLES},
    "docs": ["make", "docs"],
    "test": ["make", "test"],
}
PLACE = "/mnt"
"""Where the fresh folders are mounted: a folder that exists on every Linux and is not used otherwise."""
TEMPORARY = {"tmp": "/tmp", "var-tmp": "/var/tmp"}  # noqa: S108 -- these are covered, not written to
LAST_LINES = 60
TOOLS = ("make", "git", "node", "npm")
PASSED_ON = re.compile(
    r"(?:https?|all|no)_proxy|ssl_cert_(?:file|dir)|requests_ca_bundle|curl_ca_bundle|node_extra_ca_certs"
    r"|pip_(?:index_url|extra_index_url|find_links|no_index|trusted_host|cert|client_cert|proxy|default_timeout)"
    r"|npm_config_(?:registry|cafile|ca|proxy|https_proxy|noproxy|strict_ssl)",
    re.IGNORECASE,
)
"""Variables that say how packages are downloaded, but not where they are cached."""
SETTINGS = (".npmrc", ".pip/pip.conf", ".config/pip/pip.conf")
"""Files in HOME with the same settings."""


def main(names: list[str]) -> int:
    """Run the named steps, or all; print a summary and return the exit code."""
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    if (problem := namespace_problem()) is not None:
        print(f"`make fresh` needs a private mount namespace: {problem}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, leave)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    base = Path(tempfile.mkdtemp(prefix="fresh-", dir=LOGS.parent))
    try:
        if git("status", "--porcelain"):
            print("Note: there are uncommitted changes; they are not part of this run.")
        print(f"A fresh clone of {git('log', '-1', '--format=%h %s')}\n", flush=True)
        outcomes = {name: run_step(base, name) for name in names or STEPS}
    except KeyboardInterrupt:
        print("\nInterrupted.")
        return 128 + signal.SIGINT
    finally:
        remove(base)
    failed = [name for name, succeeded in outcomes.items() if not succeeded]
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} steps passed on a fresh machine")
    for name in failed:
        print(f"  {shlex.join(STEPS[name])} failed: {LOGS.relative_to(ROOT) / name}.log")
    return 1 if failed else 0


def leave(number: int, _: object) -> None:
    """Exit at a signal, after the clean-up in `finally`."""
    sys.exit(128 + number)


def git(*arguments: str) -> str:
    """Return the output of a git command in this repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.strip()


def run_step(base: Path, name: str) -> bool:
    """Run one step, print its duration, and show the end of its output if it failed."""
    print(f"  {shlex.join(STEPS[name]):<30}", end="", flush=True)
    log, began = LOGS / f"{name}.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            inside(base, make_folders(base, name), STEPS[name]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    print(f"{'passed' if code == 0 else f'FAILED ({code})'}  {time.monotonic() - began:6.1f} s", flush=True)
    if code == 0:
        log.unlink()
        return True
    lines = log.read_text("utf-8", "replace").splitlines()
    print("\n".join(f"    | {line}" for line in lines[-LAST_LINES:]), flush=True)
    return False


def make_folders(base: Path, name: str) -> dict[str, str]:
    """Create the folders of a step in `base`, and the clone if it does not exist; return their names."""
    clone = "contributor" if name == "test" else "visitor"
    if not (base / clone).exists():
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(base / clone)], check=True
        )
    folders = {kind: f"{name}-{kind}" for kind in ("home", "tmp", "var-tmp")}
    for kind, folder in folders.items():
        (base / folder).mkdir()
        (base / folder).chmod(0o1777 if kind in TEMPORARY else 0o700)
    for setting in SETTINGS:
        if (HOME / setting).is_file():
            copy = base / folders["home"] / setting
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HOME / setting, copy)
    return {**folders, "clone": clone}


def inside(base: Path, folders: dict[str, str], command: list[str]) -> list[str]:
    """Return the command that runs another one in a namespace with the fresh folders."""
    seen = {kind: f"{PLACE}/{folder}" for kind, folder in folders.items()}
    # A mount may hide the source of a later one: `base` comes first, since it may be in any of them.
    mounts = [["--bind", str(base), PLACE]]
    mounts += [["-t", "tmpfs", "fresh", str(folder)] for folder in remembering_folders()]
    mounts += [["--bind", seen[kind], place] for kind, place in TEMPORARY.items()]
    lines = ["set -e", *(shlex.join(["mount", *mount]) for mount in mounts), f"cd {seen['clone']}"]
    variables = [f"{name}={value}" for name, value in {**environment(), "HOME": seen["home"]}.items()]
    lines.append(f"exec {shlex.join(['env', '-i', *variables, *command])}")
    return [*unshare(), "/bin/sh", "-c", "\n".join(lines)]


def remembering_folders() -> list[Path]:
    """Return the folders in which programs store the user's data, except those that contain our tools."""
    defaults = {"CACHE": ".cache", "CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
    places = [Path(os.environ.get(f"XDG_{name}_HOME") or HOME / place) for name, place in defaults.items()]
    places += [HOME / ".npm", *map(Path, filter(None, [os.environ.get("XDG_RUNTIME_DIR")]))]
    needed = [Path(sys.base_prefix).resolve(), *map(Path, tool_folders())]
    found = dict.fromkeys(place.resolve() for place in places if place.is_dir())
    return [place for place in found if not any(one.is_relative_to(place) for one in needed)]


def environment() -> dict[str, str]:
    """Return the environment variables of a step, except HOME."""
    kept = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return {**kept, "PATH": os.pathsep.join(tool_folders())}


def tool_folders() -> list[str]:
    """Return the folders of the required tools, Python first, and of the system's tools."""
    python = Path(sys.executable).resolve().parent
    tools = [Path(found).parent for tool in TOOLS if (found := shutil.which(tool))]
    return list(dict.fromkeys(map(str, [python, *tools, Path("/usr/bin"), Path("/bin")])))


def unshare() -> list[str]:
    """Return the command that creates a private mount namespace, as root or as another user."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def namespace_problem() -> str | None:
    """Return why a namespace cannot be created, or None."""
    if shutil.which("unshare") is None:
        return "`unshare` not found (it is part of util-linux, on Linux)"
    command = [*unshare(), "mount", "-t", "tmpfs", "fresh", PLACE]
    done = subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    return f"`{shlex.join(command)}` says: {done.stderr.strip()}" if done.returncode else None


def remove(base: Path) -> None:
    """Remove the fresh folders, including files that a test made unreadable."""
    subprocess.run(["chmod", "-R", "u+rwX", str(base)], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(base)
    if not any(LOGS.iterdir()):
        LOGS.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
