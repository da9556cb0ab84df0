"""Inbox: a call that a rule asks about waits in it, and the first answer counts.

The person at the caller is asked as without an inbox; at the same time anyone who may answer finds the call
in the store (`storage/inbox.py`). The other side is then told. What was approved is claimed before the call
goes out, once, by the process that asked.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.errors import ApprovalError, CallDeniedError, DragomanError
from dragoman.events import ApprovalAnswered, ApprovalRequested
from dragoman.model import ApprovalCaller, PendingApproval
from dragoman.storage.files import user_data_folder
from dragoman.storage.inbox_watch import inbox_watch
from dragoman.storage.tasks import signing_key
from dragoman.trust.masking import MASK, mask_arguments
from dragoman.trust.policy import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from dragoman.events import Event
    from dragoman.model import AlwaysRule, ApprovalState, CallRequest, ProgressHandler
    from dragoman.storage.inbox import InboxStore
    from dragoman.storage.inbox_watch import InboxWatch
    from dragoman.trust.policy import Decision

    Notify: TypeAlias = Callable[[PendingApproval, str], Coroutine[Any, Any, None]]

logger = logging.getLogger("dragoman")

PROGRESS_SECONDS = 5.0
"""How often the caller gets progress while its call waits: many clients give up after 60 s without any."""
WITHDRAW_SECONDS = 1.0
"""How long a handler may take to end after its question was answered elsewhere."""
CALLER = "the caller"
"""Who has answered if the person at the caller did."""


class Inbox:
    """The inbox of one manager's user."""

    def __init__(
        self,
        *,
        user: str = "",
        publish: Callable[[Event], None] = lambda _: None,
        mask: Callable[[str], str] = lambda text: text,
        caller: Callable[[], ApprovalCaller] = ApprovalCaller,
        notify: Callable[[], Notify | None] = lambda: None,
    ) -> None:
        """Use the inbox of a user; no file is opened before something waits.

        Args:
            user: The id, in a program with many users.
            publish: Called with an event when a call begins to wait, and when it ends.
            mask: Masks the secrets that the manager knows.
            caller: Returns who makes the current call.
            notify: Returns what tells the webhook of the user about an entry, with the code that answers it.
        """
        self._user = user
        self._folder = user_data_folder(user)
        self._publish = publish
        self._mask = mask
        self._caller = caller
        self._notify = notify
        self._open: set[asyncio.Future[PendingApproval]] = set()
        """Where the answers of calls that wait here go."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        """What tells the webhook about an entry, by its id; it goes on if the caller pauses."""

    def close(self) -> list[asyncio.Task[None]]:
        """End every call that waits; return the tasks that have to end."""
        for one in self._open:
            if not one.done():
                one.set_exception(DragomanError("the manager is closed"))
        for task in self._telling.values():
            task.cancel()
        return list(self._telling.values())

    @property
    def _watch(self) -> InboxWatch:
        return inbox_watch()  # That of this process, which may have been forked.

    async def ask(
        self,
        request: CallRequest,
        decision: Decision,
        *,
        seconds: float,
        handler: Callable[[], Awaitable[bool | None]] | None,
        always: Callable[[], Sequence[AlwaysRule]] = tuple,
        report: ProgressHandler | None = None,
    ) -> PendingApproval | None:
        """Let a call wait until it is answered, has run out of time, or is given up.

        Args:
            request: The call.
            decision: The rule that asks.
            seconds: How long to wait.
            handler: Asks the person at the caller: a literal `True` is a yes, `None` means that no one can be
                asked there. It is cancelled once the call is answered elsewhere.
            always: Returns the rules that the person can choose with a yes; called in a thread.
            report: Given progress, so that the caller goes on waiting.

        Returns:
            The entry: if it is `approved`, `claim` or `refuse` has to follow. `None` if it cannot be stored.

        Raises:
            CallDeniedError: The handler has paused the call: it comes again with the answer.
        """
        decided: asyncio.Future[PendingApproval] = asyncio.get_running_loop().create_future()
        caller = self._caller()
        now = time.time()
        notify = self._notify()
        codes: list[str] = []

        def put(store: InboxStore) -> PendingApproval:
            shown = self._masked(mask_arguments(request.arguments, limit=sys.maxsize, depth=MAX_DEPTH + 2))
            if _hides(request.arguments, shown):
                msg = f"the arguments of `{request.tool}` cannot be shown as they are sent"
                raise ApprovalError(msg, hint="use other names and smaller numbers")
            made = PendingApproval(
                id="",
                kind="call" if request.kind in ("tool", "skill") else cast("Any", request.kind),
                server=request.server,
                tool=request.tool,
                original_name=request.original_name,
                arguments=shown,
                rule=decision.label or decision.rule,
                source=decision.source,
                reason=decision.reason,
                caller=caller,
                asked_at=now,
                expires_at=now + seconds,
                always=list(always()),
            )
            code = store.make_code() if notify is not None else ""
            entry = store.ask(made, self._subject(request, caller), code=code)
            # A call that comes again has told the webhook already.
            if code and entry.asked_at == made.asked_at:
                codes.append(code)
            self._watch.hold(self._folder, entry.id, on_decided=_teller(decided))
            return entry

        putting = self._watch.run(self._folder, put)
        try:
            entry = await asyncio.wrap_future(putting)
        except asyncio.CancelledError:
            self._watch.run(
                self._folder, lambda store: self._end(store, putting.result().id, state="abandoned")
            )
            raise
        except (DragomanError, OSError) as exc:
            logger.warning("%s: `%s` cannot wait in the inbox: %s", request.server, request.tool, exc)
            return None
        if entry.state != "pending":  # It was answered while its caller had paused.
            return await self._noted(entry)
        self._publish(ApprovalRequested(server=entry.server, approval=entry))
        if notify is not None and codes:
            task = self._telling[entry.id] = asyncio.create_task(notify(entry, codes[0]))
            task.add_done_callback(lambda _: self._telling.pop(entry.id, None))
        self._open.add(decided)
        try:
            left = max(
                0.0, min(seconds, entry.expires_at - time.time())
            )  # Whatever the clock says meanwhile.
            found = await self._first_answer(entry, decided, left=left, handler=handler, report=report)
        except CallDeniedError:
            await self._run(lambda store: self._pause(store, entry.id))
            raise
        except (DragomanError, OSError) as exc:
            logger.warning("%s: `%s` is denied: %s", entry.server, entry.tool, exc)
            await self._give_up(entry)
            return entry.replace(state="denied")
        except BaseException:
            await self._give_up(entry)
            raise
        finally:
            self._open.discard(decided)
        return await self._noted(found.replace(always=entry.always))

    async def claim(self, entry: PendingApproval) -> bool:
        """Take an approved entry; only after a yes may its call be sent, and only once."""

        def work(store: InboxStore) -> bool:
            try:
                return store.claim(entry.id)
            finally:
                self._watch.release(self._folder, entry.id)

        try:
            return await self._run(work)
        except (DragomanError, OSError) as exc:
            logger.warning("%s: `%s` is not sent: %s", entry.server, entry.tool, exc)
            return False

    async def refuse(self, entry: PendingApproval, by: str) -> None:
        """End an approved entry that is not sent after all."""
        with suppress(DragomanError, OSError):
            await self._run(lambda store: self._end(store, entry.id, state="denied", by=by))

    async def _first_answer(
        self,
        entry: PendingApproval,
        decided: asyncio.Future[PendingApproval],
        *,
        left: float,
        handler: Callable[[], Awaitable[bool | None]] | None,
        report: ProgressHandler | None,
    ) -> PendingApproval:
        until = time.monotonic() + left
        asked = None if handler is None else asyncio.ensure_future(handler())
        turns = 0
        try:
            while True:
                if report is not None:
                    await _tell(report, turns, f"waits for an answer: dragoman approvals show {entry.id}")
                turns += 1
                left = until - time.monotonic()
                waiting = {decided} if asked is None else {decided, asked}
                await asyncio.wait(
                    cast("set[asyncio.Future[Any]]", waiting),
                    timeout=max(0.0, min(PROGRESS_SECONDS, left)),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if decided.done():
                    found = decided.result()
                    await _withdraw(asked, found)
                    return found
                if asked is not None and asked.done():
                    said = _said(asked, entry)
                    if said is not None:
                        return await self._run(
                            lambda store, said=said: store.settle(entry.id, allow=said, by=CALLER)
                        )
                    asked = None
                elif left <= 0:
                    found = await self._run(lambda store: store.end(entry.id, "expired"))
                    await _withdraw(asked, found)
                    return found
        except BaseException:
            if asked is not None:
                asked.cancel()
            raise

    async def _noted(self, entry: PendingApproval) -> PendingApproval:
        """Keep only what was approved, and say what became of the call."""
        try:
            await self._stop_telling(entry.id)
        except BaseException:
            await self._give_up(entry)  # The caller has gone: nobody claims it any more.
            raise
        if entry.state != "approved":
            await self._run(lambda _: self._watch.release(self._folder, entry.id))
        self._publish(ApprovalAnswered(server=entry.server, approval=entry))
        return entry

    async def _stop_telling(self, identifier: str) -> None:
        if (task := self._telling.get(identifier)) is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=WITHDRAW_SECONDS)

    async def _give_up(self, entry: PendingApproval) -> None:
        await self._stop_telling(entry.id)
        job = asyncio.ensure_future(self._run(lambda store: self._end(store, entry.id, state="abandoned")))
        await asyncio.wait({job}, timeout=WITHDRAW_SECONDS)
        self._publish(ApprovalAnswered(server=entry.server, approval=entry.replace(state="abandoned")))

    def _end(self, store: InboxStore, identifier: str, *, state: ApprovalState, by: str = "") -> None:
        try:
            store.end(identifier, state, by=by)
        finally:
            self._watch.release(self._folder, identifier)

    def _pause(self, store: InboxStore, identifier: str) -> None:
        try:
            store.pause(identifier)
        finally:
            self._watch.release(self._folder, identifier)

    def _run(self, job: Callable[[InboxStore], Any]) -> Awaitable[Any]:
        return asyncio.wrap_future(self._watch.run(self._folder, job))

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mask(value)
        if isinstance(value, list):
            return [self._masked(one) for one in cast("list[Any]", value)]
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {self._mask(key): self._masked(one) for key, one in items}
        return value

    def _subject(self, request: CallRequest, caller: ApprovalCaller) -> str:
        """Return what is equal for the same call of the same caller only, and that no other can compute."""
        who = [caller.user, caller.principal, caller.client]
        about = [*who, request.kind, request.server, request.original_name, request.arguments]
        text = json.dumps(about, sort_keys=True, default=repr)
        return hmac.new(signing_key(user=self._user), text.encode(), "sha256").hexdigest()


def _hides(given: object, shown: object) -> bool:
    """Return whether masking has hidden more than texts and values of secret names: a person must see it."""
    one, other = _parts(given), _parts(shown)
    if one is not None and other is not None:
        # Two names that are masked look the same, and one would be lost.
        return len(one) != len(other) or any(map(_hides, one, other))
    # Secret names have their whole value masked; nothing else becomes a text.
    return not isinstance(given, str) and shown != MASK and type(given) is not type(shown)


def _parts(value: object) -> list[object] | None:
    if isinstance(value, Mapping):
        return list(cast("Mapping[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else None


def _teller(decided: asyncio.Future[PendingApproval]) -> Callable[[PendingApproval], None]:
    loop = decided.get_loop()

    def put(entry: PendingApproval) -> None:
        if not decided.done():
            decided.set_result(entry)

    def tell(entry: PendingApproval) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(put, entry)

    return tell


def _said(asked: asyncio.Future[bool | None], entry: PendingApproval) -> bool | None:
    """Return what a handler has said: a failure is a no."""
    try:
        answer = asked.result()
    except CallDeniedError as exc:
        if exc.pending:
            raise
        return False
    except (Exception, asyncio.CancelledError):
        logger.exception("%s: the `approval` handler failed; the call is denied", entry.server)
        return False
    # Only a literal True is consent.
    return None if answer is None else answer is True


async def _withdraw(asked: asyncio.Future[Any] | None, entry: PendingApproval) -> None:
    """Tell the person at the caller that the question is answered."""
    if asked is not None and not asked.done():
        asked.cancel(f"already {entry.state} by {entry.answered_by or 'no one'}")
        await asyncio.wait({asked}, timeout=WITHDRAW_SECONDS)
    if asked is not None and asked.done() and not asked.cancelled():
        asked.exception()  # It counts no more.


async def _tell(report: ProgressHandler, turn: int, message: str) -> None:
    # The server's own progress begins after ours: the numbers stay below any of its.
    outcome = report(turn * 1e-6, None, message)
    if inspect.isawaitable(outcome):
        await outcome
