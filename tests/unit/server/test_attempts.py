from __future__ import annotations

import pytest

from dragoman.errors import ConnectError
from dragoman.model import Http, Sse, Stdio, Tls
from dragoman.server.connection import add_history, attempt_of, attempts_at

pytestmark = pytest.mark.requirement(
    "kode-connect.failure", "kode-connect.sse", "kode-config.sse", "otter-p1.sse", "rrclaw-transport.http"
)


def test_alternate_is_tried_after_what_is_configured() -> None:
    assert [type(one) for one in attempts_at(Http("u", alternate=True))] == [Http, Sse]
    assert [type(one) for one in attempts_at(Sse("u", alternate=True))] == [Sse, Http]
    assert attempts_at(Stdio("x")) == [Stdio("x")]


def test_alternate_has_the_same_address_headers_and_certificates() -> None:
    more = {"headers": {"X-Key": "k"}, "tls": Tls(ca="ca.pem"), "allow_http": True}
    for kind, other in ((Http, Sse), (Sse, Http)):
        assert attempts_at(kind("u", alternate=True, **more))[1] == other("u", **more)


def test_trail_begins_with_the_kind_of_transport() -> None:
    assert [attempt_of(one).kind for one in (Stdio("x"), Http("u"), Sse("u"))] == ["stdio", "http", "sse"]


def test_failures_are_told_in_the_last_one() -> None:
    failures = [ConnectError(text, server="s", stage="connect") for text in ("one", "two", "three")]
    add_history(failures[:1])
    assert failures[0].message == "one"
    add_history(failures)
    assert failures[-1].message == "three; before that: one; before that: two"
