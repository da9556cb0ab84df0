"""Real child processes of the demo servers, none of which outlives its test module."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.warm import interpreter

import dragoman.demo

Launch: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="session")
def child_environment() -> dict[str, str]:
    """What a child needs to import the package under test."""
    return {"PYTHONPATH": str(Path(dragoman.demo.__file__).parents[2])}


@pytest.fixture(scope="module")
def launch(child_environment: dict[str, str]) -> Iterator[Launch]:
    """Start `python -m MODULE OPTIONS…` with pipes; every child is ended with the test module."""
    with ExitStack() as children:

        def start(module: str, *options: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [interpreter(), "-m", module, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | child_environment,
            )
            children.enter_context(process)
            children.callback(process.kill)
            return process

        yield start
