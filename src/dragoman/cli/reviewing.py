"""What there is to know about trusting a server: pins, differences, findings, the version of its package.

For `trust show`, `trust approve` and `doctor` alike. It reads files and decides nothing: what it says is
advice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from dragoman.cli.installed import Installed, installed
from dragoman.cli.known import refused
from dragoman.cli.offered import Offered
from dragoman.model import Stdio
from dragoman.pin_store import Pins
from dragoman.trust.findings import inspect_names, inspect_server
from dragoman.trust.packages import package_of
from dragoman.trust.pins import ANY, HOLDING, ServerPins, Verdict, describe, pins_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.cli.shapes import (
        ChangeShape,
        ErrorShape,
        FindingShape,
        PackageShape,
        PinsShape,
        ReviewShape,
    )
    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.findings import Finding
    from dragoman.trust.packages import Package
    from dragoman.trust.pins import Change

State: TypeAlias = Literal["pinned", "changed", "new", "unknown", "off"]
MOST = 5
"""Findings of one server that `doctor` prints; `trust show` prints them all."""
OWN_WORD = "what the server says of itself, which need not be its package's version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What was found out about one server."""

    spec: ServerSpec
    offered: Offered | None
    known: Mapping[Path, ServerPins]
    """What is pinned, by lock file."""
    verdict: Verdict | None
    """`None` where nothing can be compared."""
    findings: Sequence[Finding] = ()
    package: Package | None = None
    version: Installed | None = None
    """A version of the package that is known."""
    error: DragomanError | None = None

    @property
    def state(self) -> State:
        """How its offer and its pins are to each other, as `PinsShape` has it."""
        if self.spec.trust == "off":
            return "off"
        if not self.known:
            return "new"
        if self.verdict is None:
            return "unknown"
        return "changed" if self.verdict.changes else "pinned"

    @property
    def has_floating_package(self) -> bool:
        """Whether its command starts whatever version there is."""
        return self.package is not None and not self.package.is_pinned

    def texts(self, change: Change) -> list[str]:
        """Return a difference in lines, without secrets."""
        lines = describe(change)
        return [self.offered.redactor.mask(line) for line in lines] if self.offered else lines


def review(
    spec: ServerSpec, settings: Settings, offered: Offered | None, *, error: DragomanError | None = None
) -> Review:
    """Look at a server; reads lock files and the folders of package runners."""
    root = settings.root or str(Path.cwd())
    pins = Pins(root)
    verdict = None
    findings: list[Finding] = []
    if offered is not None:
        verdict = pins.look(spec, pins_now(offered))
        if offered.source == "cache":
            # What is remembered lacks what could not be used, which is no change.
            verdict = replace(verdict, changes=[one for one in verdict.changes if one.what != "removed"])
        findings = _findings(offered)
    package = package_of(spec.transport) if isinstance(spec.transport, Stdio) else None
    version = None
    if package is not None and isinstance(spec.transport, Stdio):
        stdio = spec.transport
        if refused(settings, [spec]):
            # An entry that is not approved does not say where to look.
            stdio = replace(stdio, env={}, cwd=None)
        version = installed(package, stdio, root=root, env=os.environ)
        if version is None and offered is not None and offered.version:
            version = Installed(offered.version, OWN_WORD)
    return Review(
        spec=spec,
        offered=offered,
        known=pins.known(spec),
        verdict=verdict,
        findings=findings,
        package=package,
        version=version,
        error=error,
    )


def pins_now(offered: Offered) -> ServerPins:
    """Return the pins of what a server offers."""
    return pins_of(
        offered.tools,
        prompts=offered.prompts,
        instructions=offered.instructions,
        hides=offered.redactor.holds,
        # Nothing is declared by the commands that ask a server; what is remembered may be a session's.
        capabilities=ANY if offered.source == "cache" else "",
    )


def remembered(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, Offered]:
    """Return what servers offered last time, by name, where that is known; nothing is started.

    Of a project's server that is not approved nothing is known.
    """
    from dragoman.cache import ManifestCache, default_folder, fingerprint
    from dragoman.guard import Guard
    from dragoman.pinboard import whole

    root = settings.root or str(Path.cwd())
    redactor = Guard(settings, root=root).redactor
    cache = ManifestCache(default_folder())
    unapproved = refused(settings, specs)
    found: dict[str, Offered] = {}
    for spec in specs:
        entries = None if spec.name in unapproved else cache.read(fingerprint(spec, root))
        if entries is not None:
            tools = [whole(head, schemas) for head, schemas in entries]
            found[spec.name] = Offered(tools=tools, redactor=redactor, source="cache")
    return found


def remember(settings: Settings, spec: ServerSpec, offered: Offered) -> None:
    """Keep what a server lists now, as every connection does: else it would be shown as it was before."""
    from dragoman.cache import ManifestCache, default_folder, fingerprint
    from dragoman.tools.definition import fill_in_schemas

    usable = [dict(tool) for tool in offered.tools if str(tool.get("name")) not in offered.useless]
    fill_in_schemas({"tools": usable})
    key = fingerprint(spec, settings.root or str(Path.cwd()))
    ManifestCache(default_folder()).write(key, usable, hides=offered.redactor.holds)


