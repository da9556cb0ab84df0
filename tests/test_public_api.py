"""The public surface: small, sorted, documented, and cheap to import."""

from __future__ import annotations

import importlib
import inspect
import pydoc
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


@pytest.mark.parametrize("name", [name for name in dragoman.__all__ if not name.startswith("_")])
def test_help_shows_every_name(name: str) -> None:
    thing = getattr(dragoman, name)
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        assert inspect.signature(thing) is not None
    assert pydoc.render_doc(thing)


def test_import_dragoman_imports_nothing_expensive() -> None:
    assert modules_after("import dragoman") & EXPENSIVE == set()


@pytest.mark.parametrize("module", ["dragoman.manager.manager", "dragoman.config", "dragoman.cli.main"])
def test_what_starts_a_program_leaves_the_sdk_alone(module: str) -> None:
    importlib.import_module(module)
    assert modules_after(f"import {module}") & {"mcp", "mcp_types", "pydantic", "rich", "aiohttp"} == set()


@pytest.mark.parametrize("name", ["ToolResult", "McpManager"])
def test_a_first_use_imports_no_sdk(name: str) -> None:
    assert modules_after(f"from dragoman import {name}") & {"mcp", "mcp_types", "pydantic"} == set()


DAILY = (
    "from_config connect_all start close shutdown started settings wait_ready tools registry call map status metrics logs "
    "events call_log add remove restart enable disable reload resources read prompts prompt instructions subscribe "
    "unsubscribe as_user user users trust_project toolset"
)
FACETS = {
    "auth": "login begin complete logout",
    "trust": "pending answer changes approve",
    "tasks": "list resume cancel keeps_questions",
    "skills": "servers all get load read directory approve",
    "apps": "open",
    "session": "complete set_log_level set_roots",
}


def names_of(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("module", ["dragoman", "dragoman.blocking"])
def test_the_manager_has_what_is_needed_daily_and_facets_for_the_rest(module: str) -> None:
    manager = importlib.import_module(module).McpManager
    assert names_of(manager) == set(DAILY.split()) | FACETS.keys()
    made = manager([])
    for facet, names in FACETS.items():
        assert names_of(getattr(made, facet)) == set(names.split()), facet


DOCUMENTED = {
    "dragoman.agent": ["AgentEngine", "ScriptedProvider", "Say", "open_provider"],
    "dragoman.blocking": ["McpManager", "ToolRegistry"],
    "dragoman.config.dialect": ["Place"],
    "dragoman.events": ["StateChanged", "ToolsChanged"],
    "dragoman.manager": ["McpManager"],
    "dragoman.observe.metrics": ["Metrics"],
    "dragoman.manager.resources": ["prompt_tools", "resource_tools"],
    "dragoman.testing": ["InstantClock", "ScriptedServer"],
    "dragoman.tools.export.apis.anthropic": ["anthropic_content"],
    "dragoman.tools.export.apis.gemini": ["gemini_response"],
    "dragoman.tools.export.apis.openai": ["chat_content"],
    "dragoman.tools.export.apis.responses": ["responses_output"],
}


@pytest.mark.parametrize("module", DOCUMENTED)
def test_a_documented_import_path_works(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in DOCUMENTED[module] if not hasattr(found, name)] == []
