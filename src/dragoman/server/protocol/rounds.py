"""Rounds: a server asks by its answer to a request, gets answers with the next round of it, and goes on.

A modern server does not send requests of its own. It answers a request with its questions and an opaque
state, and the client repeats the request with the answers and that state.

As a client, `answer_rounds` answers with the application's handlers. Questions of one round are answered one
after the other, in the order of the server's object: the user sees one at a time.

As a server, the gateway asks its modern clients the same way. What a modern server asks is passed on, with
the server's own state inside ours. An older server asks in the middle of a request: `HeldRequests` keeps that
request until its client comes back with the answers, and only this process can go on with it. `seal` and
`unseal` of `gateway/states.py` protect what a client carries between two rounds.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError

from dragoman.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from mcp.client.session import ClientSession

    from dragoman.server.protocol.deadlines import Deadline

    TraceQuestion: TypeAlias = Callable[
        [str, dict[str, Any] | None, Any], AbstractContextManager[object, bool | None]
    ]


MAX_ROUNDS = 10
"""How often a server may ask for input in one call."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.25
"""Seconds before a call is repeated for a server that only sent a state, and asked nothing."""
MAX_HELD = 1_000
"""How many requests may wait for answers of their clients."""
HOLD_SECONDS = 600.0
"""How long a request waits; the state that a client gets is valid as long."""

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"
CAPABILITIES = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
"""What a client declares if it can be asked, by the method that asks."""


def wants_input(answer: Mapping[str, Any]) -> bool:
    """Return whether a result asks for input."""
    return answer.get("resultType") == "input_required"


# As a client


async def answer_rounds(
    result: dict[str, Any],
    send: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]],
    *,
    session: ClientSession,
    trace: TraceQuestion,
    what: str,
    pauses: bool = False,
    end: Deadline | None = None,
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """Answer what a server asks until its result is something else, or nothing that can be answered here.

    Args:
        result: The result of the first round.
        send: Sends the request again, with what a round adds to its parameters.
        session: Runs the application's handlers.
        trace: Traces the answer to one question.
        what: The tool, or the subject of another request, for errors.
        pauses: Whether to stop when a person is asked.
        end: The deadline of the request, put off by the time that answers take.

    Returns:
        The last result, and the answers that handlers have given already if that is a request for input.

    Raises:
        ProtocolError: The server asked too often.
        ValidationError: A request for input is not valid.
        MCPError: The server refused, or a handler did.
    """
    pause = FIRST_PAUSE
    for _ in range(MAX_ROUNDS):
        if not wants_input(result):
            return result, None
        asked = types.InputRequiredResult.model_validate(result, by_name=False)
        added: dict[str, Any] = {}
        if asked.input_requests:
            requests = dict(asked.input_requests)
            for_person = [key for key, request in requests.items() if request.method == ELICIT]
            if pauses and for_person:
                others = {key: request for key, request in requests.items() if key not in for_person}
                return result, await answer_requests(session, others, end, trace=trace)
            added["inputResponses"] = await answer_requests(session, requests, end, trace=trace)
            pause = FIRST_PAUSE
        else:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        if asked.request_state is not None:
            added["requestState"] = asked.request_state
        result = await send(added)
    if not wants_input(result):
        return result, None
    msg = f"`{what}` asked for input more than {MAX_ROUNDS} times"
    raise ProtocolError(msg, tool=what)


