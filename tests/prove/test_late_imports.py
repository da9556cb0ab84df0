"""A login that begins any number of turns of the event loop after the start of a program, while modules are imported."""

from __future__ import annotations

import pytest
from tests.behaviour.test_late_imports import login_right_after_the_start_of_a_program_works

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turns", [0, 1, 3, 10, 100, 1000])
async def test_login_right_after_the_start_of_a_program_works(turns: int) -> None:
    await login_right_after_the_start_of_a_program_works(turns)
