"""Rounds: a modern client is asked by the result of its request, and answers with its next request.

Two ways lead there. A modern server gives such a result itself: it is passed on, with the server's own state
inside ours, and any replica can go on with it. An older server waits with its question in the middle of the
request: the request stays here, and only this process can go on with it.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOG_LEVEL_META_KEY,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)

from dragoman.errors import CallDeniedError
from dragoman.gateway.questions import ELICIT, LEVELS, ROOTS, SAMPLE, approval_form, says_yes
from dragoman.gateway.sdk_server import RawNotification

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager

    from mcp.server.context import ServerRequestContext

    from dragoman.gateway.questions import Exchange
    from dragoman.model import CallRequest

MAX_HELD = 1_000
"""How many requests may wait here for answers of their clients."""
HOLD_SECONDS = 600.0
"""How long a request waits; the state that a client gets is valid as long."""

CAPABILITIES = {ELICIT: "elicitation", SAMPLE: "sampling", ROOTS: "roots"}
_PASSED, _HELD = "p:", "h:"
"""How the state begins: passed on from a server, or held here."""
_ASKED, _APPROVED = "a:", "y:"
"""In front of that: the person at the client is asked for approval, or has given it.

Both are stateless: the state is sealed and bound to the request, so any replica can go on.
"""
_APPROVAL = "dragoman_approval"


def input_required(answer: Mapping[str, Any]) -> bool:
    """Return whether a result asks the client for input."""
    return answer.get("resultType") == "input_required"


def is_held_state(state: object) -> bool:
    """Return whether a state belongs to a request that is held."""
    return isinstance(state, str) and state.startswith(_HELD)


def inputs_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request says about its round; empty in the first one."""
    return {key: params[key] for key in ("inputResponses", "requestState") if params.get(key) is not None}


def lacks(context: ServerRequestContext[Any], method: str) -> bool:
    """Return whether a client has not declared that it can be asked for something."""
    declared = context.session.client_capabilities
    return getattr(declared, CAPABILITIES.get(method, ""), None) is None


def can_be_asked(context: ServerRequestContext[Any]) -> bool:
    """Return whether a client has declared that it can be asked for anything."""
    return not all(lacks(context, method) for method in CAPABILITIES)


