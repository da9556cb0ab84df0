"""`make test AREA=…`: every package of the source has tests of its own, and every other file belongs to one."""

from __future__ import annotations

import pytest
from tests.areas import NAMES, ROOT, areas, files


@pytest.mark.parametrize("area", areas())
def test_area_has_tests_beside_those_of_the_whole_tree(area: str) -> None:
    found = files(area)
    assert len(found) > 5
    assert [path for path in found if not (ROOT / path).exists()] == []
    unit = ROOT / "tests/unit" / area
    assert (f"tests/unit/{area}" in found) is unit.is_dir()


def test_names_are_of_packages_and_begin_the_name_of_a_test() -> None:
    assert NAMES.keys() <= set(areas())
    stems = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    beginnings = {f"test_{one}" for names in NAMES.values() for one in names.split()}
    assert [one for one in beginnings if not any(stem.startswith(one) for stem in stems)] == []


def test_behaviour_is_in_some_area() -> None:
    found = {path for area in areas() for path in files(area)}
    behaviour = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/behaviour").glob("test_*.py")}
    assert behaviour <= found
