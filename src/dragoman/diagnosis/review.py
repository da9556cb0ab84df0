"""Review a server for `trust show`, `trust approve` and `doctor`: pins, changes, findings, package version.

It reads files and decides nothing: a review is advice.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, TypeAlias

from dragoman.config.load import refused
from dragoman.config.packages import Installed, Package, installed, package_of
from dragoman.diagnosis.doctor import ServerListing
from dragoman.model import Stdio
from dragoman.struct import Struct
from dragoman.trust.findings import inspect_names, inspect_server
from dragoman.trust.pin_store import Pins
from dragoman.trust.pins import ANY, HOLDING, ServerPins, Verdict, describe, pins_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.findings import Finding
    from dragoman.trust.pins import PinChange

State: TypeAlias = Literal["pinned", "changed", "new", "unknown", "off"]
MOST = 5
"""Findings of one server that `doctor` prints; `trust show` prints them all."""
OWN_WORD = "what the server reports, which may differ from the package's version"


class Review(Struct, kw_only=True):
    """The review of one server."""

    spec: ServerSpec
    offered: ServerListing | None
    known: Mapping[Path, ServerPins]
    """The pins by lock file."""
    verdict: Verdict | None
    """`None` if nothing can be compared."""
    findings: Sequence[Finding] = ()
    package: Package | None = None
    version: Installed | None = None
    """The known version of the package."""
    error: DragomanError | None = None

    @property
    def state(self) -> State:
        """How the server's tools compare with its pins, as in `PinsShape`."""
        if self.spec.trust == "off":
            return "off"
        if not self.known:
            return "new"
        if self.verdict is None:
            return "unknown"
        return "changed" if self.verdict.changes else "pinned"

    @property
    def has_floating_package(self) -> bool:
        """True if the command does not name an exact version of its package."""
        return self.package is not None and not self.package.is_pinned

    def texts(self, change: PinChange) -> list[str]:
        """Return a change as lines; secrets are masked."""
        lines = describe(change)
        return [self.offered.redactor.mask(line) for line in lines] if self.offered else lines


def review(
    spec: ServerSpec, settings: Settings, offered: ServerListing | None, *, error: DragomanError | None = None
) -> Review:
    """Review a server; reads lock files and the folders of package runners."""
    root = settings.root or str(Path.cwd())
    pins = Pins(root)
    verdict = None
    findings: list[Finding] = []
    if offered is not None:
        verdict = pins.look(spec, pins_now(offered))
        if offered.source == "cache":
            # The cache lacks unusable tools, so a missing tool is not a change.
            verdict = verdict.replace(changes=[one for one in verdict.changes if one.what != "removed"])
        findings = _findings(offered)
    package = package_of(spec.transport) if isinstance(spec.transport, Stdio) else None
    version = None
    if package is not None and isinstance(spec.transport, Stdio):
        stdio = spec.transport
        if refused(settings, [spec]):
            # Do not follow paths of an unapproved entry.
            stdio = stdio.replace(env={}, cwd=None)
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


def pins_now(offered: ServerListing) -> ServerPins:
    """Return the pins for what a server offers."""
    return pins_of(
        offered.tools,
        prompts=offered.prompts,
        instructions=offered.instructions,
        hides=offered.redactor.holds,
        # The commands declare no capabilities; a cached list may come from a session that did.
        capabilities=ANY if offered.source == "cache" else "",
    )


def remembered(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, ServerListing]:
    """Return the cached lists of servers by name; nothing is started.

    A project's server that is not approved is left out.
    """
    from dragoman.storage.manifests import ManifestCache, default_folder
    from dragoman.trust.gate import Gate
    from dragoman.trust.masking import spec_key
    from dragoman.trust.pin_checker import whole

    root = settings.root or str(Path.cwd())
    redactor = Gate(settings, root=root).redactor
    cache = ManifestCache(default_folder())
    unapproved = refused(settings, specs)
    found: dict[str, ServerListing] = {}
    for spec in specs:
        entries = None if spec.name in unapproved else cache.read(spec_key(spec, root))
        if entries is not None:
            tools = [whole(head, schemas) for head, schemas in entries]
            found[spec.name] = ServerListing(tools=tools, redactor=redactor, source="cache")
    return found


