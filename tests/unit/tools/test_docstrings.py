from __future__ import annotations

import pytest

from dragoman.tools.local import read_docstring

GOOGLE = """Find things.

    More about it.

    Args:
        query: What to look for,
            on two lines.
        limit (int): How many.
        **rest: Whatever else: it is kept.

    Returns:
        A list.
"""
SPHINX = """Find things.

    More about it.

    :param query: What to look for,
        on two lines.
    :param int limit: How many.
    :type limit: int
    :param rest: Whatever else: it is kept.
    :returns: A list.
"""
NUMPY = """Find things.

    More about it.

    Parameters
    ----------
    query : str
        What to look for,
        on two lines.
    limit
        How many.
    **rest : Any
        Whatever else: it is kept.

    Returns
    -------
    list
        A list.
"""


@pytest.mark.parametrize("text", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_parameters_are_taken_out_and_the_rest_stays(text: str) -> None:
    read = read_docstring(text)
    assert read.parameters == {
        "query": "What to look for, on two lines.",
        "limit": "How many.",
        "rest": "Whatever else: it is kept.",
    }
    assert read.description.startswith("Find things.\n\nMore about it.\n\n")
    assert "A list." in read.description
    assert "How many" not in read.description


@pytest.mark.parametrize(
    "text",
    [
        "",
        "One line.",
        "Args: a word that begins a sentence.",
        "See Args:\nnothing is indented below it.",
        ":raises ValueError: if it is wrong.",
        "Parameters\nof the world, without a rule below.",
    ],
)
def test_what_only_looks_like_a_section_stays_in_the_description(text: str) -> None:
    read = read_docstring(text)
    assert read.description == text
    assert read.parameters == {}


def test_an_empty_section_is_no_harm() -> None:
    assert read_docstring("Do it.\n\nArgs:\n").description == "Do it."
    assert read_docstring("Do it.\n\nParameters\n---\n").description == "Do it."


def test_a_numpy_section_ends_where_prose_begins() -> None:
    read = read_docstring("Do it.\n\nParameters\n----------\na\n    First.\n\nAnd then, prose again.")
    assert read.parameters == {"a": "First."}
    assert read.description == "Do it.\n\nAnd then, prose again."
