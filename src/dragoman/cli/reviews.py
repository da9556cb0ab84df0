"""Reviews of servers as JSON, for `doctor` and `trust`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dragoman.cli.output import ErrorReport
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dragoman.diagnosis.review import Review
    from dragoman.trust.findings import Finding


class ChangeReport(Report, kw_only=True):
    """One difference from the pinned definitions."""

    kind: Literal["tool", "prompt", "instructions"]
    name: str
    """The server's own name; empty for the instructions."""
    what: Literal["added", "removed", "renamed", "changed"]
    before: str
    """The old name, if only the name changed."""
    withheld: bool
    """Whether it is blocked until it is approved."""
    lines: Sequence[str]
    """The difference as text: `-` old, `+` new."""


class PinsReport(Report, kw_only=True):
    """The pinned definitions of a server, and the differences."""

    state: Literal["pinned", "changed", "new", "unknown", "off"]
    """`new`: nothing is pinned yet; `unknown`: the current definitions are unknown; `off`: `trust` is off."""
    tools: int
    prompts: int | None
    """The number of pinned prompts; null if they were never listed."""
    instructions: bool
    files: Sequence[Path]
    """The lock files with pins of this server."""
    changes: Sequence[ChangeReport]


class PackageReport(Report, kw_only=True):
    """The package that a command such as `npx` or `uvx` runs."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str | None
    """The version in the command; null without one."""
    exact: bool
    """Whether the command runs exactly this version."""
    installed: str | None
    """A known version; the next start may use another one."""
    found_in: str
    """The source of this version: a folder of the runner, or the server itself."""
    pin: str
    """The command that pins the version; empty if it is pinned."""


class ReviewReport(Report, kw_only=True):
    """The trust review of one server."""

    server: str
    trust: Literal["warn", "ask", "strict", "off"] | None
    """As configured; by default `ask` in a terminal, and `warn` elsewhere."""
    source: Literal["server", "cache"] | None
    """Where the definitions come from; null if they are unknown."""
    pins: PinsReport
    findings: Sequence[Finding]
    package: PackageReport | None
    error: ErrorReport | None
    """Why the server could not be queried."""


def review_report(one: Review) -> ReviewReport:
    """Return what is shown of a review."""
    return ReviewReport.of(
        one,
        server=one.spec.name,
        trust=one.spec.trust,
        source=one.offered.source if one.offered else None,
        pins=_pins_report(one),
        package=package_report(one),
        error=None if one.error is None else ErrorReport.of_error(one.error),
    )


def package_report(one: Review) -> PackageReport | None:
    """Return what is shown of a server's package."""
    from dragoman.diagnosis.review import pin_command

    package = one.package
    if package is None:
        return None
    return PackageReport.of(
        package,
        version=package.version or None,
        exact=package.is_pinned,
        installed=one.version.version if one.version else None,
        found_in=one.version.where if one.version else "",
        pin="" if package.is_pinned else pin_command(one),
    )


def _pins_report(one: Review) -> PinsReport:
    from dragoman.trust.pins import ServerPins

    pins = next(iter(one.known.values()), ServerPins())
    return PinsReport(
        state=one.state,
        tools=len(pins.tools),
        prompts=None if pins.prompts is None else len(pins.prompts),
        instructions=pins.instructions is not None,
        files=list(one.known),
        changes=_changes(one),
    )


def _changes(one: Review) -> list[ChangeReport]:
    if one.verdict is None:
        return []
    held = one.verdict.standing
    return [
        ChangeReport.of(
            change,
            withheld=held(change.name, change.kind) == "withheld" and change.what != "removed",
            lines=one.texts(change)[1:],
        )
        for change in one.verdict.changes
    ]
