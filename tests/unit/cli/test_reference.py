"""The page of the site about commands says what the program says."""

from __future__ import annotations

import shutil
import subprocess

import click
from scripts import write_man
from scripts.draw_cli import page, shown

from dragoman.cli.exits import Exit
from dragoman.cli.main import COMMANDS, cli

PAGE = page()


def test_the_page_has_every_command_every_code_and_every_shape() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        assert f"## `dragoman {name}`" in PAGE
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help
    for code in Exit:
        assert f"\n| {code.value} | " in PAGE
    for name in shown():
        assert f"### {name}\n" in PAGE


def test_the_manual_page_has_every_command_and_no_fault() -> None:
    manual = write_man.page()
    assert [name for name in COMMANDS if f"\n.SS dragoman {name} " not in manual] == []
    assert manual.isascii()
    if groff := shutil.which("groff"):
        command = [groff, "-man", "-Tutf8", "-ww", "-z"]
        assert subprocess.run(command, input=manual, capture_output=True, text=True, check=True).stderr == ""


def test_the_first_line_of_a_command_is_what_the_list_says_or_more() -> None:
    """Each command has its own words; the list's are shorter, and none is empty."""
    for _, text in COMMANDS.values():
        assert text.endswith(".")
        assert len(text) <= 64
