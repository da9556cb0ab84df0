"""InboxWatch: the one thread of a process that writes to inboxes and notices the answers of other processes.

It runs, and a database is open, only while something waits. It looks at SQLite's `data_version`, which takes
microseconds, every `LOOK_SECONDS`: people answer from another terminal, and their call shall go on at once.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from dragoman.storage.inbox import InboxStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dragoman.model import PendingApproval

T = TypeVar("T")

logger = logging.getLogger("dragoman")

LOOK_SECONDS = 0.02
SHARE = 0.05
"""Of one processor, how much looking takes at most: with very many inboxes, answers are noticed later."""


class InboxWatch:
    """Writes to inboxes and watches them, in a thread that ends when nothing waits."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._runs = False
        # Used in the thread only.
        self._stores: dict[Path, InboxStore] = {}
        self._waiting: dict[Path, dict[str, Callable[[PendingApproval], None] | None]] = {}
        """By inbox and id: whom to tell that an entry was decided; `None` once told."""
        self._versions: dict[Path, int] = {}
        self._broken: set[Path] = set()
        self._failed: dict[Path, float] = {}
        """When a job failed at an inbox that has not worked since."""

    def run(self, folder: Path, job: Callable[[InboxStore], T]) -> Future[T]:
        """Do something with an inbox; the job runs in the thread, after all earlier ones."""
        done: Future[T] = Future()
        # It cannot be cancelled: an entry whose caller has gone must not stay.
        done.set_running_or_notify_cancel()
        put = time.monotonic()

        def work() -> None:
            try:
                store = self._stores.get(folder)
                if store is None:
                    store = self._stores[folder] = InboxStore(folder)
                # While somebody else has locked it, the jobs wait together, and not one after another.
                store.waited = time.monotonic() - put if put < self._failed.get(folder, 0.0) else 0.0
                found = job(store)
                self._failed.pop(folder, None)
                self._close_unused(folder)
            except BaseException as exc:  # noqa: BLE001 -- whoever waits for the job gets it
                self._failed[folder] = time.monotonic()
                self._close_unused(folder)
                done.set_exception(exc)
            else:
                done.set_result(found)

        with self._guard:
            self._jobs.put(work)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._work, name="dragoman inbox", daemon=True).start()
        return done

    def hold(self, folder: Path, identifier: str, *, on_decided: Callable[[PendingApproval], None]) -> None:
        """Keep an entry until `release`, and call a function in the thread once it was decided.

        For jobs of `run`, as `release` is.
        """
        # The next look has to see an answer that has come before.
        self._versions.pop(folder, None)
        self._waiting.setdefault(folder, {})[identifier] = on_decided

    def release(self, folder: Path, identifier: str) -> None:
        """Keep an entry no longer."""
        waiting = self._waiting.get(folder, {})
        waiting.pop(identifier, None)
        if not waiting:
            self._waiting.pop(folder, None)

    def _work(self) -> None:
        pause, looked = LOOK_SECONDS, 0.0
        while True:
            with suppress(queue.Empty):
                self._jobs.get(timeout=pause if self._waiting else 0)()
            now = time.monotonic()
            if self._waiting and now - looked >= pause:
                before = time.thread_time()
                self._look()
                looked = time.monotonic()
                pause = max(LOOK_SECONDS, (time.thread_time() - before) / SHARE)
            elif not self._waiting:
                with self._guard:
                    if self._jobs.empty():
                        self._runs = False
                        return

    def _look(self) -> None:
        for folder, waiting in self._waiting.items():
            try:
                version = self._stores[folder].version()
                if version == self._versions.get(folder):
                    continue
                found = self._stores[folder].decided(
                    [one for one, tell in waiting.items() if tell is not None]
                )
                self._versions[folder] = version
                self._broken.discard(folder)
            except Exception:
                # Answers cannot be seen; what waits ends by its time limit.
                if folder not in self._broken:
                    self._broken.add(folder)
                    logger.exception("the inbox in %s cannot be read", folder)
                continue
            for entry in found:
                if (tell := waiting[entry.id]) is not None:
                    waiting[entry.id] = None
                    tell(entry)

    def _close_unused(self, folder: Path) -> None:
        if folder not in self._waiting and (store := self._stores.pop(folder, None)) is not None:
            self._versions.pop(folder, None)
            store.close()


@lru_cache(maxsize=1)
def _watch_of(_process: int) -> InboxWatch:
    return InboxWatch()


def inbox_watch() -> InboxWatch:
    """Return the watch of this process; a forked one has its own."""
    return _watch_of(os.getpid())
