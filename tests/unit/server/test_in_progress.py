"""Whose requests are in progress at a server, and for how long one counts that has no answer."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from dragoman.gateway.questions import ClientExchange
from dragoman.server import in_progress
from dragoman.server.in_progress import LATE_SECONDS, InProgress, SeveralClientsError, current_caller


def cancelled(progress: InProgress, client: object = None) -> weakref.ref[ClientExchange]:
    """Begin and cancel a request; return what tells whether it is still kept."""
    caller = ClientExchange(client)
    token = current_caller.set(caller)
    progress.begin()
    progress.end(answered=False)
    current_caller.reset(token)
    return weakref.ref(caller)


def test_requests_that_were_cancelled_are_not_kept_however_many_there_are() -> None:
    progress = InProgress()
    gone = [cancelled(progress) for _ in range(100)]
    gc.collect()
    assert [one() for one in gone] == [None] * 100
    assert len(progress._late) == 2
    with pytest.raises(SeveralClientsError):
        progress.sole()


def test_the_last_client_that_cancelled_counts_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(in_progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress, first, second = InProgress(), object(), object()
    for client in (first, second, object(), first):
        cancelled(progress, client)
        now[0] += 1
    own = ClientExchange(first)
    current_caller.set(own)
    progress.begin()
    # Of the other three one is remembered, which is enough.
    with pytest.raises(SeveralClientsError):
        progress.sole()
    now[0] = 2 + LATE_SECONDS
    assert progress.sole() is own
    progress.end(answered=True)
    with pytest.raises(SeveralClientsError):
        progress.sole()
    now[0] = 3 + LATE_SECONDS
    assert progress.sole() is None
