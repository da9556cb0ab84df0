"""Providers of other packages: a real distribution on the path, found by its entry point."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dragoman.agent import AgentEngine
from dragoman.agent.providers import ProviderError, open_provider
from dragoman.agent.providers.open import installed_providers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = """
from dragoman.agent import ScriptedProvider


async def open_model(options):
    key = await options.key(options.key_variable or "ACME_API_KEY", is_required=True)
    provider = ScriptedProvider(["I am " + options.require_model()], model=options.model)
    provider.secrets = [key.reveal()]
    return provider


def open_at_once(options):
    return ScriptedProvider(["at once"], model=options.model or "none")


answer = 42
"""
ENTRIES = """
[dragoman.providers]
acme = acme_models:open_model
quick = acme_models:open_at_once
gone = acme_models:no_such_function
number = acme_models:answer
exits = acme_exits:open_model
tells = acme_tells:open_model
openai = acme_models:open_at_once
"""

TOKEN = "sk-" + "Q7w8" * 8


@pytest.fixture(autouse=True)
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a distribution as `pip install --target` does."""
    (tmp_path / "acme_models.py").write_text(CODE, "utf-8")
    (tmp_path / "acme_exits.py").write_text("raise SystemExit(3)", "utf-8")
    (tmp_path / "acme_tells.py").write_text(f"raise ValueError('\\x1b[31m {TOKEN}')", "utf-8")
    about = tmp_path / "acme_models-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text(ENTRIES, "utf-8")
    (about / "RECORD").write_text("", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("acme_models", None)


async def test_a_package_brings_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "acme-key-4711")
    async with AgentEngine("acme:large", []) as agent:
        assert (await agent.run("who?")).text == "I am large"
        assert agent.manager is not None
        # The key is masked from now on, as every secret of the manager.
        assert "acme-key-4711" not in agent._redactor.mask("it is acme-key-4711")  # type: ignore[union-attr]
    assert (await open_provider("quick", env={})).model == "none"


async def test_what_it_needs_is_said_as_of_our_own() -> None:
    with pytest.raises(ProviderError, match="set `ACME_API_KEY`"):
        await open_provider("acme:large", env={})
    with pytest.raises(ProviderError, match="`acme` names no model"):
        await open_provider("acme", env={"ACME_API_KEY": "acme-key-4711"})


async def test_it_is_listed_and_cannot_take_the_name_of_another() -> None:
    assert {"acme", "quick"} <= set(installed_providers())
    assert "openai" not in installed_providers()
    with pytest.raises(ProviderError, match="did you mean `acme`") as caught:
        await open_provider("acne:large", env={})
    assert "`acme`" in str(caught.value)
    assert (await open_provider("openai:m", env={"OPENAI_API_KEY": "x"})).model == "m"


@pytest.mark.parametrize(
    ("name", "why"),
    [("gone", "cannot be imported: AttributeError"), ("number", "cannot be called")],
)
async def test_a_broken_package_is_named(name: str, why: str) -> None:
    with pytest.raises(ProviderError, match=f"the provider `{name}` of `acme_models:.*` {why}"):
        await open_provider(f"{name}:x", env={})


async def test_a_package_that_ends_the_program_or_tells_a_secret_is_an_error_like_others() -> None:
    with pytest.raises(ProviderError, match="cannot be imported: SystemExit: 3"):
        await open_provider("exits:x", env={})
    with pytest.raises(ProviderError, match="cannot be imported: ValueError") as caught:
        await open_provider("tells:x", env={})
    assert TOKEN not in str(caught.value)
    assert "\x1b" not in str(caught.value)
