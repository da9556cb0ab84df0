"""What is in effect: the user's own configuration, and what of a project's files a person has approved.

The rule: a project's file that is not approved can only make things stricter for the user's own servers. It
takes no call that the user's configuration does not allow, and asks or denies more of them. It does not
replace, change, disable, rename or hide a server of the user's, nor its limits, its log or its health checks:
that would not be stricter, only different.

How: everything is merged twice, with the project's files and without them (`Layers`). For a server in which
the project has a say, the first counts where its definition is approved, else the second; a server that only
the project has is listed, and refused when it is used. Settings count where the project's settings are
approved as a whole, by their content. Three matters are not switches:

- Rules about calls hold at once, since a project's rules can only ask or deny; before the approval nothing of
  their wording reaches a model or a person.
- Limits hold at once for the project's own servers, and for all others after the approval.
- Inputs belong to the side that defines them: a user's server never sees a project's, nor vice versa.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Note, Statement
from dragoman.trust.sanitize import for_log, unfolded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dragoman.model import Input, Layers, ServerSpec, Settings, Source
    from dragoman.trust.policy import ReadPolicy

SETTINGS = ""
"""The name under which an approval of a project's settings is kept; no server can have it."""
HIDES = "hides"
"""The matter of a project's file that is read instead of the user's, where only the first file counts."""
_SHOWN = 300


def comes_from_project(spec: ServerSpec, *, by_field: bool = False) -> bool:
    """Return whether a project's file has a say in a server.

    Args:
        spec: The server.
        by_field: Whether weaker definitions fill in what the winning one leaves out, as some hosts do.
    """
    origins = (spec.origin, *spec.shadowed) if by_field else (spec.origin,)
    return any(origin.scope == "project" for origin in origins)


def as_read(settings: Settings) -> Settings:
    """Return settings that say what all files say together; what holds of it is still to be decided."""
    layers = settings.layers
    return (
        settings
        if layers is None
        else replace(_decided(settings, layers), layers=layers, trusts_project=False)
    )


def effective(settings: Settings, *, refused: Collection[str], trusts_settings: bool) -> Settings:
    """Return the settings that hold.

    What an application has changed in what was read is its own decision, and stays.

    Args:
        settings: As they were read; those that are decided already come back as they are.
        refused: Names of the project's servers that are not approved as they are now.
        trusts_settings: Whether the project's settings are approved as they are now.
    """
    layers = settings.layers
    if layers is None:
        return settings
    if not has_project(settings):
        return replace(settings, layers=None, trusts_project=trusts_settings)
    everything = _decided(settings, layers)
    found = _decided(settings, layers, refused=refused, trusts_settings=trusts_settings)
    changed = {
        name: getattr(settings, name)
        for name in _OF_FILES
        if getattr(settings, name) != getattr(everything, name)
    }
    return replace(found, **changed)


_OF_FILES = (
    *("servers", "enabled", "auto_reload", "call_log", "health_check_interval", "naming", "inputs", "policy"),
    "limits",
)


def _decided(
    settings: Settings, layers: Layers, *, refused: Collection[str] = (), trusts_settings: bool = True
) -> Settings:
    counted = [one for one in layers.statements if trusts_settings or one.scope != "project"]
    chosen, unapproved = _servers(layers, settings, refused, trusts_settings=trusts_settings)
    sources = _sources(settings, layers, trusts_settings=trusts_settings)
    hidden = {source.path for source in sources if source.status == "hidden"}
    return replace(
        settings,
        servers=_switched(chosen, settings, counted),
        enabled=_strongest(counted, "enabled") is not False,
        auto_reload=_strongest(counted, "auto_reload") is True,
        call_log=_strongest(counted, "call_log") is True,
        health_check_interval=_strongest(counted, "health_check_interval") or 30.0,
        naming=_strongest(counted, "naming") or layers.naming,
        inputs=_inputs(layers.statements),
        policy=[one for one in layers.statements if one.key == "policy"],
        limits=[one for one in layers.statements if one.key == "limits"],
        sources=sources,
        problems=[one for one in layers.problems if getattr(one, "source", "") not in hidden],
        layers=None,
        unapproved=unapproved,
        project=project_statements(settings),
        trusts_project=trusts_settings,
    )


