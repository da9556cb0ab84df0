"""JSON-RPC without I/O: it encodes requests, parses what comes back, and resolves the pending calls.

It owns the ids, the pending calls and their progress. It never waits, never writes, and knows nothing about
MCP. The rules for incoming messages:

- A message that does not parse (bad UTF-8, NaN, a number that is too long or too large for a float, too deep,
  a lone surrogate, too large) is junk. If it is an answer and its id can still be read, that call fails at
  once. An id inside a result, or of a request from the peer, does not count.
- If the caller asked for lenient parsing, an answer that does not parse is parsed again without the bad
  entries of its lists: one bad definition must not cost a whole listing.
- The messages of a batch are handled one by one.
- An answer must have an object as its result, or an error; anything else fails its call.
- An id may come back as a string ("7" for 7). An answer to an unknown id is junk. A late answer to a call
  that was given up is not: the peer may have sent it before it was notified.
- Junk is counted and reported to `on_junk`; it never raises.
"""

from __future__ import annotations

import gc
import json
import re
from collections import deque
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from pydantic_core import from_json, to_json

from dragoman.errors import InvalidArgumentsError, ProtocolError
from dragoman.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dragoman.errors import DragomanError

RequestId: TypeAlias = int | str
Params: TypeAlias = "Mapping[str, Any] | None"

MAX_DEPTH = 200
"""How deep a message of a client may be nested: what checks it recurses."""
TOO_DEEP = f"more than {MAX_DEPTH} levels"
TOO_LARGE = "the limit `max_message_bytes` is"
"""In every message about something that is larger than allowed."""
MAX_GIVEN_UP = 1000
"""How many given-up calls are remembered, to recognize their late answers."""
SALVAGE_BYTES = 4096
"""How many bytes at each end of an unreadable message are searched for its id."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
"""Also the code of an error whose own code is not a number."""
ERROR_CHARS = 10_000
"""How much of an error's message is kept."""

OVERFLOW = "a number is too large"
NOT_FINITE = "NaN and infinities are not numbers in JSON"
_FINITE: frozenset[type] = frozenset({str, int, bool, type(None)})

LARGE = 256 * 1024
"""The size in bytes from which parsing a message could delay the event loop."""
SHORT = 4096
"""Bytes of a message that is searched for numbers that are too large before its values are."""
MANY = 1000
"""After so many values it is cheaper to search the text for numbers that are too large."""
_DIGIT_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER = b"0" * 200
"""With an exponent of two digits, so many more make a number too large; without one, 309."""

_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]')
_ID_VALUE = rb'\s*:\s*(?:(\d{1,18})(?=\s*[,}])|"((?:[^"\\]|\\.){0,200})")'
_ID = re.compile(_ID_VALUE)
_LAST_ID = re.compile(rb'"id"' + _ID_VALUE + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*+(?:\]\s*+)?$')


class Listener(Protocol):
    """Receives the messages that are not answers."""

    def on_request(self, request_id: RequestId, method: str, params: dict[str, Any] | None) -> None:
        """Handle a request from the peer; the reply comes from `Rpc.result` or `Rpc.error`."""

    def on_notification(self, method: str, params: dict[str, Any] | None) -> None:
        """Handle a notification, in the order of receipt."""

    def on_junk(self, reason: str, sample: bytes) -> None:
        """Handle a message that cannot be used."""


class _Waiting(MutableStruct):
    """A pending call."""

    method: str
    resolve: Callable[[dict[str, Any] | DragomanError], None]
    on_progress: Callable[[float, float | None, str | None], None] | None
    lenient: bool


