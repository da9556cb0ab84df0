"""What surrounds a message of the protocol, for those who serve: reading, checking, and writing it.

The gateway is a server of both protocol generations. A modern request (2026-07-28) says with each message
which protocol it speaks and what its client can be asked; over HTTP, headers repeat that. An older client
says it once, in `initialize`. This module has the rules of both, without any I/O.

JSON has no numbers that are not finite. They are refused in both directions: a strict server that other
clients share would end at them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.methods import (
    SPEC_CLIENT_METHODS,
    SPEC_CLIENT_NOTIFICATION_METHODS,
    validate_client_notification,
    validate_client_request,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.errors import DragomanError
from dragoman.server.protocol import rpc

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LATEST_HANDSHAKE_VERSION",
    "LOG_LEVEL_META_KEY",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "MODERN_PROTOCOL_VERSIONS",
    "PARSE_ERROR",
    "PROTOCOL_VERSION_META_KEY",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "MCPError",
    "check_mirrored",
    "check_notification",
    "check_params",
    "decode",
    "encode",
    "error_of",
    "is_message",
    "is_modern",
    "outcome_of",
    "read_modern_request",
    "shaped",
    "status_of",
    "text_result",
]

logger = logging.getLogger("dragoman")

DEFAULT_VERSION = "2025-03-26"
"""The protocol of an older HTTP client that names none."""
_CACHEABLE = ("/list", "/read")
_MODERN_ONLY = frozenset({"resultType", "ttlMs", "cacheScope"})


# Reading and writing


def decode(body: bytes) -> Any:
    """Return the message of a body.

    Raises:
        MCPError: It is not JSON, has a number that is not finite, or is nested too deeply.
    """
    try:
        return rpc.decode_bounded(body)
    except ValueError as exc:
        raise MCPError(code=PARSE_ERROR, message="Parse error") from exc


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON; a result that has no JSON becomes an error."""
    try:
        return rpc.encode({"jsonrpc": "2.0", **message})
    except DragomanError as exc:
        logger.warning("an answer was not sent: %s", exc)
        error = {"code": INTERNAL_ERROR, "message": "the answer of the server is not JSON"}
        return rpc.encode({"jsonrpc": "2.0", "id": message.get("id"), "error": error})


def is_message(value: object) -> bool:
    """Return whether a decoded value is one request, notification or response."""
    if not isinstance(value, dict):
        return False
    message = cast("dict[str, Any]", value)
    number, params = message.get("id"), message.get("params")
    if message.get("jsonrpc") != "2.0" or (params is not None and not isinstance(params, dict)):
        return False
    if "method" in message:
        return isinstance(message["method"], str) and ("id" not in message or type(number) in (int, str))
    return type(number) in (int, str) and (
        isinstance(message.get("result"), dict) != isinstance(message.get("error"), dict)
    )


# Checking


def is_modern(version: str) -> bool:
    """Return whether a protocol version is stateless: 2026-07-28 or later."""
    return version in MODERN_PROTOCOL_VERSIONS


def has_envelope(params: Mapping[str, Any] | None) -> bool:
    """Return whether a request names its protocol itself, as modern ones do."""
    meta = params.get("_meta") if params else None
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


def read_modern_request(
    message: Mapping[str, Any], headers: Mapping[str, str] | None
) -> tuple[str, dict[str, Any]]:
    """Return the protocol version of a modern request, and what its client can be asked.

    Args:
        message: The request.
        headers: Those of HTTP, by their names in lower case; `None` on other transports.

    Raises:
        MCPError: The request does not say what it must, or its headers say something else.
    """
    found = classify_inbound_request(message, headers=headers)
    if isinstance(found, InboundLadderRejection):
        raise MCPError(code=found.code, message=found.message, data=found.data)
    capabilities: object = found.client_capabilities
    if not isinstance(capabilities, dict):
        msg = f"{CLIENT_CAPABILITIES_META_KEY} must be an object"
        raise MCPError(code=INVALID_PARAMS, message=msg)
    return found.protocol_version, cast("dict[str, Any]", capabilities)