def pass_on(context: ServerRequestContext[Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a server's request for input for the client.

    Raises:
        MCPError: The client cannot be asked for that.
    """
    questions = cast("Mapping[str, Mapping[str, Any]]", answer.get("inputRequests") or {})
    for asked in questions.values():
        method = str(asked.get("method", ""))
        if method in CAPABILITIES and lacks(context, method):
            msg = f"the server asks for {method}, which the client does not support"
            data: dict[str, Any] = {"requiredCapabilities": {CAPABILITIES[method]: {}}}
            raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=msg, data=data)
    state = answer.get("requestState")
    return {**answer, "requestState": _PASSED + state} if isinstance(state, str) else answer


def approval_of(inputs: Mapping[str, Any]) -> tuple[bool | None, dict[str, Any]]:
    """Return whether a person has approved the request, `None` if not asked yet, and the other inputs."""
    rest = dict(inputs)
    state = rest.get("requestState") or ""
    if state.startswith(_ASKED):
        responses: dict[str, Any] = rest.get("inputResponses") or {}
        return says_yes(responses.get(_APPROVAL)), {}
    if not state.startswith(_APPROVED):
        return None, rest
    if len(state) > len(_APPROVED):
        rest["requestState"] = state.removeprefix(_APPROVED)
    else:
        del rest["requestState"]
    return True, rest


def server_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a round with the server's own state in place of ours.

    Raises:
        MCPError: The state belongs to a request that is held, or to none.
    """
    state = inputs.get("requestState")
    if state is None:
        return dict(inputs)
    if not state.startswith(_PASSED):
        msg = "the server was restarted with another protocol in the meantime; send the request again"
        raise MCPError(code=INVALID_PARAMS, message=msg)
    return {**inputs, "requestState": state.removeprefix(_PASSED)}


class HeldRequest:
    """A request at an older server, which may wait for answers of its client."""

    def __init__(
        self, context: ServerRequestContext[Any], client: object, *, approved: bool | None = None
    ) -> None:
        self.context = context
        self.client = client
        self.approved = approved
        """Whether the person at the client has approved the request; `None` if not asked yet."""
        self._wants: CallRequest | None = None
        self.task: asyncio.Task[Mapping[str, Any]] | None = None
        self._questions: dict[str, tuple[dict[str, Any], asyncio.Future[Mapping[str, Any]]]] = {}
        self._is_asked = False
        self._wake: Callable[..., None] | None = None
        self._number = 0

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client with the result of this round."""
        if lacks(self.context, method):
            msg = f"the client does not support {method}"
            raise MCPError(code=INVALID_REQUEST, message=msg)
        self._number += 1
        key = f"q{self._number}"
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[key] = ({"method": method, "params": dict(params)}, answer)
        self._set_asked()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)

    async def approve(self, request: CallRequest) -> bool:
        """Return what the person has said.

        Raises:
            CallDeniedError: The person is asked with the result of this round; nothing is sent before that.
        """
        if self.approved is None and not lacks(self.context, ELICIT):
            self._wants = request
            msg = f"`{request.tool}` waits for approval"
            raise CallDeniedError(
                msg, tool=request.tool, server=request.server, rule=request.rule, pending=True
            )
        return self.approved is True

    def approval_asked(self) -> Mapping[str, Any] | None:
        """Return the result that asks for approval, if the request was stopped for that."""
        if self._wants is None:
            return None
        asked = {"method": ELICIT, "params": approval_form(self._wants)}
        return {"resultType": "input_required", "inputRequests": {_APPROVAL: asked}, "requestState": _ASKED}

    def remembered(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an answer whose state says that the request is approved, if it is."""
        if not self.approved or not input_required(answer):
            return answer
        return {**answer, "requestState": f"{_APPROVED}{answer.get('requestState') or ''}"}

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send nothing: the newer protocol has no notifications outside requests."""

    async def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message along with the current round."""
        await log(self.context, params)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress to the current round."""
        await self.context.session.report_progress(progress, total, message)

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Give the server what the client has answered."""
        self._is_asked = False
        for key, (_, answer) in self._questions.items():
            if key in responses and not answer.done():
                answer.set_result(responses[key])
        if any(not answer.done() for _, answer in self._questions.values()):
            self._set_asked()

    def _set_asked(self) -> None:
        self._is_asked = True
        if self._wake is not None:
            self._wake()

    async def result_or_questions(self) -> Mapping[str, Any] | None:
        """Wait for the result; `None` if the server asks something first."""
        assert self.task is not None  # noqa: S101 -- started by `Rounds`
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(*_: object) -> None:
            if not woken.done():
                woken.set_result(None)

        self.task.add_done_callback(wake)
        self._wake = wake
        if self._is_asked:
            wake()
        try:
            await woken
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        finally:
            self.task.remove_done_callback(wake)
            self._wake = None
        return self.task.result() if self.task.done() else None

    def questions(self) -> dict[str, Any]:
        """Return the open questions, as a result asks them."""
        return {key: asked for key, (asked, answer) in self._questions.items() if not answer.done()}


class Rounds:
    """The held requests of one process."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[HeldRequest, asyncio.TimerHandle]] = {}
        self._process = secrets.token_hex(4)
        """Says in a state which process holds the request."""

    @property
    def held(self) -> int:
        """How many requests wait here for an answer."""
        return len(self._held)

    def is_held(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a round belongs to a held request."""
        return is_held_state(inputs.get("requestState"))

    async def begin(
        self,
        request: HeldRequest,
        job: Callable[[HeldRequest], Awaitable[Mapping[str, Any]]],
        during: Callable[[Exchange], AbstractContextManager[None]],
    ) -> Mapping[str, Any]:
        """Run a request until its result or its first question."""

        async def run() -> Mapping[str, Any]:
            with during(request):
                return await job(request)

        request.task = asyncio.create_task(run())
        return await self._advance(request)

    async def resume(
        self, context: ServerRequestContext[Any], inputs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Go on with a held request.

        Raises:
            MCPError: It is not held here.
        """
        process, _, key = str(inputs["requestState"]).removeprefix(_HELD).partition(":")
        held = self._held.pop(key, None)
        if held is None or process != self._process:
            msg = "the request waits in another process, or has ended"
            hint = "this server speaks the older protocol: send its requests to one process, and start again"
            raise MCPError(code=INVALID_PARAMS, message=f"{msg} ({hint})", data={"reason": "not_held_here"})
        request, timer = held
        timer.cancel()
        request.context = context
        request.answer(inputs.get("inputResponses") or {})
        return await self._advance(request)

    def close(self) -> None:
        """End every held request."""
        for request, timer in self._held.values():
            timer.cancel()
            if request.task is not None:
                request.task.cancel()
        self._held.clear()

    async def _advance(self, request: HeldRequest) -> Mapping[str, Any]:
        result = await request.result_or_questions()
        if result is not None:
            return result
        assert request.task is not None  # noqa: S101 -- it has asked a question
        if len(self._held) >= MAX_HELD:
            request.task.cancel()
            raise MCPError(code=INTERNAL_ERROR, message="too many requests wait for answers of their clients")
        key = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._expire, key)
        self._held[key] = (request, timer)
        return {
            "resultType": "input_required",
            "inputRequests": request.questions(),
            "requestState": f"{_HELD}{self._process}:{key}",
        }

    def _expire(self, key: str) -> None:
        if (held := self._held.pop(key, None)) is not None and held[0].task is not None:
            held[0].task.cancel()


async def log(context: ServerRequestContext[Any], params: Mapping[str, Any]) -> None:
    """Send a log message as part of a request of the modern protocol, if the request wants its level."""
    wanted = (context.meta or {}).get(LOG_LEVEL_META_KEY)
    level = params.get("level")
    if wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted):
        message = cast("Any", RawNotification("notifications/message", params))
        await context.session.send_notification(message, related_request_id=context.request_id)