class Rpc:
    """The client side of one JSON-RPC conversation."""

    def __init__(self, listener: Listener) -> None:
        self.junk = 0
        """How many messages could not be used."""
        self.received = 0
        """How many messages came in, junk included; a rising number shows that the peer is alive."""
        self.size = 0
        """The size in bytes of the message that is being handled."""
        self._listener = listener
        self._waiting: dict[RequestId, _Waiting] = {}
        self._given_up: deque[RequestId] = deque(maxlen=MAX_GIVEN_UP)
        self._lenient = 0
        """How many pending calls want lenient parsing."""
        self._last_id = 0
        self._closed: DragomanError | None = None

    @property
    def waiting(self) -> int:
        """How many calls are pending."""
        return len(self._waiting)

    def waits_for(self, method: str) -> bool:
        """Return whether a call of this method is pending."""
        return any(call.method == method for call in self._waiting.values())

    def request(
        self,
        method: str,
        params: Params,
        *,
        resolve: Callable[[dict[str, Any] | DragomanError], None],
        request_id: RequestId | None = None,
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
        lenient: bool = False,
    ) -> tuple[RequestId, bytes]:
        """Begin a call; return its id and the message to send.

        Args:
            method: The method's name.
            params: Its parameters; with `on_progress` a progress token is added to their `_meta`.
            resolve: Called exactly once, with the result or with the error, unless the call is forgotten.
            request_id: An id chosen by the caller.
            on_progress: Called with progress, total and message.
            lenient: Whether bad entries in the lists of the answer are dropped instead of failing the call.

        Raises:
            DragomanError: The conversation has ended; this is the error that ended it.
            InvalidArgumentsError: The parameters cannot be written as JSON.
            ValueError: The caller's id is in use.
        """
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if request_id is None:
            request_id = self._free_id()
        elif _key(request_id) in self._waiting:
            msg = f"the request id {request_id!r} is already in use"
            raise ValueError(msg)
        if on_progress is not None:
            params = dict(params or {})
            params["_meta"] = {**(params.get("_meta") or {}), "progressToken": request_id}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        data = encode(message)
        self._waiting[_key(request_id)] = _Waiting(method, resolve, on_progress, lenient)
        self._lenient += lenient
        return request_id, data

    def notification(self, method: str, params: Params = None) -> bytes:
        """Return a notification to send."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return encode(message)

    def result(self, request_id: RequestId, result: Mapping[str, Any]) -> bytes:
        """Return the answer to a request from the peer."""
        return encode({"jsonrpc": "2.0", "id": request_id, "result": result})

    def error(self, request_id: RequestId | None, code: int, message: str, data: object = None) -> bytes:
        """Return an error as the answer to a request from the peer."""
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return encode({"jsonrpc": "2.0", "id": request_id, "error": error})

    def forget(self, request_id: RequestId) -> bool:
        """Drop a pending call; return whether it was pending."""
        waited = self._pop(request_id) is not None
        if waited:
            self._given_up.append(_key(request_id))
        return waited

    def fail(self, request_id: RequestId, error: DragomanError) -> bool:
        """End one call with an error; return whether it was pending."""
        waiting = self._pop(request_id)
        if waiting is None:
            return False
        waiting.resolve(error)
        return True

    def close(self, error: DragomanError) -> None:
        """End the conversation: every pending call, and every later one, gets the error."""
        if self._closed is None:
            self._closed = error
        waiting, self._waiting, self._lenient = self._waiting, {}, 0
        for call in waiting.values():
            call.resolve(error)

    def receive(self, data: bytes | bytearray) -> RequestId | None:
        """Handle one complete message; return the id of the call that it ended, if any."""
        self.received += 1
        self.size = len(data)
        try:
            message = decode(data)
        except ValueError as error:
            if data.startswith(_BOM):
                self.received -= 1
                return self.receive(data[len(_BOM) :])
            if self._lenient and (cleaned := self._without_bad_entries(data)):
                return self._take_answer(cleaned, data)
            is_finite = not _has_words(data) or not _is_json(data, allow_inf_nan=True)
            reason = str(error) if is_finite else NOT_FINITE
            return self.salvage(bytes(data[:SALVAGE_BYTES]), bytes(data[-SALVAGE_BYTES:]), reason)
        if type(message) is dict:
            return self._take(cast("dict[str, Any]", message), data)
        if type(message) is list:
            ended: RequestId | None = None
            for item in cast("list[object]", message):
                if type(item) is dict:
                    ended = self._take(cast("dict[str, Any]", item), data) or ended
                else:
                    self._note_junk("an item of a batch is not a message", data)
            return ended
        self._note_junk("not a JSON-RPC message", data)
        return None

    def salvage(self, head: bytes, tail: bytes, reason: str) -> RequestId | None:
        """Count a message that cannot be parsed, and fail its call if its id can be found."""
        self._note_junk(reason, head)
        ended: RequestId | None = None
        for found in _readable_ids(head, tail):
            if self.fail(found, self._unusable(found, f"the answer cannot be read: {reason}")):
                ended = found
        return ended

    def _without_bad_entries(self, data: bytes | bytearray) -> dict[str, Any] | None:
        """Parse an answer to a lenient call without its bad entries; `None` if it is not such an answer."""
        try:
            message: Any = json.loads(data.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            return None
        answer = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        request_id, result = answer.get("id"), answer.get("result")
        is_id = type(request_id) is int or type(request_id) is str
        waiting = self._waiting.get(_key(cast("RequestId", request_id))) if is_id else None
        if waiting is None or not waiting.lenient or not isinstance(result, dict):
            return None
        cleaned: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", result).items():
            entries = cast("list[object]", value if isinstance(value, list) else [value])
            good = [entry for entry in entries if self._is_sound(entry)]
            if isinstance(value, list):
                cleaned[key] = good
            elif good:
                cleaned[key] = value
        return {**answer, "result": cleaned}

    def _is_sound(self, entry: object) -> bool:
        try:
            from_json(json.dumps(entry, allow_nan=False).encode(), allow_inf_nan=False)
        except (ValueError, RecursionError) as error:
            name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
            self._note_junk(f"an entry of a listing: {error}", f"{name!r}".encode())
            return False
        return True

    def _take(self, message: dict[str, Any], data: bytes | bytearray) -> RequestId | None:
        method = message.get("method")
        if method is None:
            return self._take_answer(message, data)
        params = cast("dict[str, Any] | None", message.get("params"))
        if type(method) is not str or (params is not None and type(params) is not dict):
            self._note_junk("a request without a usable method or parameters", data)
            return None
        if "id" in message and message["id"] is not None:
            request_id = message["id"]
            if type(request_id) is int or type(request_id) is str:
                self._listener.on_request(request_id, method, params)
            else:
                self._note_junk("a request whose id is neither a number nor a text", data)
            return None
        if method == "notifications/progress" and params is not None:
            self._progress(params)
        self._listener.on_notification(method, params)
        return None

    def _take_answer(self, message: dict[str, Any], data: bytes | bytearray) -> RequestId | None:
        request_id = message.get("id")
        if type(request_id) is not int and type(request_id) is not str:
            self._note_junk("neither a request nor an answer", data)
            return None
        waiting = self._pop(request_id)
        if waiting is None:
            if (key := _key(request_id)) in self._given_up:
                self._given_up.remove(key)
            else:
                self._note_junk("an answer to an unknown id", data)
            return None
        error = message.get("error")
        if error is not None:
            waiting.resolve(_remote_error(error, keeps_data=self.size < LARGE))
        elif type(result := message.get("result")) is dict:
            waiting.resolve(cast("dict[str, Any]", result))
        else:
            kind = "no result" if "result" not in message else f"{_json_kind(result)} as its result"
            waiting.resolve(self._unusable(request_id, f"the answer to {waiting.method} has {kind}"))
        return request_id

    def _progress(self, params: dict[str, Any]) -> None:
        token, progress = params.get("progressToken"), _number(params.get("progress"))
        if (type(token) is not int and type(token) is not str) or progress is None:
            return
        waiting = self._waiting.get(_key(token))
        if waiting is not None and waiting.on_progress is not None:
            message = params.get("message")
            text = message if isinstance(message, str) else None
            waiting.on_progress(progress, _number(params.get("total")), text)

    def _pop(self, request_id: RequestId) -> _Waiting | None:
        waiting = self._waiting.pop(_key(request_id), None)
        if waiting is not None and waiting.lenient:
            self._lenient -= 1
        return waiting

    def _free_id(self) -> int:
        self._last_id += 1
        while self._last_id in self._waiting:
            self._last_id += 1
        return self._last_id

    def _note_junk(self, reason: str, data: bytes | bytearray) -> None:
        self.junk += 1
        self._listener.on_junk(reason, bytes(data[:200]))

    def _unusable(self, request_id: object, message: str) -> ProtocolError:
        return ProtocolError(message, rpc_code=PARSE_ERROR, data={"id": request_id})


def decode(data: bytes | bytearray) -> Any:
    """Parse a message.

    The garbage collector is off for a large message: it would scan a hundred thousand new objects again and
    again, none of which is garbage yet: 126 ms instead of 31 for 3.8 MB.

    Raises:
        ValueError: It is not JSON, or has a number that is not finite (`NaN`, `1e999`).
    """
    if len(data) < LARGE:
        message = from_json(data, allow_inf_nan=False)
    else:
        collects = gc.isenabled()
        gc.disable()
        try:
            message = from_json(data, allow_inf_nan=False, cache_strings="keys")
        finally:
            if collects:
                gc.enable()
    if _overflows(message, data):
        raise ValueError(OVERFLOW)
    return message


def decode_bounded(data: bytes) -> Any:
    """Parse a message of a client, which must not be nested too deeply either.

    Raises:
        ValueError: As for `decode`, or it has more than `MAX_DEPTH` levels.
    """
    try:
        message = decode(data)
    except RecursionError as exc:
        raise ValueError(TOO_DEEP) from exc
    # Each level takes a bracket: most messages have too few of them to be deep.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deep(message):
        raise ValueError(TOO_DEEP)
    return message


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _overflows(message: object, data: bytes | bytearray) -> bool:
    """Return whether the message has a number such as 1e400, which the parser turns into infinity.

    Checking the values is cheaper for a few long strings. For a short message or many values it is cheaper to
    search the text for a number that could be so large.
    """
    if len(data) < SHORT and not _may_overflow(data):
        return False
    values = [message]
    for number, value in enumerate(values):
        if number == MANY and not _may_overflow(data):
            return False
        if type(value) is str:
            continue
        if type(value) is dict:
            values.extend(cast("dict[str, object]", value).values())
        elif type(value) is list:
            values.extend(cast("list[object]", value))
        elif type(value) is float and isinf(value):
            return True
    return False


def _may_overflow(data: bytes | bytearray) -> bool:
    """Return whether the text has an exponent of three digits, or a very long number."""
    shape = data.translate(_DIGIT_SHAPE, b"+")
    return b"0e000" in shape or _LONG_NUMBER in shape


def _readable_ids(head: bytes, tail: bytes) -> list[RequestId]:
    """Return the ids of the answers in an unreadable message, from its top-level keys only."""
    found: list[RequestId] = []
    depth, top = 0, 1
    for token in _TOKEN.finditer(head) if b'"id"' in head else ():
        match token[0]:
            case b"{" | b"[":
                if depth == 0:
                    top = 2 if token[0] == b"[" else 1
                depth += 1
            case b"}" | b"]":
                depth = max(0, depth - 1)
            case b'"id"' if depth == top and (value := _ID.match(head, token.end())):
                found.append(_id_of(value))
            case b'"method"' if depth == top and head[token.end() :].lstrip().startswith(b":"):
                return []
            case _:
                pass
    if not found and (value := _LAST_ID.search(tail)):
        found.append(_id_of(value))
    return found


def _id_of(value: re.Match[bytes]) -> RequestId:
    return int(value[1]) if value[1] else value[2].decode("utf-8", "replace")


def _key(request_id: RequestId) -> RequestId:
    """Make 7 and "7" the same id, since some peers return it as a string."""
    if type(request_id) is str and request_id.isascii() and request_id.isdecimal() and len(request_id) < 19:
        return int(request_id)
    return request_id


def encode(message: object) -> bytes:
    """Write a message as JSON.

    Raises:
        InvalidArgumentsError: JSON cannot express it. NaN and infinities end peers that read strictly.
    """
    try:
        data = to_json(message)
    except ValueError as error:
        reason = str(error)
    else:
        if not _has_words(data) if len(data) < SHORT else _is_finite(message, data):
            return data
        if _is_json(data, allow_inf_nan=False):
            return data  # only a text has the words
        reason = NOT_FINITE
    msg = f"the request cannot be written as JSON (nothing was sent): {reason}"
    raise InvalidArgumentsError(msg, problems=[reason])


def _has_words(data: bytes | bytearray) -> bool:
    return data.find(b"NaN") >= 0 or data.find(b"Infinity") >= 0


def _is_json(data: bytes | bytearray, *, allow_inf_nan: bool) -> bool:
    try:
        from_json(data, allow_inf_nan=allow_inf_nan)
    except ValueError:
        return False
    return True


def _is_finite(message: object, data: bytes) -> bool:
    """Return whether all numbers are finite, by the values: searching long texts takes longer."""
    values = [message]
    for number, value in enumerate(values):
        kind = type(value)
        if kind in _FINITE:
            continue
        if kind is dict:
            values.extend(cast("dict[str, object]", value).values())
        elif kind is list:
            values.extend(cast("list[object]", value))
        elif kind is not float or number > MANY:
            return not _has_words(data)
        elif not isfinite(cast("float", value)):
            return False
    return True


def _remote_error(error: object, *, keeps_data: bool) -> ProtocolError:
    """Return the error of a server; a very long message is cut."""
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    code, message = fields.get("code"), fields.get("message")
    if isinstance(message, str) and message:
        text = message if len(message) <= ERROR_CHARS else f"{message[:ERROR_CHARS]}…"
    else:
        shown = f"{cast('object', error)!r:.200}" if keeps_data else "a very long one"
        text = f"the server reported an error: {shown}"
    data = fields.get("data") if keeps_data else None
    return ProtocolError(text, rpc_code=code if type(code) is int else INTERNAL_ERROR, data=data)


def _number(value: object) -> float | None:
    if type(value) is not int and type(value) is not float:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _json_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "a list"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case _:
            return "a number"


SMALL_PIECE = 4096
"""Bytes; a larger piece is kept as it is."""


class Bounded:
    """Collects one message; beyond the limit it keeps only both ends."""

    def __init__(self, limit: int, *, ends: int) -> None:
        """Keep everything up to `limit` bytes, or the first and last `ends` bytes of a longer message."""
        self.size = 0
        """How many bytes were added, kept or not."""
        self.limit = limit
        self._ends = ends
        self._head = b""
        self._pieces: list[bytes | bytearray] = []

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are kept."""
        return self.size <= self.limit

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The first and the last bytes; they overlap in a short message."""
        kept = self._joined()
        return self._head or kept[: self._ends], kept[-self._ends :]

    def add(self, piece: bytes) -> None:
        """Add a piece."""
        self.size += len(piece)
        pieces = self._pieces
        if len(piece) >= SMALL_PIECE:
            pieces.append(piece)
        elif pieces and type(pieces[-1]) is bytearray:
            pieces[-1] += piece
        else:
            # Small pieces are collected: as objects of their own, single bytes would take much memory.
            pieces.append(bytearray(piece))
        if not self.is_whole:
            kept = self._joined()
            if len(self._head) < self._ends:
                self._head = kept[: self._ends]
            self._pieces = [kept[-self._ends :]]

    def take(self) -> bytes:
        """Return the kept bytes, and start an empty message."""
        taken = self._joined()
        self._pieces = []
        self._head = b""
        self.size = 0
        return taken

    def _joined(self) -> bytes:
        """Return the kept bytes, which are copied once."""
        joined = b"".join(self._pieces)
        self._pieces = [joined]
        return joined
