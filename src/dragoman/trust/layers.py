"""Decide what is in effect: the user's own configuration, and the approved parts of a project's files.

A project's file that is not approved can only make things stricter for the user's own servers: it can ask
about or deny more calls. It cannot replace, change, disable, rename or hide a server of the user's, nor its
limits, log or health checks: that would not be stricter, only different.

Everything is merged twice, with the project's files and without them (`Layers`). If the project's definition
of a server is approved, the first merge counts, else the second. A server that only the project defines is
listed, and refused when it is used. The project's settings take effect when they are approved as a whole, by
their content. Three kinds of settings are different:

- Rules about calls apply at once, since a project's rules can only ask or deny. Until they are approved, none
  of their text reaches a model or a person.
- Limits apply at once to the project's own servers, and to all others after the approval.
- Inputs belong to the side that defines them: a user's server never sees a project's inputs, nor vice versa.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Note, Settings, Statement
from dragoman.model.keys import keys
from dragoman.storage.files import project_root
from dragoman.struct import Struct, asdict
from dragoman.trust.sanitizing import for_log, unfolded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dragoman.model import Input, Layers, ServerSpec, Source
    from dragoman.model.keys import Key
    from dragoman.trust.policy import ReadPolicy

SETTINGS = ""
"""The name under which the approval of a project's settings is stored; no server can have it."""
HIDES = "hides"
"""The setting for a project's file that is read instead of the user's, if only the first file counts."""
_SHOWN = 300


def comes_from_project(spec: ServerSpec, *, by_field: bool = False) -> bool:
    """Return whether a project's file contributes to a server.

    Args:
        spec: The server.
        by_field: Whether weaker definitions fill in missing fields, as some hosts do.
    """
    origins = (spec.origin, *spec.shadowed) if by_field else (spec.origin,)
    return any(origin.scope == "project" for origin in origins)


def with_program(text: str, settings: Settings) -> str:
    """Return a text whose `dragoman trust …` commands read the configuration of these settings."""
    words = [] if settings.profile == Settings().profile else ["--profile", settings.profile]
    words += [word for one in settings.sources if one.scope == "session" for word in ("--config", one.path)]
    return re.sub(r"\bdragoman (?=trust\b)", lambda _: f"{shlex.join(['dragoman', *words])} ", text)


def as_read(settings: Settings) -> Settings:
    """Return the settings of all files together; `effective` then decides what applies."""
    layers = settings.layers
    return (
        settings
        if layers is None
        else _decided(settings, layers).replace(layers=layers, trusts_project=False)
    )


def effective(settings: Settings, *, refused: Collection[str], trusts_settings: bool) -> Settings:
    """Return the settings in effect.

    Changes that an application made to the settings after reading them are kept.

    Args:
        settings: The settings as read; settings that are decided already come back unchanged.
        refused: Names of the project's servers that are not approved in their current form.
        trusts_settings: Whether the project's settings are approved in their current form.
    """
    layers = settings.layers
    if layers is None:
        return settings
    if not has_project(settings):
        return settings.replace(layers=None, trusts_project=trusts_settings)
    everything = _decided(settings, layers)
    found = _decided(settings, layers, refused=refused, trusts_settings=trusts_settings)
    changed = {
        name: getattr(settings, name)
        for name in ("servers", "inputs", *keys(Settings))
        if getattr(settings, name) != getattr(everything, name)
    }
    return found.replace(**changed)


def _decided(
    settings: Settings, layers: Layers, *, refused: Collection[str] = (), trusts_settings: bool = True
) -> Settings:
    counted = [one for one in layers.statements if trusts_settings or one.scope != "project"]
    chosen, unapproved = _servers(layers, settings, refused, trusts_settings=trusts_settings)
    sources = _sources(settings, layers, trusts_settings=trusts_settings)
    # A file that is named may also be one of the profile's own, which are hidden then.
    hidden = {one.path for one in sources if one.status == "hidden"}
    hidden -= {one.path for one in sources if one.status in ("loaded", "broken")}
    return settings.replace(
        servers=_switched(chosen, settings, counted),
        inputs=_inputs(layers.statements),
        **{name: _combined(key, layers, counted) for name, key in keys(Settings).items()},
        sources=sources,
        problems=[one for one in layers.problems if getattr(one, "source", "") not in hidden],
        warnings=[one for one in layers.warnings if getattr(one, "source", "") not in hidden],
        layers=None,
        unapproved=unapproved,
        project=project_statements(settings),
        trusts_project=trusts_settings,
    )