def of_project(spec: ServerSpec, settings: Settings) -> bool:
    """Return whether a file of the project has a say in a server."""
    return comes_from_project(spec, by_field=settings.by_field)


def has_project(settings: Settings) -> bool:
    """Return whether the project's files make any difference to settings that are not decided yet."""
    layers = settings.layers
    if layers is None:
        return False
    order = [[spec.name for spec in specs] for specs in (layers.servers, layers.own)]
    return order[0] != order[1] or bool(in_question(settings) or project_statements(settings))


def in_question(settings: Settings) -> list[ServerSpec]:
    """Return every definition in which the project has a say, those that are not in effect included."""
    if settings.layers is not None:
        return [spec for spec in settings.layers.servers if of_project(spec, settings)]
    return [*(spec for spec in settings.servers if of_project(spec, settings)), *settings.unapproved]


def project_statements(settings: Settings) -> list[Statement]:
    """Return the project's settings that a person may approve, whether they are in effect or not."""
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
    """Return the project's settings that do not count for the user's servers, for want of an approval."""
    return [] if settings.trusts_project else [one for one in settings.project if one.key != "policy"]


def _servers(
    layers: Layers, settings: Settings, refused: Collection[str], *, trusts_settings: bool
) -> tuple[list[ServerSpec], list[ServerSpec]]:
    """Choose one definition of each name; also return the project's that are not in effect."""
    own = {spec.name: spec for spec in layers.own}
    whole = {spec.name: spec for spec in layers.servers}
    # What the project adds comes last, so that it changes nothing about the order of the others.
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
            note = Note(code="conflict", key="", message=rivalry(theirs))
            chosen.append(replace(mine, notes=[*mine.notes, note]))
    return chosen, unapproved


def rivalry(theirs: ServerSpec) -> str:
    """Say that a project defines a server which the user has too, and that this is not in effect."""
    name, where = for_log(theirs.name, 100), for_log(str(theirs.origin), _SHOWN)
    return (
        f"the project's file {where} defines `{name}` too; that is not approved and not in effect: "
        f"`dragoman trust approve {name}` shows it and asks"
    )


def _sources(settings: Settings, layers: Layers, *, trusts_settings: bool) -> Sequence[Source]:
    """Let a file that only a project's file hides count, until the project's settings are approved."""
    if not layers.first_only or trusts_settings:
        return settings.sources
    found: list[Source] = []
    for source in settings.sources:
        seen = any(one.scope != "project" and one.status == "loaded" for one in found)
        hides = source.status == "hidden" and source.scope != "project" and not seen
        found.append(replace(source, status="loaded") if hides else source)
    return found


def _strongest(statements: Iterable[Statement], key: str) -> Any:
    return next((one.data for one in statements if one.key == key), None)


def _inputs(statements: Iterable[Statement]) -> list[Input]:
    """Return the inputs of either side, the strongest of each id."""
    found: dict[tuple[bool, str], Input] = {}
    for one in statements:
        for item in cast("Sequence[Input]", one.data) if one.key == "inputs" else ():
            found.setdefault((item.scope == "project", item.id), item)
    return list(found.values())


def _switched(
    specs: Iterable[ServerSpec], settings: Settings, counted: Sequence[Statement]
) -> list[ServerSpec]:
    """Switch off what the lists of the files exclude; a project's list always counts for its own servers."""
    every = settings.layers.statements if settings.layers else counted
    lists = {theirs: _lists(every if theirs else counted) for theirs in (True, False)}
    found: list[ServerSpec] = []
    for spec in specs:
        only, without = lists[of_project(spec, settings)]
        off = "it is not on the list of allowed servers" if only is not None and spec.name not in only else ""
        off = "it is on the list of excluded servers" if spec.name in without else off
        if off and spec.enabled:
            note = Note(code="unused", key="", message=f"off: {off}")
            found.append(replace(spec, enabled=False, notes=[*spec.notes, note]))
        else:
            found.append(spec)
    return found