def check_mirrored(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], headers: Mapping[str, str]
) -> None:
    """Check that headers say the same as the arguments which they mirror.

    Raises:
        MCPError: They do not.
    """
    found = validate_mcp_param_headers(schema, arguments, headers)
    if found is not None:
        raise MCPError(code=found.code, message=found.message, data=found.data)


def check_params(method: str, version: str, params: Mapping[str, Any] | None) -> None:
    """Check the parameters of a request.

    Raises:
        MCPError: They are not those of the method, or this protocol version does not have the method.
    """
    if method not in SPEC_CLIENT_METHODS:
        return
    try:
        validate_client_request(method, version, params)
    except KeyError:
        raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method) from None
    except ValidationError as exc:
        raise invalid_params(exc) from None


def check_notification(method: str, version: str, params: Mapping[str, Any] | None) -> bool:
    """Return whether a notification is one of the protocol version, with the right parameters."""
    if method not in SPEC_CLIENT_NOTIFICATION_METHODS:
        return False
    try:
        validate_client_notification(method, version, params)
    except (KeyError, ValidationError):
        return False
    return True


def invalid_params(exc: ValidationError) -> MCPError:
    """Return the error for parameters that do not fit; it does not repeat their values."""
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:200]
    return MCPError(
        code=INVALID_PARAMS, message="Invalid request parameters", data=f"{place}: {first['msg']}"
    )


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of log messages, the least urgent first."""


# Answering


def shaped(method: str, version: str, result: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the fields around it that the client's protocol requires.

    Args:
        method: What was asked.
        version: The protocol version of the client.
        result: The answer, as the server behind the gateway gave it.
        info: What every modern result says about the server that answers.
    """
    if not is_modern(version):
        kept = {key: value for key, value in result.items() if key not in _MODERN_ONLY}
        meta = kept.get("_meta")
        if isinstance(meta, dict) and SERVER_INFO_META_KEY in meta:
            given = cast("dict[str, Any]", meta)
            rest = {key: value for key, value in given.items() if key != SERVER_INFO_META_KEY}
            kept = {**kept, "_meta": rest} if rest else {k: v for k, v in kept.items() if k != "_meta"}
        return kept
    framed: dict[str, Any] = {"resultType": "complete"}
    if method.endswith(_CACHEABLE):
        framed |= {"ttlMs": 0, "cacheScope": "private"}
    framed |= result
    if framed["resultType"] == "input_required":
        framed.pop("ttlMs", None)
        framed.pop("cacheScope", None)
    meta = framed.get("_meta")
    known = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    if SERVER_INFO_META_KEY not in known:
        framed["_meta"] = {**known, SERVER_INFO_META_KEY: info}
    return framed


def text_result(*texts: str, is_error: bool = False) -> dict[str, Any]:
    """Return the result of a tool call that has only texts."""
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": is_error}


def outcome_of(exc: Exception) -> dict[str, Any]:
    """Return the error answer for an exception; the client does not see what is inside ours."""
    if isinstance(exc, MCPError):
        return {"error": error_of(exc)}
    logger.error("a request of a client failed", exc_info=exc)
    return {"error": {"code": INTERNAL_ERROR, "message": "Internal server error"}}


def error_of(exc: MCPError) -> dict[str, Any]:
    """Return the fields of an error."""
    error: dict[str, Any] = {"code": exc.code, "message": exc.message}
    return {**error, "data": exc.data} if exc.data is not None else error


def status_of(outcome: Mapping[str, Any]) -> int:
    """Return the HTTP status of an answer to a modern request."""
    error = outcome.get("error")
    return 200 if error is None else ERROR_CODE_HTTP_STATUS.get(error["code"], 200)