def look_alikes(reviews: Iterable[Review]) -> list[Finding]:
    """Return different names that look the same: of servers, and of tools of different servers."""
    listed = list(reviews)
    names = [
        str(tool.get("name", "")) for one in listed if one.offered is not None for tool in one.offered.tools
    ]
    within = {finding.excerpt for one in listed for finding in one.findings if finding.kind == "look-alike"}
    tools = [finding for finding in inspect_names(names, field="tool") if finding.excerpt not in within]
    return [*inspect_names((one.spec.name for one in listed), field="server"), *tools]


def _findings(offered: Offered) -> list[Finding]:
    found = inspect_server(
        offered.tools, prompts=offered.prompts or (), instructions=offered.instructions or ""
    )
    return [replace(one, excerpt=offered.redactor.mask(one.excerpt)) for one in found]


# For people


def pins_text(one: Review) -> str:
    """Say in one sentence how a server's offer and its pins are to each other."""
    changes = one.verdict.changes if one.verdict else ()
    match one.state:
        case "off":
            return "its `trust` is off: changes are not looked at"
        case "new":
            return "nothing yet: what it offers at its first use is pinned"
        case "unknown":
            return f"{pinned_text(one)}; what it offers now is not known"
        case "pinned":
            if one.offered is not None and one.offered.source == "cache":
                return f"{pinned_text(one)}; its tools were so when they were listed last"
            return f"{pinned_text(one)}, and so it is now"
        case _:
            what = "withheld" if one.spec.trust in HOLDING else "offered all the same"
            if one.spec.trust is None:
                what = "withheld at a terminal and offered all the same elsewhere"
            return f"{pinned_text(one)}; {_number(len(changes), 'change')}, {what} until you approve"


def pinned_text(one: Review) -> str:
    """Say how much is pinned."""
    pins = next(iter(one.known.values()), ServerPins())
    parts = [_number(len(pins.tools), "tool")]
    parts += [_number(len(pins.prompts), "prompt")] if pins.prompts else []
    parts += ["instructions"] if pins.instructions and pins.instructions.definition != {} else []
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def package_text(one: Review) -> str:
    """Say which version of its package a server's command starts, and how to name one."""
    package = one.package
    if package is None:
        return ""
    name = f"{package.registry} `{package.name}`"
    if package.is_pinned:
        return f"{name}: {package.version} and no other"
    named = (
        f"`{package.version}` is named, which is no exact version" if package.version else "no version named"
    )
    command = _pin_command(one)
    if one.version is None:
        return f"{name}: {named}, and none is found on this machine; `{command}` names one"
    if one.version.where == OWN_WORD:
        said = f"{one.version.version} is {OWN_WORD}"
        return f"{name}: {named}; {said}; `{command}` names one"
    return f"{name}: {named}; {one.version.version} is in {one.version.where}; `{command}` names it"


def advice(one: Review) -> list[str]:
    """Return what `doctor` adds about a server: what changed, what reads like an attack, which version."""
    said: list[str] = []
    if one.state == "changed" and one.verdict is not None:
        count = _number(len(one.verdict.changes), "change")
        said.append(
            f"{count} since it was pinned: `dragoman trust show {one.spec.name} --refresh` shows what"
        )
    said += [str(finding) for finding in one.findings[:MOST]]
    if (more := len(one.findings) - MOST) > 0:
        said.append(f"{more} more like that: `dragoman trust show {one.spec.name} --refresh`")
    return [*said, package_text(one)] if one.has_floating_package else said


def _pin_command(one: Review) -> str:
    known = one.version is not None and one.version.where != OWN_WORD
    return f"dragoman trust pin {one.spec.name}{'' if known else ' --version VERSION'}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


# For programs


def review_json(one: Review) -> ReviewShape:
    """Return a review as `shapes` has it."""
    return {
        "server": one.spec.name,
        "trust": one.spec.trust,
        "source": one.offered.source if one.offered else None,
        "pins": _pins_json(one),
        "findings": [finding_json(finding) for finding in one.findings],
        "package": package_json(one),
        "error": _error_json(one.error),
    }


def _error_json(error: DragomanError | None) -> ErrorShape | None:
    return None if error is None else {"code": error.code, "message": error.message, "hint": error.hint}


def finding_json(finding: Finding) -> FindingShape:
    """Return a finding as `shapes` has it."""
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "field": finding.field,
        "excerpt": finding.excerpt,
        "why": finding.why,
    }


def package_json(one: Review) -> PackageShape | None:
    """Return a server's package as `shapes` has it."""
    package = one.package
    if package is None:
        return None
    return {
        "registry": "npm" if package.registry == "npm" else "pypi",
        "name": package.name,
        "version": package.version or None,
        "exact": package.is_pinned,
        "installed": one.version.version if one.version else None,
        "found_in": one.version.where if one.version else "",
        "pin": "" if package.is_pinned else _pin_command(one),
    }


def _pins_json(one: Review) -> PinsShape:
    pins = next(iter(one.known.values()), ServerPins())
    return {
        "state": one.state,
        "tools": len(pins.tools),
        "prompts": None if pins.prompts is None else len(pins.prompts),
        "instructions": pins.instructions is not None,
        "files": [str(path) for path in one.known],
        "changes": [_change_json(one, change) for change in (one.verdict.changes if one.verdict else ())],
    }


def _change_json(one: Review, change: Change) -> ChangeShape:
    held = one.verdict is not None and one.verdict.standing(change.name, change.kind) == "withheld"
    return {
        "kind": change.kind,
        "name": change.name,
        "what": change.what,
        "before": change.before,
        "withheld": held and change.what != "removed",
        "lines": one.texts(change)[1:],
    }
