"""The wheel in empty environments: what is in it, each Python it is for, its own dependencies, each extra alone.

It needs a package index. An interpreter that the machine lacks is skipped, and the page says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
OURS = dict(os.environ)
"""The environment before a test's own: where the index is told, and the installer's cache."""
UV = Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13")
CACHES = {"__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis", ".cache", "node_modules"}
EXTRAS = {
    "agent-framework": "import dragoman.adapters.agent_framework",
    "agno": "import dragoman.adapters.agno",
    "code": "from dragoman.agent.code.runner import CodeRunner; CodeRunner(list)",
    "anthropic": "import anthropic, dragoman.agent.providers.anthropic",
    "any-llm": "import any_llm, dragoman.agent.providers.any_llm",
    "google-adk": "import dragoman.adapters.google_adk",
    "keyring": "import keyring, dragoman.server.oauth.token_store",
    "langchain": "import dragoman.adapters.langchain",
    "llama-index": "import dragoman.adapters.llama_index",
    "openai": "import openai, dragoman.agent.providers.openai_chat, dragoman.agent.providers.openai_responses",
    "openai-agents": "import dragoman.adapters.openai_agents",
    "otel": "import opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace",
    "pydantic-ai": "import dragoman.adapters.pydantic_ai",
    "search": "from dragoman.tools.search.vectors import encoder; encoder().encode(['a tool'])",
    "smolagents": "import dragoman.adapters.smolagents",
    "strands": "import dragoman.adapters.strands",
    "tui": "import dragoman.cli.dashboard.app",
}
"""What each extra is for: without it this fails."""
OPTIONAL = {
    "agent_framework",
    "agents",
    "agno",
    "anthropic",
    "any_llm",
    "google",
    "keyring",
    "langchain",
    "langchain_core",
    "llama_index",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "PIL",
    "strands",
    "textual",
}
SMOKE = """
import asyncio, json, pkgutil, sys
from importlib import import_module
from pathlib import Path
import dragoman
from dragoman import McpManager, ServerSpec, Stdio

assert Path(dragoman.__file__).is_relative_to(sys.prefix), dragoman.__file__
for name in dragoman.__all__:
    getattr(dragoman, name)
missing = {}
modules = [found.name for found in pkgutil.walk_packages(dragoman.__path__, "dragoman.")]
for name in modules:
    if name == "dragoman.__main__":
        continue
    try:
        import_module(name)
    except ImportError as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        missing[name] = (getattr(cause, "name", "") or str(cause)).partition(".")[0]

async def main():
    law = ServerSpec("law", Stdio(sys.executable, ["-m", "dragoman.demo.legal"]))
    async with McpManager([law]) as mcp:
        assert await mcp.wait_ready(), mcp.status()
        result = await mcp.call("mcp_law_lookup_statute", {"law": "residential-tenancy", "article": "4"})
        return len(mcp.tools()), result.raise_for_error().text

tools, text = asyncio.run(main())
print(json.dumps({"modules": len(modules), "missing": missing, "tools": tools, "text": text}))
"""


class Built(NamedTuple):
    """What `uv build` gave."""

    wheel: Path
    sdist: Path


class Environment:
    """An environment that has the wheel and what the wheel asks for, and nothing else."""

    def __init__(self, folder: Path, python: str, requirement: str) -> None:
        self.folder = folder
        uv("venv", "--quiet", "--python", python, str(folder))
        uv("pip", "install", "--quiet", "--python", str(self.bin("python")), requirement)

    def bin(self, name: str) -> Path:
        return self.folder / "bin" / name

    def run(self, *words: str | Path) -> str:
        done = subprocess.run([*words], capture_output=True, text=True, check=False, env=clean())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def packages(self) -> dict[str, str]:
        listed = uv("pip", "list", "--format", "json", "--python", str(self.bin("python")))
        return {one["name"]: one["version"] for one in json.loads(listed)}


def uv(*words: str) -> str:
    done = subprocess.run([UV, *words], capture_output=True, text=True, check=False, env=OURS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def clean() -> dict[str, str]:
    """Return the test's own environment, without what would let our sources in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))}


