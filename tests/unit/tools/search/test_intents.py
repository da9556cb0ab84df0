from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.model import ToolDef
from dragoman.tools.search import ToolIndex, intents
from dragoman.tools.search.vectors import encoder, is_installed

if TYPE_CHECKING:
    from pathlib import Path

needs_model = pytest.mark.skipif(not is_installed(), reason="needs the extra `search`")


def test_each_intent_says_what_tools_do_and_what_users_say() -> None:
    for means, said in intents.read():
        assert means
        assert all(said), means


@needs_model
def test_the_vectors_are_those_of_the_texts() -> None:
    """Fails until `scripts/encode_intents.py` was run after a change of `intents.txt`."""
    said, owners, means = intents._vectors()
    pairs = intents.read()
    sentences = [one for _, some in pairs for one in some]
    assert len(means) == len(pairs)
    assert len(said) == len(sentences) == len(owners)
    for texts, rows in (([one for one, _ in pairs], means), (sentences, said)):
        # Every line in turn would take seconds; a line that was added or removed moves all later ones.
        some = range(0, len(texts), 60)
        computed = encoder().encode([texts[at] for at in some])
        assert all(computed[number] @ rows[at] > 0.98 for number, at in enumerate(some))


@needs_model
def test_a_request_without_a_common_word_is_moved_toward_its_tool(tmp_path: Path) -> None:
    tools = [
        ToolDef(
            name="goal_seek",
            description="Change a cell until a formula has the wanted value.",
            input_schema={},
        ),
        ToolDef(name="list_schedules", description="List on-call schedules of a team.", input_schema={}),
        ToolDef(name="play_melody", description="Play a melody.", input_schema={}),
        ToolDef(name="set_alarm", description="Set an alarm that wakes the user.", input_schema={}),
    ]
    index = ToolIndex(tools, cache=tmp_path / "vectors.sqlite")
    index.wait()

    assert index.search("how many must we sell")[0] == "goal_seek"
    assert index.search("is it my turn at the weekend")[0] == "list_schedules"
    index.close()