def _combined(key: Key, layers: Layers, counted: Sequence[Statement]) -> Any:
    """Return the value of a setting, of which the strongest file decides, or all that files say of it."""
    if key.layers == "every":
        return [one for one in layers.statements if one.key == key.field]
    if key.is_users_own:
        counted = [one for one in counted if one.scope != "project"]
    said = _strongest(counted, key.field)
    usual = layers.naming if key.field == "naming" else key.default
    return usual if said is None else said


def of_project(spec: ServerSpec, settings: Settings) -> bool:
    """Return whether a file of the project contributes to a server."""
    return comes_from_project(spec, by_field=settings.by_field)


def has_project(settings: Settings) -> bool:
    """Return whether the project's files change anything in settings that are not decided yet."""
    layers = settings.layers
    if layers is None:
        return False
    order = [[spec.name for spec in specs] for specs in (layers.servers, layers.own)]
    return order[0] != order[1] or bool(in_question(settings) or project_statements(settings))


def in_question(settings: Settings) -> list[ServerSpec]:
    """Return every definition that the project contributes to, including those not in effect."""
    if settings.layers is not None:
        return [spec for spec in settings.layers.servers if of_project(spec, settings)]
    return [*(spec for spec in settings.servers if of_project(spec, settings)), *settings.unapproved]


def project_statements(settings: Settings) -> list[Statement]:
    """Return the project's settings that a person may approve, in effect or not."""
    layers = settings.layers
    if layers is None:
        return list(settings.project)
    found = [one for one in layers.statements if one.scope == "project" and one.key != "inputs"]
    names = {spec.name for spec in layers.servers}
    hides = sorted({spec.origin.source for spec in layers.own if spec.name not in names})
    first = next((one.path for one in settings.sources if one.status == "loaded"), "")
    if not (layers.first_only and hides):
        return found
    return [*found, Statement(key=HIDES, data=hides, source=first, scope="project", line=1)]


def without_effect(settings: Settings) -> list[Statement]:
    """Return the project's settings that are not in effect because they are not approved."""
    return [] if settings.trusts_project else [one for one in settings.project if one.key != "policy"]


def _servers(
    layers: Layers, settings: Settings, refused: Collection[str], *, trusts_settings: bool
) -> tuple[list[ServerSpec], list[ServerSpec]]:
    """Choose one definition of each name; also return the project's that are not in effect."""
    own = {spec.name: spec for spec in layers.own}
    whole = {spec.name: spec for spec in layers.servers}
    # The project's servers come last, so that they do not change the order of the others.
    names = whole if trusts_settings else {**own, **whole}
    chosen: list[ServerSpec] = []
    unapproved: list[ServerSpec] = []
    for name in names:
        theirs, mine = whole.get(name), own.get(name)
        if mine is None or theirs is None:
            chosen += [one for one in (mine, theirs) if one is not None]
        elif not of_project(theirs, settings):
            chosen.append(theirs if trusts_settings else mine)
        elif name not in refused:
            chosen.append(theirs)
        else:
            unapproved.append(theirs)
            note = Note(code="conflict", key="", message=name_conflict(theirs))
            chosen.append(mine.replace(notes=[*mine.notes, note]))
    return chosen, unapproved


def name_conflict(theirs: ServerSpec) -> str:
    """Return the note that a project's definition of a user's server is not in effect."""
    name, where = for_log(theirs.name, 100), for_log(str(theirs.origin), _SHOWN)
    return (
        f"the project's file {where} also defines `{name}`; it is not approved and not in effect. "
        f"Review: dragoman trust approve {shlex.quote(name)}"
    )


def _sources(settings: Settings, layers: Layers, *, trusts_settings: bool) -> Sequence[Source]:
    """Use a user's file that only a project's file hides, until the project's settings are approved."""
    if not layers.first_only or trusts_settings:
        return settings.sources
    found: list[Source] = []
    for source in settings.sources:
        seen = any(one.scope != "project" and one.status == "loaded" for one in found)
        hides = source.status == "hidden" and source.scope != "project" and not seen
        found.append(source.replace(status="loaded") if hides else source)
    return found


def _strongest(statements: Iterable[Statement], key: str) -> Any:
    return next((one.data for one in statements if one.key == key), None)


def _inputs(statements: Iterable[Statement]) -> list[Input]:
    """Return the inputs of both sides, the strongest of each id."""
    found: dict[tuple[bool, str], Input] = {}
    for one in statements:
        for item in cast("Sequence[Input]", one.data) if one.key == "inputs" else ():
            found.setdefault((item.scope == "project", item.id), item)
    return list(found.values())


