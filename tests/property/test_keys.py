"""Each key does what its declaration says: it is read, written, compared, merged, approved, shared and shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.config.building import in_effect

from dragoman import Http, ServerSpec, Settings, Sse, Stdio
from dragoman.cli.output import spec_json
from dragoman.config.dialect import entries_at
from dragoman.config.dialects.dragoman import DRAGOMAN
from dragoman.config.documents import parse
from dragoman.config.entries import read_entries
from dragoman.config.export import entry, read_back
from dragoman.config.merge import Layer, differences, merge
from dragoman.manager.reload import diff
from dragoman.model.keys import keys, nested
from dragoman.model.server import REMOTE_KEYS, server_keys
from dragoman.server.sharing import SharedConnections
from dragoman.struct import Report, Struct, asdict, defaults, field_names
from dragoman.trust.approvals import NO_EVIDENCE, parts
from dragoman.trust.encoding import encoded
from dragoman.trust.policy import Rule, read_policy
from dragoman.trust.redaction import spec_values

if TYPE_CHECKING:
    from dragoman.config.dialect import Scope
    from dragoman.model.keys import Key

SECRET = "hunter2hunter2"
PLACES = server_keys()
WRITABLE = [place for place, key in PLACES.items() if key.in_files and place != "transport"]
IN_PARTS = {"transport", "timeouts", "auth", "tls", "tools"}
"""Their keys are looked at one by one."""
SAMPLES: dict[str, Any] = {
    "inherit_env": ["LANG"],
    "sandbox": {"level": "strict", "read": ["/srv/data"], "network": [443]},
    "naming": "{server}__{tool}",
    "attribution": {"title": "/results/*/name"},
    "limits": {"tools": 5},
    "fallback": {"read": ["other"]},
    "tools": {"read": {"name": "open", "arguments": {"token": {"value": SECRET}, "path": {"name": "file"}}}},
    "env": {"NAME": SECRET},
    "headers": {"X-Name": SECRET},
    "timeouts": {"call": 2.5},
    "auth": {"mode": "none"},
    "auth.mode": "none",
    "tls": {"verify": False},
    "url": f"https://elsewhere.test/mcp?token={SECRET}",
    "args": ["--token", SECRET],
    "command": f"npx --token {SECRET}",
}


class ShownSpecs(Report, kw_only=True):
    many: list[ServerSpec]
    by_name: dict[str, ServerSpec]
    part: Struct


def sample(place: str, key: Key) -> Any:
    """A value of the key that is not its default, as a file has it."""
    forms: dict[str, Any] = {
        "flag": not key.default,
        "choice": next((one for one in key.choices if one != key.default), None),
        "text": {"value": SECRET, "url": SAMPLES["url"]}.get(key.mask, f"some {key.field}"),
        "count": 3,
        "seconds": 2.5,
        "size": 4096,
        "names": ["one"],
    }
    return SAMPLES[place] if place in SAMPLES else forms[key.form]


def base(place: str) -> dict[str, Any]:
    outer = place.partition(".")[0]
    found = {"url": "https://h.test/mcp", "type": "http"} if outer in REMOTE_KEYS else {"command": "npx"}
    found |= {"auth": {"mode": "oauth"}} if place.startswith("auth.") else {}
    found |= {"tls": {"cert": "c.pem"}} if place.startswith("tls.") else {}
    return found


def changed(place: str) -> dict[str, Any]:
    """The entry of `base` with the sample of a key."""
    outer, _, inner = place.partition(".")
    value, fields = sample(place, PLACES[place]), base(place)
    outer = PLACES[outer].name if outer in PLACES else outer
    return fields | {outer: {**fields.get(outer, {}), inner: value} if inner else value}


def read(fields: dict[str, Any]) -> ServerSpec:
    specs, problems = read_entries({"s": fields}, DRAGOMAN)
    assert [str(problem) for problem in problems] == []
    assert [note.key for note in specs[0].notes if note.code in ("unknown", "unused")] == []
    return specs[0]


def value_at(spec: ServerSpec, place: str) -> Any:
    outer, _, inner = place.partition(".")
    found = getattr(spec if outer in field_names(ServerSpec) else spec.transport, outer)
    if not inner:
        return found
    return getattr(found, inner) if isinstance(found, Struct) else found.get(inner)


def as_data(value: Any) -> Any:
    if isinstance(value, Struct):
        return asdict(value)
    if isinstance(value, dict):
        return {name: as_data(item) for name, item in cast("dict[str, Any]", value).items()}
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else value


def pair(place: str) -> tuple[ServerSpec, ServerSpec]:
    """A server without the key and one with it."""
    return read(base(place)), read(changed(place))


@pytest.mark.parametrize("kind", [ServerSpec, Stdio, Http, Sse])
def test_every_field_is_a_key_or_tells_where_the_server_comes_from(kind: type[Struct]) -> None:
    provenance = {"name", "origin", "shadowed", "lines", "extras", "notes"}
    assert set(field_names(kind)) - set(keys(kind)) == (provenance if kind is ServerSpec else set())
    assert all(key.default == defaults(kind).get(name, key.default) for name, key in keys(kind).items())
    assert keys(Sse).keys() == keys(Http).keys()


@pytest.mark.parametrize("place", WRITABLE)
def test_a_key_is_read_and_written_back(place: str) -> None:
    plain, spec = pair(place)
    assert value_at(spec, place) != value_at(plain, place)
    if place not in IN_PARTS:
        assert as_data(value_at(spec, place)) == sample(place, PLACES[place])
    written, losses = entry(spec, DRAGOMAN)
    assert losses == []
    again = read_back("s", written, DRAGOMAN)
    assert value_at(again, place) == value_at(spec, place)


@pytest.mark.parametrize(
    ("place", "spelling", "unit"),
    [
        (place, spelling, unit)
        for place, key in PLACES.items()
        for spellings, unit in ((key.spellings, 1), (key.milliseconds, 1000))
        for spelling in spellings
        if place != "transport"
    ],
)
def test_another_name_of_a_key_says_the_same(place: str, spelling: str, unit: int) -> None:
    value = sample(place, PLACES[place])
    fields = {name: item for name, item in base(place).items() if name != place}
    spec = read(fields | {spelling: value * unit if unit > 1 else value})
    assert value_at(spec, place) == value_at(read(changed(place)), place)


def test_the_type_and_the_contrary_of_a_key_are_read() -> None:
    for spelling in ("transport", *PLACES["transport"].spellings):
        assert isinstance(read({"url": "https://h.test/sse", spelling: "sse"}).transport, Sse)
    opposites = {key.opposite: place for place, key in PLACES.items() if key.opposite}
    for opposite, place in opposites.items():
        assert value_at(read({"command": "npx", opposite: True}), place) is False


@pytest.mark.parametrize("place", WRITABLE)
def test_a_key_of_a_weaker_file_fills_in_and_that_of_a_stronger_one_wins(place: str) -> None:
    def layer(fields: dict[str, Any], scope: Scope) -> Layer:
        document = parse(json.dumps({"mcpServers": {"s": fields}}), scope, "json")
        entries = entries_at(document, ("mcpServers",))
        return Layer(document=document, dialect=DRAGOMAN, scope=scope, entries=entries)

    weak, strong = changed(place), base(place)
    outer, _, inner = place.partition(".")
    filled = in_effect(merge([layer({}, "local"), layer(weak, "user")], "fields")).servers[0]
    assert value_at(filled, place) == value_at(read(weak), place)
    if inner not in strong.get(outer, ()) if inner else outer not in strong:
        found = in_effect(merge([layer(strong, "local"), layer(weak, "user")], "fields")).servers[0]
        assert value_at(found, place) == value_at(read(weak), place)
    found = in_effect(merge([layer(weak, "local"), layer(strong, "user")], "fields")).servers[0]
    assert value_at(found, place) == value_at(read(weak), place)
    alone = in_effect(merge([layer(strong, "local"), layer(weak, "user")], "replace")).servers[0]
    assert value_at(alone, place) == value_at(read(strong), place)


@pytest.mark.parametrize("place", WRITABLE)
def test_a_change_of_a_key_is_seen_and_restarts_as_declared(place: str) -> None:
    plain, spec = pair(place)
    assert differences(plain, plain, "") == {}
    assert {found.partition(".")[0] for found in differences(plain, spec, "")} <= {
        place.partition(".")[0],
        "transport" if place == "alternate" else place.partition(".")[0],
    }
    assert differences(plain, spec, "")
    if place == "enabled":
        return  # a server that is switched off is stopped
    plan = diff(Settings(servers=[plain]), Settings(servers=[spec]))
    restarts = PLACES["timeouts.call"].restarts if place == "timeouts" else PLACES[place].restarts
    assert (list(plan.restart), list(plan.adjust)) == ((["s"], []) if restarts else ([], ["s"]))


@pytest.mark.parametrize("place", WRITABLE)
def test_a_key_is_approved_as_declared(place: str) -> None:
    plain, spec = pair(place)
    outer = place.partition(".")[0]
    is_approved = PLACES[place].is_approved and PLACES[outer].is_approved
    assert (parts(plain, NO_EVIDENCE) != parts(spec, NO_EVIDENCE)) is is_approved


@pytest.fixture
def env_file() -> None:
    """Write the env file of the sample."""
    Path("one").write_text("A=b\n", "utf-8")


@pytest.mark.usefixtures("env_file")
@pytest.mark.parametrize("place", [place for place in WRITABLE if place.partition(".")[0] not in REMOTE_KEYS])
async def test_a_key_decides_who_shares_a_process_as_declared(place: str) -> None:
    shared = SharedConnections()
    plain, spec = (one.replace(share=None) for one in pair(place))
    one = await shared.key(plain, plain.transport, {}, None)
    other = await shared.key(spec, spec.transport, {}, None)
    assert one is not None
    assert (one != other) is (PLACES[place].is_of_process or place in keys(Stdio))


@pytest.mark.parametrize("place", WRITABLE)
def test_a_key_is_shown_unless_it_is_the_default_and_never_with_a_secret(place: str) -> None:
    plain, spec = (spec_json(one) for one in pair(place))
    outer, _, inner = place.partition(".")
    key = PLACES[place]
    outer = PLACES[outer].name if outer in PLACES else outer
    before = (plain.get(outer) or {}).get(inner) if inner else plain.get(outer)
    after = spec[outer][inner] if inner else spec[outer]
    assert before != after
    assert SECRET not in json.dumps(spec)
    if not key.mask and place not in IN_PARTS:
        assert after == sample(place, key)
    assert json.loads(json.dumps(spec)) == spec


@pytest.mark.parametrize("place", [place for place, key in PLACES.items() if key.mask])
def test_a_mark_masks_its_field_however_the_spec_is_shown(place: str) -> None:
    spec = read(changed(place))
    assert SECRET in pickle.dumps(spec).decode("latin-1")
    ways = [
        encoded(spec),
        encoded(ShownSpecs(many=[spec], by_name={"s": spec}, part=spec.transport)),
        repr(spec),
    ]
    assert [SECRET in json.dumps(way) for way in ways] == [False, False, False]
    assert encoded(spec)["transport"] == encoded(spec.transport)


def test_keys_that_mean_nothing_are_masked_whole() -> None:
    spec = ServerSpec("s", Stdio("npx"), extras={"apiToken": SECRET, "more": {"x": [SECRET]}})
    assert SECRET not in json.dumps(encoded([spec])) + repr(spec)
    assert encoded(spec)["extras"].keys() == {"apiToken", "more"}


@pytest.mark.parametrize("place", PLACES)
def test_a_default_is_shown_only_where_declared(place: str) -> None:
    outer, _, inner = place.partition(".")
    key = PLACES[place]
    shown = spec_json(read(base(place)))
    if place == "transport" or outer in base(place) or inner:
        return
    assert (outer in shown) is key.is_always_shown


@pytest.mark.parametrize("place", [place for place in WRITABLE if PLACES[place].is_private])
def test_an_error_never_shows_a_private_value(place: str) -> None:
    outer, _, inner = place.partition(".")
    wrong = {"secret": [SECRET]} if outer in ("args", "command", "url") else {"": {"secret": SECRET}}
    fields = base(place) | {outer: {inner: wrong} if inner else wrong}
    specs, problems = read_entries({"s": fields}, DRAGOMAN)
    assert SECRET not in " ".join(map(str, problems))
    assert (specs, len(problems)) == ([], 1) or outer in ("auth",)


def test_the_secrets_of_a_login_are_masked_everywhere() -> None:
    secrets = [place for place, key in nested(ServerSpec).items() if key.mask == "value"]
    assert len(secrets) == 5
    for place in secrets:
        spec = read(changed(place))
        assert SECRET in spec_values(spec, on_disk=False), place
        assert SECRET not in repr(spec), place


@pytest.mark.parametrize("name", keys(Settings))
def test_a_setting_is_read_and_merged_as_declared(name: str) -> None:
    key = keys(Settings)[name]
    samples: dict[str, Any] = {
        "policy": [{"action": "deny", "tool": "x"}],
        "limits": {"tools": 5},
        "toolsets": {"review": {"tools": ["fs:read_*"]}},
        "approval_webhook": {"address": "https://h.test/hook", "secret": "a secret of the user's own"},
    }
    value = samples[name] if name in samples else SAMPLES.get(name, sample(name, key))

    def layer(table: dict[str, Any], source: str) -> Layer:
        document = parse(json.dumps({"mcp": table}), source, "json")
        patch = DRAGOMAN.patch(document, "")
        assert list(patch.problems) == []
        return Layer(document=document, dialect=DRAGOMAN, scope="user", entries=[], patch=patch)

    found = getattr(in_effect(merge([layer({}, "a"), layer({name: value}, "b")], "replace")), name)
    if key.layers == "every":
        twice = in_effect(merge([layer({name: value}, "a"), layer({name: value}, "b")], "replace"))
        assert [one.data for one in found] == [value]
        assert [one.source for one in getattr(twice, name)] == ["a", "b"]
    else:
        assert found == value != key.default
    assert ("mcp", name) in [tuple(path) for path in DRAGOMAN.settings]


@pytest.mark.parametrize("field", keys(Rule))
def test_a_key_of_a_rule_is_read(field: str) -> None:
    key = keys(Rule)[field]
    samples: dict[str, Any] = {"annotation": ["read_only"], "arguments": {"path": "/srv/*"}}
    value = samples[key.name] if key.name in samples else sample(key.name, key)
    read = read_policy([{"action": "allow", key.name: value}], scope="user")
    assert list(read.problems) == []
    (plain,) = read_policy([{"action": "ask" if field == "action" else "allow"}], scope="user").rules
    assert getattr(read.rules[0], field) != (plain.action if field == "action" else key.default)
