"""What must hold of trust whatever comes: no secret stays, nothing harmful is shown, nothing widens, no false alarm."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from dragoman.model import Http, ServerSpec, Stdio
from dragoman.trust.approvals import fingerprint, question
from dragoman.trust.pins import compare, dump_lock, load_lock, pins_of
from dragoman.trust.policy import STRICTNESS, PolicyRequest, combine, read_policy
from dragoman.trust.redaction import Redactor, secret_values
from dragoman.trust.sanitizing import for_log, for_model, for_terminal
from dragoman.visible import is_harmful

NASTY = st.sampled_from(
    "\x00 \x07 \r \n \t \x1b \x1b[ \x1b] \x9b \x9d \x07 \u202e \u200b \u200d \u200c \ufe0f \U000e0041 \U000e007f \U000e0100 "
    "\u0301 \ud800 👩 🏽 🏴 ❤ م ی क ् 葛 ∩ 1 a ; m \\ \u180b ᠮ \u20e3".split(" ")
)
TEXTS = st.lists(NASTY | st.text(max_size=3), max_size=40).map("".join)
NAMES = st.sampled_from(["a", "b", "required", "enum", "type", "properties", "x-y"])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(TEXTS, st.none() | st.integers(0, 40))
def test_sanitising_is_idempotent_bounded_and_leaves_nothing_harmful(text: str, limit: int | None) -> None:
    for clean in (for_terminal, for_log, for_model):
        once = clean(text, limit)
        assert clean(once, limit) == once
        assert not is_harmful(once)
        assert limit is None or len(once) <= limit
    assert "\n" not in for_log(text, None)
    assert not set(for_terminal(text)) & {
        chr(number) for number in (*range(9), *range(11, 32), *range(127, 160))
    }


@given(
    st.text(
        st.characters(
            categories=["L", "N", "P", "Zs", "Sm", "Sc"], exclude_characters="\u115f\u1160\u3164\uffa0"
        ),
        max_size=60,
    )
)
def test_letters_of_every_script_stay(text: str) -> None:
    assert for_terminal(text) == for_log(text, None) == for_model(text) == text


def test_fifty_planted_secrets_are_seen_nowhere() -> None:
    chance = random.Random(6)
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+/=.:@ \"'\\é&%$#"
    planted = ["canary" + "".join(chance.choices(alphabet, k=chance.randint(8, 40))) + "z" for _ in range(50)]
    transports: list[Any] = []
    for index, secret in enumerate(planted):
        match index % 5:
            case 0:
                transports.append(Stdio("x", env={f"VARIABLE_{index}": secret}))
            case 1:
                transports.append(Stdio("x", ["--token", secret]))
            case 2:
                transports.append(Http("https://h.io/", headers={f"X-{index}": f"Bearer {secret}"}))
            case 3:
                transports.append(Http(f"https://user:{quote(secret, safe='')}@h.io/"))
            case _:
                transports.append(Http(f"https://h.io/?key={quote(secret, safe='')}"))
    redactor = Redactor(value for transport in transports for value in secret_values(transport))
    seen: list[str] = []
    for secret in planted:
        said = {
            "plain": f"failed: {secret}!",
            "json": json.dumps({"error": [secret]}),
            "nested": json.dumps({"body": json.dumps({"k": secret})}),
            "repr": repr({"k": secret}),
            "url": f"GET /x?k={quote(secret, safe='')} HTTP/1.1",
            "base64": base64.b64encode(f"user:{secret}".encode()).decode(),
            "log": for_log(redactor.mask(f"line\n{secret}")),
        }
        for kind, text in said.items():
            masked = redactor.mask(text)
            forms = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), secret[3:-3])
            if any(form in masked for form in forms) or "canary" in masked:
                seen.append(f"{kind}: {masked}")
            if kind == "base64" and base64.b64encode(secret.encode()).decode()[4:-8] in masked:
                seen.append(f"{kind}: {masked}")
    assert seen == []


def shuffled(value: Any, chance: random.Random) -> Any:
    """Return the same JSON with every order that means nothing changed."""
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {
            key: chance.sample(inner, len(inner))
            if key in ("required", "enum", "type") and isinstance(inner, list)
            else shuffled(inner, chance)
            for key, inner in items
        }
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


def test_a_thousand_restarts_with_everything_reordered_raise_no_alarm() -> None:
    real = json.loads((Path(__file__).parents[1] / "data" / "real-tools.json").read_text("utf-8"))
    listings = sorted((tools for tools in real.values() if len(tools) <= 8), key=len)[-10:]
    chance = random.Random(1)
    locks = [
        load_lock(dump_lock({"s": pins_of(tools, prompts=[], instructions="x")}))["s"] for tools in listings
    ]
    alarms = 0
    for restart in range(1_000):
        tools = listings[restart % len(listings)]
        again = [shuffled(tool, chance) for tool in chance.sample(tools, len(tools))]
        alarms += bool(compare(locks[restart % len(listings)], pins_of(again, prompts=[], instructions="x")))
    assert alarms == 0


@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_a_schema_is_changed_exactly_when_its_meaning_is(one: Any, other: Any, chance: random.Random) -> None:
    def pins(schema: Any) -> Any:
        return pins_of([{"name": "x", "inputSchema": {"v": schema}}])

    assert compare(pins(one), pins(json.loads(json.dumps(one)))) == []
    reordered = {"v": one}
    assert compare(pins(one), pins_of([{"name": "x", "inputSchema": shuffled(reordered, chance)}])) == []
    assert load_lock(dump_lock({"s": pins(one)}))["s"] == pins(one)
    changed = compare(pins(one), pins([one, other]))
    assert [change.what for change in changed] == ["changed"]


ACTIONS = st.sampled_from(["allow", "ask", "deny"])
RULES = st.lists(
    st.fixed_dictionaries(
        {"action": ACTIONS},
        optional={
            "server": st.sampled_from(["*", "fs", "g*", "x"]),
            "tool": st.sampled_from(["*", "read", "r*"]),
            "annotation": st.lists(
                st.sampled_from(["read_only", "!read_only", "destructive", "!destructive", "open_world"]),
                min_size=1,
                max_size=2,
            ),
            "arguments": st.just({"path": "/w/*"}),
        },
    ),
    max_size=4,
)
HINTS = st.dictionaries(
    st.sampled_from(["readOnlyHint", "destructiveHint", "openWorldHint", "idempotentHint"]),
    st.booleans() | st.just("yes"),
)
REQUESTS = st.builds(
    PolicyRequest,
    server=st.sampled_from(["fs", "git"]),
    tool=st.sampled_from(["read", "write"]),
    annotations=HINTS,
    arguments=st.sampled_from([{}, {"path": "/w/a"}, {"path": "/etc"}]),
)


@given(RULES, RULES, RULES, ACTIONS, ACTIONS, REQUESTS)
def test_a_project_and_hints_never_widen(
    user: list[Any], code: list[Any], project: list[Any], default: str, wish: str, request: PolicyRequest
) -> None:
    trusted: Any = [
        ("code", read_policy({"rules": code, "default": default}, scope="code")),
        ("user", read_policy(user, scope="user")),
    ]
    without = combine(trusted)
    with_project = combine(
        [*trusted, ("project", read_policy({"rules": project, "default": wish}, scope="project"))]
    )
    decided = STRICTNESS[with_project.decide(request).action]
    assert decided >= STRICTNESS[without.decide(request).action]
    bare = PolicyRequest(server=request.server, tool=request.tool, arguments=request.arguments)
    assert decided >= STRICTNESS[with_project.decide(bare).action]


@given(st.lists(TEXTS, max_size=4), st.dictionaries(st.text("ABC_", min_size=1), TEXTS, max_size=3), TEXTS)
def test_a_question_is_harmless_and_a_fingerprint_has_no_order(
    args: list[str], env: dict[str, str], name: str
) -> None:
    spec = ServerSpec(name or "x", Stdio("npx", args, env=env))
    text = question(spec, "/p")
    assert not is_harmful(text)
    assert len(text.split("\n")) == len(
        question(ServerSpec("x", Stdio("npx", ["a"] * len(args), env=dict.fromkeys(env, "v"))), "/p").split(
            "\n"
        )
    ) + text.count("\n  ! ") + ("\n  ! " in text)
    again = ServerSpec(name or "x", Stdio("npx", args, env=dict(reversed(env.items()))))
    assert fingerprint(spec) == fingerprint(again)
