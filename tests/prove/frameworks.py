"""The environments of the agent frameworks: one for each, with dragoman installed beside it, from the locks."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.environment import (
    create,
    fingerprint,
    install_lock,
    is_current,
    python_in,
    run_quietly,
    write_stamp,
)

UV = Path(sys.executable).with_name("uv")
ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements/adapters"
MODULES = {
    "langchain": "langchain_core",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
    "strands": "strands",
    "google-adk": "google.adk",
    "agent-framework": "agent_framework",
    "smolagents": "smolagents",
    "llama-index": "llama_index.core",
    "agno": "agno",
}
"""The frameworks that have an adapter, each with its package; the adapter's module has underscores."""


def python_of(name: str) -> Path:
    """Return the interpreter of a framework's environment; install it if it is not there."""
    return _installed(ROOT / ".cache/adapters" / name, LOCKS / f"{name}.txt", with_dragoman=True)


def python_apart(name: str) -> Path:
    """Return the interpreter of a framework that cannot be installed beside dragoman."""
    return _installed(
        ROOT / ".cache/apart" / name, ROOT / f"requirements/apart/{name}.txt", with_dragoman=False
    )


def _installed(environment: Path, lock: Path, *, with_dragoman: bool) -> Path:
    stamp, python = fingerprint(lock, ROOT / "pyproject.toml"), python_in(environment)
    if not is_current(environment, "lock", stamp):
        create(environment)
        install_lock(environment, lock)
        if with_dragoman:
            install = [str(UV), "pip", "install", "--quiet", "--python", str(python), "--no-deps"]
            run_quietly([*install, "--no-build-isolation", "--no-index", "--editable", str(ROOT)])
        write_stamp(environment, "lock", stamp)
    return python
