"""The shared options: one object, whatever the place they stand in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from dragoman.cli.options import Options, common_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    disabled = logger.disabled
    yield
    logger.disabled = disabled


@click.group()
@common_options
def outer() -> None:
    """Hold a subcommand."""


@outer.command()
@common_options
@click.argument("words", nargs=-1)
@click.pass_obj
def inner(options: Options, words: tuple[str, ...]) -> None:
    click.echo(f"{options.profile} {options.config} {options.json} {options.debug} {words}")


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        (["inner"], "dragoman None False False ()"),
        (["--json", "inner"], "dragoman None True False ()"),
        (["inner", "--json"], "dragoman None True False ()"),
        (["--profile", "a", "inner", "--profile", "b"], "b None False False ()"),
        (["--config", "x", "--debug", "inner", "word"], "dragoman x False True ('word',)"),
        (["inner", "word", "--config", "y", "--", "--json"], "dragoman y False False ('word', '--json')"),
    ],
)
def test_an_option_counts_wherever_it_stands_and_the_last_one_wins(arguments: list[str], seen: str) -> None:
    done = CliRunner().invoke(outer, arguments, obj=Options())
    assert (done.exit_code, done.output) == (0, f"{seen}\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(), "dragoman"),
        (Options(profile="kode"), "dragoman --profile kode"),
        (Options(profile="kode", config="a.json"), "dragoman --profile kode --config a.json"),
        (Options(config="a.json", json=True), "dragoman --config a.json"),
    ],
)
def test_a_hint_starts_the_program_on_the_same_configuration(options: Options, words: str) -> None:
    assert options.program() == words.split()


def test_every_command_explains_the_shared_options() -> None:
    done = CliRunner().invoke(outer, ["inner", "--help"])
    for option in ("--profile", "--config", "--json", "--debug"):
        assert option in done.output


def test_loading_logs_problems_only_when_debugging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mcp.json").write_text("{", "utf-8")
    assert [problem.code for problem in Options().load().problems] == ["config.syntax"]
    assert not caplog.records
    Options(debug=True).load()
    assert "not valid JSON" in caplog.text


def test_loading_reads_the_named_file_in_the_named_profile(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[[mcp_servers]]\nname = "a"\ncommand = "x"\n', "utf-8")
    settings = Options(profile="otter", config="other.toml").load()
    assert (settings.profile, [spec.name for spec in settings.servers]) == ("otter", ["a"])