async def answer_requests(
    session: ClientSession,
    requests: Mapping[str, Any],
    end: Deadline | None = None,
    *,
    trace: TraceQuestion,
) -> dict[str, Any]:
    """Answer questions with the application's handlers, one after the other; return the answers as JSON.

    Raises:
        MCPError: A handler failed, or there is none for this kind of question.
    """
    answers: dict[str, Any] = {}
    loop = asyncio.get_running_loop()
    for key, request in requests.items():
        meta = request.params.meta if request.params is not None else None
        context = ClientRequestContext(session=session, request_id=key, meta=meta)
        began = loop.time()
        with trace(request.method, None, key):
            answer = await session.dispatch_input_request(context, request)
            if end is not None:
                # The user's time to answer does not count for the call.
                end.put_off(loop.time() - began)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
        answers[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return answers


# As a server


def asked_for(questions: Mapping[str, Any], *, state: str | None) -> dict[str, Any]:
    """Return the result that asks a client, with what it has to send back."""
    asked: dict[str, Any] = {"resultType": "input_required", "inputRequests": dict(questions)}
    return asked if state is None else {**asked, "requestState": state}


def inputs_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request says about its round; empty in the first one."""
    return {key: params[key] for key in ("inputResponses", "requestState") if params.get(key) is not None}


class Held:
    """A request at an older server that may wait for answers of its client."""

    def __init__(self, job: Awaitable[Mapping[str, Any]], asker: Any) -> None:
        """Start the request.

        Args:
            job: The request; its questions come through `ask`.
            asker: Whose request it is; kept for the next rounds.
        """
        self.asker = asker
        self._questions: dict[str, tuple[dict[str, Any], asyncio.Future[Mapping[str, Any]]]] = {}
        self._number = 0
        self._changed = asyncio.Event()
        """Set when a question has come that no round has asked yet, or the request is done."""
        self._task = asyncio.ensure_future(job)
        self._task.add_done_callback(lambda _: self._changed.set())

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client with the result of this round, and wait for the answer of the next one."""
        self._number += 1
        key = f"q{self._number}"
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[key] = ({"method": method, "params": dict(params)}, answer)
        self._changed.set()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)

    async def advance(self, responses: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Go on with the answers of the client; return the result, or `None` if the server asks first."""
        if not self._task.done():
            self._changed.clear()
        for key, (_, answer) in self._questions.items():
            if key in responses and not answer.done():
                answer.set_result(responses[key])
        if self._open() and not self._task.done():
            # The client has not answered everything: it is asked for the rest again.
            self._changed.set()
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        return self._task.result() if self._task.done() else None

    def questions(self) -> dict[str, Any]:
        """Return the open questions, as a result asks them."""
        return self._open()

    def cancel(self) -> None:
        """End the request."""
        self._task.cancel()

    def _open(self) -> dict[str, Any]:
        return {key: asked for key, (asked, answer) in self._questions.items() if not answer.done()}


class HeldRequests:
    """The requests of one process that wait for their clients."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Held, asyncio.TimerHandle]] = {}
        self._process = secrets.token_hex(4)
        """Says in a state which process holds the request."""

    def __len__(self) -> int:
        return len(self._held)

    async def advance(self, held: Held, responses: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        """Go on with a request; return its result, or its questions with the key that `take` needs.

        Raises:
            MCPError: Too many requests wait.
        """
        result = await held.advance(responses)
        if result is not None:
            return result, ""
        if len(self._held) >= MAX_HELD:
            held.cancel()
            msg = "too many requests wait for answers of their clients"
            raise MCPError(code=types.INTERNAL_ERROR, message=msg)
        key = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._expire, key)
        self._held[key] = (held, timer)
        return asked_for(held.questions(), state=None), f"{self._process}:{key}"

    def take(self, key: str) -> Held:
        """Return a request that waits, and let it wait no longer.

        Raises:
            MCPError: It does not wait here.
        """
        process, _, own = key.partition(":")
        found = self._held.pop(own, None) if process == self._process else None
        if found is None:
            msg = "the request waits in another process, or has ended"
            hint = "this server speaks the older protocol: send its requests to one process, and start again"
            raise MCPError(
                code=types.INVALID_PARAMS, message=f"{msg} ({hint})", data={"reason": "not_held_here"}
            )
        held, timer = found
        timer.cancel()
        return held

    def close(self) -> None:
        """End every request that waits."""
        for held, timer in self._held.values():
            timer.cancel()
            held.cancel()
        self._held.clear()

    def _expire(self, key: str) -> None:
        if (found := self._held.pop(key, None)) is not None:
            found[0].cancel()


def lacking(capabilities: Mapping[str, Any], method: str) -> bool:
    """Return whether a client has not declared that it can be asked for something."""
    return cast("object", capabilities.get(CAPABILITIES.get(method, ""))) is None
