"""Templates: what a row becomes."""

from __future__ import annotations

import pytest

from dragoman.bulk.template import Template
from dragoman.errors import BulkError

ROW = {"file": "a.txt", "n": 3, "empty": None, "first name": "Ann"}


@pytest.mark.parametrize(
    ("arguments", "filled"),
    [
        ({"path": "{file}"}, {"path": "a.txt"}),
        ({"path": "dir/{file}.{n}"}, {"path": "dir/a.txt.3"}),
        ({"count": "{n}"}, {"count": 3}),
        ({"count": "{ n }", "who": "{first name}"}, {"count": 3, "who": "Ann"}),
        ({"left": "{empty}", "kept": "<{empty}>"}, {"kept": "<>"}),
        ({"text": "{{file}} {file}"}, {"text": "{file} a.txt"}),
        ({"text": '{"a": {"b": 1}} {}'}, {"text": '{"a": {"b": 1}} {}'}),
        ({"limit": 5, "flag": True, "none": None}, {"limit": 5, "flag": True, "none": None}),
        ({"rows": [["{file}", "{n}"], ["{empty}"]]}, {"rows": [["a.txt", 3], [None]]}),
        ({"options": {"depth": "{n}", "left": "{empty}"}}, {"options": {"depth": 3}}),
    ],
)
def test_placeholders_take_the_cells_of_the_row(arguments: dict, filled: dict) -> None:
    assert Template(arguments).fill(ROW) == filled


def test_an_unknown_placeholder_names_the_column_and_a_similar_one() -> None:
    template = Template({"path": "{flie}", "n": ["{n}"]})
    assert template.columns == ["flie", "n"]
    with pytest.raises(BulkError, match=r"no column `flie`.*did you mean `{file}`"):
        template.check(list(ROW))


def test_a_row_without_the_column_is_a_key_error_with_its_name() -> None:
    with pytest.raises(KeyError, match="file"):
        Template({"path": "{file}"}).fill({"other": 1})
