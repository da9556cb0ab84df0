"""The public surface: small, sorted, documented, and cheap to import."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import dragoman

MOST_NAMES = 40
EXPENSIVE = {"mcp", "mcp_types", "pydantic", "rich", "click", "aiohttp"}


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after a statement."""
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_all_is_sorted_and_small() -> None:
    assert list(dragoman.__all__) == sorted(set(dragoman.__all__))
    assert len(dragoman.__all__) <= MOST_NAMES


def test_dir_agrees_with_all() -> None:
    public = {name for name in dir(dragoman) if not name.startswith("_")}
    submodules = {name for name in public if inspect.ismodule(getattr(dragoman, name))}
    names = {name for name in dragoman.__all__ if not name.startswith("_")}
    assert public - submodules == names


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        dragoman.no_such_name  # noqa: B018 - reading the attribute is the test


@pytest.mark.parametrize("name", [name for name in dragoman.__all__ if not name.startswith("_")])
def test_every_name_is_importable_and_documented(name: str) -> None:
    thing = getattr(dragoman, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        documentation = thing.__doc__ or ""
        # A dataclass without a docstring is given its signature as one.
        assert documentation.strip(), f"`{name}` has no docstring"
        assert not documentation.startswith(f"{name}("), f"`{name}` has no docstring"


def test_import_dragoman_imports_nothing_expensive() -> None:
    assert modules_after("import dragoman") & EXPENSIVE == set()


@pytest.mark.parametrize("module", ["dragoman.manager.manager", "dragoman.config", "dragoman.cli.main"])
def test_what_starts_a_program_leaves_the_sdk_alone(module: str) -> None:
    importlib.import_module(module)
    assert modules_after(f"import {module}") & {"mcp", "mcp_types", "pydantic", "rich", "aiohttp"} == set()


@pytest.mark.parametrize("name", ["ToolResult", "McpManager"])
def test_a_first_use_imports_no_sdk(name: str) -> None:
    assert modules_after(f"from dragoman import {name}") & {"mcp", "mcp_types", "pydantic"} == set()


DOCUMENTED_IN_0_1 = {
    "dragoman.agent": ["AgentEngine", "ScriptedProvider", "Say", "open_provider"],
    "dragoman.blocking": ["McpManager", "ToolRegistry"],
    "dragoman.config.dialect": ["Place"],
    "dragoman.events": ["StateChanged", "ToolsChanged"],
    "dragoman.manager": ["McpManager"],
    "dragoman.observe.metrics": ["Metrics"],
    "dragoman.manager.resources": ["prompt_tools", "resource_tools"],
    "dragoman.testing": ["InstantClock", "ScriptedServer"],
    "dragoman.tools.result.render": [
        "anthropic_content",
        "chat_content",
        "gemini_response",
        "responses_output",
    ],
}


@pytest.mark.parametrize("module", DOCUMENTED_IN_0_1)
def test_an_import_path_that_0_1_documented_works(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in DOCUMENTED_IN_0_1[module] if not hasattr(found, name)] == []
