"""The rounds of one tool call: the server asks for input, gets it, and goes on.

A modern server does not send requests of its own. It answers a call with the questions that it has and an
opaque state, and the client repeats the call with the answers and that state. Questions of one round are
answered one after the other, in the order of the server's object: the user sees one at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError

from dragoman.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client.session import ClientSession

    from dragoman.server.protocol.wire import RoundOptions


MAX_ROUNDS = 10
"""How often a server may ask for input in one call."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.25
"""Seconds before a call is repeated for a server that only sent a state, and asked nothing."""


async def call_in_rounds(
    send: Callable[[Mapping[str, Any] | None, str | None], Awaitable[Any]],
    *,
    session: ClientSession,
    tool: str,
    relist: Callable[[], Awaitable[None]] | None,
    options: RoundOptions,
) -> tuple[Any, Mapping[str, Any] | None]:
    """Send a call until its result is something else than a request for input that can be answered here.

    Args:
        send: Sends the call with the answers and the state of the round before.
        session: Runs the application's handlers.
        tool: The tool, for errors.
        relist: Lists the tools again after a refused header; `None` if that does not help.
        options: How the rounds differ from the usual ones.

    Returns:
        The last result, and the answers that handlers have given already if that is a request for input.

    Raises:
        ProtocolError: The server asked too often.
        MCPError: The server refused, or a handler did.
    """
    responses, state = options.responses, options.state
    pause = FIRST_PAUSE
    for _ in range(MAX_ROUNDS + 1):
        try:
            result = await send(responses, state)
        except MCPError as exc:
            if exc.code != types.HEADER_MISMATCH or relist is None:
                raise
            # The listing is missing or outdated: list again, and send once more.
            try:
                await relist()
            except MCPError:
                raise exc from None
            relist = None
            result = await send(responses, state)
        if not isinstance(result, types.InputRequiredResult):
            return result, None
        if result.input_requests:
            requests = dict(result.input_requests)
            asked = [key for key, request in requests.items() if request.method == "elicitation/create"]
            if options.pauses and asked:
                others = {key: request for key, request in requests.items() if key not in asked}
                return result, await answer_requests(session, others)
            responses = await answer_requests(session, requests)
            pause = FIRST_PAUSE
        else:
            responses = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        state = result.request_state
    msg = f"`{tool}` asked for input more than {MAX_ROUNDS} times"
    raise ProtocolError(msg, tool=tool)


async def answer_requests(session: ClientSession, requests: Mapping[str, Any]) -> dict[str, Any]:
    """Answer questions with the application's handlers, one after the other.

    Raises:
        MCPError: A handler failed, or there is none for this kind of question.
    """
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        meta = request.params.meta if request.params is not None else None
        context = ClientRequestContext(session=session, request_id=key, meta=meta)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    return answers
