"""`/approvals` of the gateway: what waits in the inbox of a user, and answers with a one-time code.

Reading needs the token of the user, as every request does. That token is held by the program that makes the
calls, so it answers nothing. An answer is a POST with the code that the user's webhook has got: no link, no
preview of one and no page of another site approves anything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from dragoman.errors import ApprovalError, DragomanError
from dragoman.gateway.http import RefusedError
from dragoman.model import json_object
from dragoman.trust.encoding import encoded

if TYPE_CHECKING:
    from starlette.responses import Response

    from dragoman.gateway.http import GatewayRequest
    from dragoman.model import PendingApproval

PATH = "/approvals"
MAX_BYTES = 4_096
BY = "the webhook"


def for_client(entry: PendingApproval) -> PendingApproval:
    """Return an entry as a client of the gateway sees it: without paths and processes of this machine."""
    caller = entry.caller.replace(program="", process=0)
    return entry.replace(source="", rule="", always=[], caller=caller)


def is_answer(http: GatewayRequest) -> bool:
    """Return whether a request answers a call; it needs no token, since it has a code."""
    return http.method == "POST" and http.path.startswith(f"{PATH}/")


async def show(http: GatewayRequest, user: str) -> Response:
    """Return what waits for a user, or one entry."""
    if http.method != "GET":
        return JSONResponse({"error": "method not allowed"}, 405, headers={"Allow": "GET"})
    identifier = http.path.removeprefix(PATH).strip("/")

    def read() -> Any:
        from dragoman.storage.inbox import InboxStore  # With its database, in this thread.

        with InboxStore(user=user) as store:
            if identifier:
                return for_client(store.get(identifier))
            return {"approvals": [for_client(one) for one in store.pending()]}

    try:
        return JSONResponse(encoded(await asyncio.to_thread(read)))
    except ApprovalError as exc:
        return JSONResponse({"error": str(exc)}, 404)
    except DragomanError:
        return JSONResponse({"error": "the inbox cannot be used"}, 503)


async def answer(http: GatewayRequest) -> Response:
    """Answer a call: `{"code": …, "allow": true}`."""
    identifier = http.path.removeprefix(f"{PATH}/")
    try:
        given = json_object(await http.message(MAX_BYTES))
    except RefusedError as exc:
        return JSONResponse({"error": str(exc)}, 400)
    code, allow = given.get("code"), given.get("allow")
    if not isinstance(code, str) or not isinstance(allow, bool):
        return JSONResponse({"error": 'the body must be {"code": "…", "allow": true or false}'}, 400)

    def work() -> PendingApproval:
        from dragoman.storage.inbox import inbox_of_code  # As above.

        with inbox_of_code(code) as store:
            return store.answer(identifier, allow=allow, by=BY, code=code)

    try:
        entry = await asyncio.to_thread(work)
    except ApprovalError as exc:
        # One answer for whatever is wrong with a code: nobody learns what waits.
        known = exc.state != ""
        return JSONResponse({"error": str(exc) if known else "unknown id or code"}, 409 if known else 403)
    except DragomanError:
        return JSONResponse({"error": "the inbox cannot be used"}, 503)
    return JSONResponse({"id": entry.id, "state": entry.state})