def remember(settings: Settings, spec: ServerSpec, offered: ServerListing) -> None:
    """Cache what a server lists now, as every connection does."""
    from dragoman.storage.manifests import ManifestCache, default_folder
    from dragoman.tools.definition import fill_in_schemas
    from dragoman.trust.masking import spec_key

    usable = [dict(tool) for tool in offered.tools if str(tool.get("name")) not in offered.useless]
    fill_in_schemas({"tools": usable})
    key = spec_key(spec, settings.root or str(Path.cwd()))
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


def _findings(offered: ServerListing) -> list[Finding]:
    found = inspect_server(
        offered.tools, prompts=offered.prompts or (), instructions=offered.instructions or ""
    )
    return [one.replace(excerpt=offered.redactor.mask(one.excerpt)) for one in found]


# Messages


def pins_text(one: Review) -> str:
    """Describe how a server's tools compare with its pins."""
    changes = one.verdict.changes if one.verdict else ()
    match one.state:
        case "off":
            return "not checked: its `trust` is off"
        case "new":
            return "none yet: its tools are pinned at first use"
        case "unknown":
            return f"{pinned_text(one)}; current tools not loaded yet"
        case "pinned":
            if one.offered is not None and one.offered.source == "cache":
                return f"{pinned_text(one)}; unchanged at last check"
            return f"{pinned_text(one)}; unchanged"
        case _:
            what = "withheld" if one.spec.trust in HOLDING else "still enabled"
            if one.spec.trust is None:
                what = "withheld at a terminal, still enabled elsewhere,"
            return f"{pinned_text(one)}; {_number(len(changes), 'change')}, {what} until you approve"


def pinned_text(one: Review) -> str:
    """Return the number of pinned tools and prompts, as text."""
    pins = next(iter(one.known.values()), ServerPins())
    parts = [_number(len(pins.tools), "tool")]
    parts += [_number(len(pins.prompts), "prompt")] if pins.prompts else []
    parts += ["instructions"] if pins.instructions and pins.instructions.definition != {} else []
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def package_text(one: Review) -> str:
    """Describe the version of a server's package, and how to pin it."""
    package = one.package
    if package is None:
        return ""
    name = f"{package.registry} `{package.name}`"
    if package.is_pinned:
        return f"{name}: pinned to {package.version}"
    named = f"`{package.version}` is not an exact version" if package.version else "version not pinned"
    command = f"`{pin_command(one)}`"
    if one.version is None:
        return f"{name}: {named} (none found on this machine). Pin it: {command}"
    if one.version.where == OWN_WORD:
        return f"{name}: {named} ({one.version.version} is {OWN_WORD}). Pin it: {command}"
    return f"{name}: {named} ({one.version.version} is in {one.version.where}). Pin it: {command}"


def advice(one: Review) -> list[str]:
    """Return the advice of `doctor`: changes, suspicious definitions, the package version."""
    said: list[str] = []
    show = f"`dragoman trust show {quote(one.spec.name)} --refresh`"
    if one.state == "changed" and one.verdict is not None:
        count = _number(len(one.verdict.changes), "change")
        said.append(f"{count} since you approved it. Review: {show}")
    said += [str(finding) for finding in one.findings[:MOST]]
    if (more := len(one.findings) - MOST) > 0:
        said.append(f"{more} more findings. Review: {show}")
    return [*said, package_text(one)] if one.has_floating_package else said


def pin_command(one: Review) -> str:
    """Return the command that pins the version of a server's package."""
    known = one.version is not None and one.version.where != OWN_WORD
    return f"dragoman trust pin {quote(one.spec.name)}{'' if known else ' --version VERSION'}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