def _switched(
    specs: Iterable[ServerSpec], settings: Settings, counted: Sequence[Statement]
) -> list[ServerSpec]:
    """Disable excluded servers; a project's list always applies to its own servers."""
    every = settings.layers.statements if settings.layers else counted
    lists = {theirs: _lists(every if theirs else counted) for theirs in (True, False)}
    found: list[ServerSpec] = []
    for spec in specs:
        only, without = lists[of_project(spec, settings)]
        off = "not on the list of allowed servers" if only is not None and spec.name not in only else ""
        off = "on the list of excluded servers" if spec.name in without else off
        if off and spec.enabled:
            note = Note(code="unused", key="", message=f"off: {off}")
            found.append(spec.replace(enabled=False, notes=[*spec.notes, note]))
        else:
            found.append(spec)
    return found


def _lists(statements: Sequence[Statement]) -> tuple[Collection[str] | None, Collection[str]]:
    only = cast("Sequence[str] | None", _strongest(statements, "only_servers"))
    without = {name for one in statements if one.key == "without_servers" for name in one.data}
    return None if only is None else set(only), without


# Inputs


def inputs_of(spec: ServerSpec, settings: Settings) -> dict[str, Input]:
    """Return the inputs that a server may use, by id: only those of its own side."""
    theirs = of_project(spec, settings)
    return {item.id: item for item in settings.inputs if (item.scope == "project") == theirs}


def answers_of(spec: ServerSpec, settings: Settings, root: str) -> str:
    """Return whose answers a server gets from the store: its project's, or those of the user (empty)."""
    return project_root(root or settings.root) if of_project(spec, settings) else ""


def answers_for(
    spec: ServerSpec,
    settings: Settings,
    given: Mapping[str, str],
    taken: Collection[str] = (),
    *,
    kept: Mapping[str, str],
) -> dict[str, str]:
    """Return the values of a server's inputs: the defaults of its side, kept answers and the given ones.

    Args:
        spec: The server.
        settings: The configuration.
        given: Answers by id.
        taken: Ids that the user's own servers use: an answer by such an id is only for those servers.
        kept: The answers that the user gave earlier for this side.
    """
    known = inputs_of(spec, settings)
    values = {name: item.default for name, item in known.items() if item.default is not None} | dict(kept)
    if not of_project(spec, settings):
        return values | dict(given)
    return values | {name: text for name, text in given.items() if name not in taken}


# Approval of the settings


def settings_fingerprint(statements: Iterable[Statement]) -> str:
    """Return a hash of a project's settings; the order of keys does not matter."""
    import hashlib  # late: most projects have no such settings

    rows = sorted(
        json.dumps([one.source, one.key, one.data], sort_keys=True, default=_plain) for one in statements
    )
    return f"sha256:{hashlib.sha256(json.dumps(rows).encode('utf-8', 'surrogatepass')).hexdigest()}"


def settings_question(statements: Sequence[Statement], root: str) -> str:
    """Return the text that a person reviews before approving the project's settings, on many lines."""
    lines = [f"The project {unfolded(root)} wants to apply its settings to your own servers too:", ""]
    for one in statements:
        lines.append(f"  {settings_text(one)}")
        if one.key == "policy":
            lines.append(
                "    (its rules apply already: they can only ask or deny; their text is shown after approval)"
            )
    return "\n".join(lines)


def settings_text(one: Statement, most: int | None = None) -> str:
    """Return one setting on a line, with its place; in full unless a limit is given."""
    place = f"{one.source}:{one.line}" if one.line else one.source
    what = f"{one.pointer or one.key} = {json.dumps(one.data, ensure_ascii=False, default=_plain)}"
    if one.key == HIDES:
        what = f"read instead of {', '.join(cast('list[str]', one.data))}"
    text = unfolded(f"{place}: {what}")
    return text if most is None else for_log(text, most)


def settings_summary(statements: Sequence[Statement]) -> str:
    """Return the names of a project's settings on one line, for logs and the store."""
    named = dict.fromkeys(one.key.replace("_", " ") for one in statements)
    return f"settings: {', '.join(named)}"


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return asdict(value)
    return list(cast("Iterable[object]", value)) if isinstance(value, set | frozenset | tuple) else str(value)


# Rules about calls


def silenced(read: ReadPolicy, source: str) -> ReadPolicy:
    """Return a project's rules without their text: no text of an unapproved file reaches a model."""
    file = for_log(source.replace("\\", "/").rpartition("/")[2], 100)
    rules = [
        rule.replace(
            name=f"rule {number} of {file}",
            reason=f"a rule of the project's file {file}",
            source=for_log(rule.source.replace("\\", "/").rpartition("/")[2], 100),
        )
        for number, rule in enumerate(read.rules, 1)
    ]
    return read.replace(rules=rules)


def project_servers(settings: Settings, specs: Iterable[ServerSpec]) -> list[ServerSpec]:
    """Return the servers that a file of the project contributes to."""
    return [spec for spec in specs if comes_from_project(spec, by_field=settings.by_field)]