def interpreter(wanted: str) -> str | None:
    """Find a Python of that version: this one, one on PATH, or one that pyenv has."""
    pyenv = Path(OURS.get("PYENV_ROOT") or Path(OURS.get("HOME", "")) / ".pyenv") / "versions"
    found = shutil.which(f"python{wanted}", path=OURS.get("PATH"))
    candidates = [sys.executable, *([found] if found else []), *sorted(pyenv.glob(f"{wanted}.*/bin/python"))]
    for candidate in candidates:
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if done.stdout.strip() == wanted:
            return str(candidate)
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", str(folder))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for an environment, which is large: it goes when the test is over."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Message:
    return message_from_bytes(contents(wheel)[f"dragoman-{VERSION}.dist-info/METADATA"])


def test_the_wheel_has_the_package_and_nothing_else(built: Built, proof: Proof) -> None:
    names = set(contents(built.wheel))
    source = {
        f"dragoman/{path.relative_to(ROOT / 'src/dragoman').as_posix()}"
        for path in (ROOT / "src/dragoman").rglob("*")
        if path.is_file() and not CACHES & set(path.parts)
    }
    assert {name for name in names if ".dist-info/" not in name} == source
    assert "dragoman/py.typed" in names
    proof.record(files=len(names), wheel_KiB=built.wheel.stat().st_size // 1024)


def test_the_metadata_tell_what_an_index_shows(built: Built) -> None:
    found = metadata(built.wheel)
    assert (found["Name"], found["Version"]) == ("dragoman", VERSION)
    assert found["Requires-Python"] == ">=3.11"
    assert (found["License-Expression"], found["Description-Content-Type"]) == ("MIT", "text/markdown")
    versions = {line.rpartition(" :: ")[2] for line in found.get_all("Classifier", [])}
    assert versions >= set(PYTHONS)
    assert (
        str(found.get_payload(decode=True), "utf-8").strip()
        == (ROOT / "README.md").read_text("utf-8").strip()
    )
    assert set(found.get_all("Provides-Extra", [])) == set(EXTRAS)


def test_the_sdist_has_no_caches_and_builds_the_same_wheel(
    built: Built, tmp_path: Path, proof: Proof
) -> None:
    with tarfile.open(built.sdist) as archive:
        names = archive.getnames()
    assert [name for name in names if CACHES & set(Path(name).parts)] == []
    assert {f"dragoman-{VERSION}/{name}" for name in ("README.md", "LICENSE", "CHANGELOG.md")} < set(names)
    uv("build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(built.sdist))
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(built.wheel)
    proof.record(files=len(names), sdist_KiB=built.sdist.stat().st_size // 1024)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_works_with_its_declared_dependencies_alone(
    python: str, built: Built, place: Path, home: Path, proof: Proof
) -> None:
    path = interpreter(python)
    if path is None:
        proof.record(lacking=f"Python {python}")
        pytest.skip(f"this machine has no Python {python}")
    environment = Environment(place, path, str(built.wheel))
    dragoman, interpreted = environment.bin("dragoman"), environment.bin("python")
    assert environment.run(dragoman, "--version").split()[-1] == VERSION
    assert environment.run(interpreted, "-m", "dragoman", "--version").split()[-1] == VERSION
    smoke = json.loads(environment.run(interpreted, "-c", SMOKE))
    assert set(smoke["missing"].values()) <= OPTIONAL, smoke["missing"]
    assert "two months' rent" in smoke["text"]
    servers = {"law": {"command": str(interpreted), "args": ["-m", "dragoman.demo.legal"]}}
    configuration = home / ".config/dragoman/mcp.json"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    assert "law" in environment.run(dragoman, "config", "show")
    said = environment.run(dragoman, "call", "law", "lookup_statute", "law=residential-tenancy", "article=4")
    assert "two months' rent" in said
    assert "Sources:" in said
    environment.run(dragoman, "demo", "--no-session")
    packages = environment.packages()
    declared = metadata(built.wheel).get_all("Requires-Dist", [])
    proof.record(
        Python=environment.run(interpreted, "--version").split()[1],
        declared_dependencies=len([one for one in declared if "extra ==" not in one]),
        packages=len(packages),
        mcp=packages["mcp"],
        modules=smoke["modules"],
        modules_that_wait_for_an_extra=len(smoke["missing"]),
    )


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_alone_and_gives_what_it_is_for(
    extra: str, built: Built, place: Path, proof: Proof
) -> None:
    environment = Environment(place, sys.executable, f"dragoman[{extra}] @ {built.wheel.as_uri()}")
    environment.run(environment.bin("python"), "-c", EXTRAS[extra])
    uv("pip", "check", "--python", str(environment.bin("python")))
    proof.record(extra=f"{extra} ({len(environment.packages())} packages)")
