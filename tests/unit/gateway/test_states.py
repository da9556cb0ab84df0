"""What a client carries between two rounds: it cannot be read, changed, or used for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway import states
from dragoman.gateway.request import ClientRequest
from dragoman.gateway.states import State, States
from dragoman.server.protocol.envelope import MCPError

CALL: dict[str, Any] = {"name": "erase", "arguments": {"b": [1, {"x": "é"}], "a": None}}


def request(method: str = "tools/call", principal: str = "ann", **params: Any) -> ClientRequest:
    message = {"id": 1, "method": method, "params": {**CALL, **params}}
    return ClientRequest(message, version="2026-07-28", capabilities={}, put=print, principal=principal)


def test_a_state_comes_back_as_it_was_and_the_order_of_keys_does_not_count() -> None:
    sealer = States(["k" * 32])
    state = State(server="the server's own", held="held")
    sealed = sealer.seal(state, request(), "s")
    assert "server" not in sealed
    again = request(arguments={"a": None, "b": [1, {"x": "é"}]})
    assert States(["n" * 32, "k" * 32]).open(sealed, again, "s")._replace(approved=()) == state


@pytest.mark.parametrize(
    ("other", "only"),
    [
        (request(), None),
        (request(), "t"),
        (request(principal="bob"), "s"),
        (request(name="other"), "s"),
        (request(method="prompts/get"), "s"),
        (request(arguments={}), "s"),
        (request(arguments={"a": None, "b": [1, {"x": "e"}]}), "s"),
    ],
)
def test_a_state_is_for_its_own_request(other: ClientRequest, only: str | None) -> None:
    sealer = States([])
    sealed = sealer.seal(State(asked="erase"), request(), "s")
    with pytest.raises(MCPError, match="Invalid or expired"):
        sealer.open(sealed, other, only)


def test_no_other_text_is_the_same_state() -> None:
    sealer = States(["k" * 32])
    sealed = sealer.seal(State(server="own"), request(), "s")
    changed = {
        f"{sealed}\n",
        f" {sealed}",
        f"{sealed}=",
        f"{sealed}AA",
        sealed[:-1],
        sealed.replace("_", "/"),
        "",
    }
    changed |= {sealed[:place] + "!" + sealed[place:] for place in range(0, len(sealed), 7)}
    changed |= {f"{sealed[:-1]}{letter}" for letter in "ABCDEFGH=-_"}
    changed |= {
        sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        for place in range(len(sealed))
    }
    for text in changed - {sealed}:
        with pytest.raises(MCPError):
            sealer.open(text, request(), "s")
    for wrong in (None, 5, [], {"a": 1}):
        with pytest.raises(MCPError):
            sealer.open(wrong, request(), "s")
    with pytest.raises(MCPError):
        States(["o" * 32]).open(sealed, request(), "s")


def test_an_approval_is_used_up_and_another_state_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer = States([])
    for approval in (State(asked="erase"), State(approved=["erase"])):
        sealed = sealer.seal(approval, request(), "s")
        sealer.open(sealed, request(), "s")
        with pytest.raises(MCPError, match="used already"):
            sealer.open(sealed, request(), "s")
    plain = sealer.seal(State(server="own"), request(), "s")
    assert sealer.open(plain, request(), "s") == sealer.open(plain, request(), "s")
    late = sealer.seal(State(server="own"), request(), "s")
    now = states.time.time()
    monkeypatch.setattr(states.time, "time", lambda: now + 601)
    with pytest.raises(MCPError, match="expired"):
        sealer.open(late, request(), "s")


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        States(["short"])