def _lists(statements: Sequence[Statement]) -> tuple[Collection[str] | None, Collection[str]]:
    only = cast("Sequence[str] | None", _strongest(statements, "only_servers"))
    without = {name for one in statements if one.key == "without_servers" for name in one.data}
    return None if only is None else set(only), without


# Inputs


def inputs_of(spec: ServerSpec, settings: Settings) -> dict[str, Input]:
    """Return the inputs that a server may ask for, by id: those of its own side alone."""
    theirs = of_project(spec, settings)
    return {item.id: item for item in settings.inputs if (item.scope == "project") == theirs}


def answer_key(spec: ServerSpec, settings: Settings, name: str) -> str:
    """Return the key of an answer: what is typed for a project's server is not for the user's, nor back."""
    return f"\0project\0{name}" if of_project(spec, settings) else name


def answers_for(
    spec: ServerSpec, settings: Settings, given: Mapping[str, str], taken: Collection[str] = ()
) -> dict[str, str]:
    """Return the values of a server's inputs: the defaults of its side, and what was answered for it.

    Args:
        spec: The server.
        settings: What the configuration says.
        given: Answers by id, or by `answer_key`.
        taken: Ids that the user's own servers use: a plain answer to one of them is for those alone.
    """
    known = inputs_of(spec, settings)
    values = {name: item.default for name, item in known.items() if item.default is not None}
    if not of_project(spec, settings):
        return values | dict(given)
    mark = answer_key(spec, settings, "")
    plain = {name: text for name, text in given.items() if name not in taken}
    return (
        values | plain | {key.removeprefix(mark): text for key, text in given.items() if key.startswith(mark)}
    )


# Approval of the settings


def settings_fingerprint(statements: Iterable[Statement]) -> str:
    """Return a hash of a project's settings; the order of keys does not matter."""
    import hashlib  # late: most folders have no such settings

    rows = sorted(
        json.dumps([one.source, one.key, one.data], sort_keys=True, default=_plain) for one in statements
    )
    return f"sha256:{hashlib.sha256(json.dumps(rows).encode('utf-8', 'surrogatepass')).hexdigest()}"


def settings_question(statements: Sequence[Statement], root: str) -> str:
    """Return everything that a person has to see before the project's settings count, on many lines."""
    lines = [f"the project {unfolded(root)} wants its settings to count for your own servers too:", ""]
    for one in statements:
        lines.append(f"  {settings_text(one)}")
        if one.key == "policy":
            lines.append(
                "    (its rules hold already: they only ask or deny; what they say is shown after a yes)"
            )
    return "\n".join(lines)


def settings_text(one: Statement, most: int | None = None) -> str:
    """Return one setting on a line: what it says, and where; whole unless that is bounded."""
    place = f"{one.source}:{one.line}" if one.line else one.source
    what = f"{one.pointer or one.key} = {json.dumps(one.data, ensure_ascii=False, default=_plain)}"
    if one.key == HIDES:
        what = f"it is read instead of {', '.join(cast('list[str]', one.data))}"
    text = unfolded(f"{place}: {what}")
    return text if most is None else for_log(text, most)


def settings_summary(statements: Sequence[Statement]) -> str:
    """Return which settings a project has, on one line: for logs and for the store."""
    named = dict.fromkeys(one.key.replace("_", " ") for one in statements)
    return f"settings: {', '.join(named)}"


def _plain(value: object) -> object:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(cast("Any", value))
    return list(cast("Iterable[object]", value)) if isinstance(value, set | frozenset | tuple) else str(value)


# Rules about calls


def silenced(read: ReadPolicy, source: str) -> ReadPolicy:
    """Return a project's rules without their wording: nothing of an unapproved file reaches a model."""
    file = for_log(source.replace("\\", "/").rpartition("/")[2], 100)
    rules = [
        replace(rule, name=f"rule {number} of {file}", reason=f"a rule of the project's file {file}")
        for number, rule in enumerate(read.rules, 1)
    ]
    return replace(read, rules=rules)
