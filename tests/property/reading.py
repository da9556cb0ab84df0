"""What must hold of every file, however wrong it is: settings, and problems that say where."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.config.dialect import Place
from dragoman.config.load import load
from dragoman.config.profiles import Profile
from dragoman.config.templates import ExpansionContext, expand_transport
from dragoman.errors import ConfigError, ConfigSyntaxError, InvalidSpecError, MissingVariableError
from dragoman.struct import asdict

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.model import ServerSpec, Settings

AROUND = ExpansionContext(env={"HOME": "/home/ana"}, root="/home/ana/shop", home="/home/ana")


def check_file(path: Path, dialect: str, original: Path, combine: Any = "replace") -> Settings:
    """Read a file, with an intact one below it, and check all that must hold; return what was read."""
    places = (Place(str(path), "project", dialect=dialect), Place(str(original), "user", dialect=dialect))
    environment = "LEGAL" if dialect == "legal" else ""
    profile = Profile(app="fuzz", places=places, combine=combine, variable="", environment=environment)
    settings = load(profile, root=AROUND.root, env={}, home=AROUND.home, platform="linux")
    text = path.read_bytes()
    for problem in settings.problems:
        check_problem(problem, {str(path): text, str(original): original.read_bytes()})
    for spec in settings.servers:
        unset = missing_variable(spec)
        assert unset is None or (unset.source == spec.origin.source and unset.line)
    check_writable(settings)
    return settings


def missing_variable(spec: ServerSpec) -> MissingVariableError | None:
    try:
        expand_transport(spec, AROUND)
    except MissingVariableError as error:
        return error
    return None


def check_problem(problem: Any, files: dict[str, bytes]) -> None:
    assert isinstance(problem, ConfigError)
    assert problem.source in files, "a problem names its file"
    assert str(problem).isprintable(), "what a file says cannot forge a line of the log"
    count = 1 + files[problem.source].count(b"\n")
    assert problem.line is None or 1 <= problem.line <= count
    if isinstance(problem, InvalidSpecError) or not isinstance(problem, ConfigSyntaxError):
        assert problem.line is not None, "an entry always has a line"


def check_writable(settings: Settings) -> None:
    """Whatever was read can be printed and written as UTF-8."""
    repr(settings).encode()
    for spec in settings.servers:
        json.dumps(asdict(spec), default=str, ensure_ascii=False).encode()
