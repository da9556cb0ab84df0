from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dragoman.errors import ConnectionLostError, DragomanError, InvalidArgumentsError, ProtocolError
from dragoman.server.protocol.rpc import PARSE_ERROR, SALVAGE_BYTES, Rpc

OK = {"content": []}
LOST = ConnectionLostError("gone", server="s", may_have_run=True)


class Heard:
    """Takes down what a core tells."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, str, Any]] = []
        self.notifications: list[tuple[str, Any]] = []
        self.junk: list[tuple[str, bytes]] = []

    def on_request(self, request_id: Any, method: str, params: Any) -> None:
        self.requests.append((request_id, method, params))

    def on_notification(self, method: str, params: Any) -> None:
        self.notifications.append((method, params))

    def on_junk(self, reason: str, sample: bytes) -> None:
        self.junk.append((reason, sample))


class Talk:
    """A core with calls that wait, and what they came to."""

    def __init__(self, calls: int = 1, **more: Any) -> None:
        self.heard = Heard()
        self.rpc = Rpc(self.heard)
        self.outcomes: dict[Any, list[dict[str, Any] | DragomanError]] = {}
        self.ids = [self.call(**more) for _ in range(calls)]

    def call(self, method: str = "tools/call", **more: Any) -> Any:
        outcomes: list[dict[str, Any] | DragomanError] = []
        request_id, _ = self.rpc.request(method, {}, resolve=outcomes.append, **more)
        self.outcomes[request_id] = outcomes
        return request_id

    def say(self, message: object) -> Any:
        return self.rpc.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def outcome(self, request_id: Any = 1) -> dict[str, Any] | DragomanError:
        (one,) = self.outcomes[request_id]
        return one

    def failure(self, request_id: Any = 1) -> ProtocolError:
        error = self.outcome(request_id)
        assert isinstance(error, ProtocolError)
        return error


def answer(request_id: Any = 1, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **(more or {"result": OK})}


# ── what goes out


def test_request_has_an_id_a_method_and_its_parameters() -> None:
    rpc = Rpc(Heard())
    request_id, data = rpc.request("tools/call", {"name": "x"}, resolve=print)
    assert json.loads(data) == {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": "x"},
    }
    _, bare = rpc.request("ping", None, resolve=print)
    assert "params" not in json.loads(bare)
    assert rpc.waiting == 2
    assert rpc.waits_for("ping")
    assert not rpc.waits_for("tools/list")


def test_ids_are_new_each_time_and_pass_over_those_of_the_callers() -> None:
    talk = Talk(0)
    assert [talk.call(), talk.call(request_id=2), talk.call(), talk.call(request_id="4"), talk.call()] == [
        1,
        2,
        3,
        "4",
        5,
    ]


@pytest.mark.parametrize("again", [7, "7"])
def test_id_that_is_in_use_is_refused(again: Any) -> None:
    talk = Talk(0)
    talk.call(request_id=7)
    with pytest.raises(ValueError, match="already in use"):
        talk.call(request_id=again)


def test_progress_token_is_put_beside_what_the_caller_has_in_meta() -> None:
    rpc = Rpc(Heard())
    params = {"name": "x", "_meta": {"trace": 1}}
    _, data = rpc.request("tools/call", params, resolve=print, on_progress=print)
    assert json.loads(data)["params"]["_meta"] == {"trace": 1, "progressToken": 1}
    assert params["_meta"] == {"trace": 1}
    _, data = rpc.request("tools/call", None, resolve=print, on_progress=print)
    assert json.loads(data)["params"] == {"_meta": {"progressToken": 2}}


def test_notification_result_and_error() -> None:
    rpc = Rpc(Heard())
    assert json.loads(rpc.notification("n")) == {"jsonrpc": "2.0", "method": "n"}
    assert json.loads(rpc.notification("n", {"a": 1}))["params"] == {"a": 1}
    assert json.loads(rpc.result("r1", {"a": 1})) == {"jsonrpc": "2.0", "id": "r1", "result": {"a": 1}}
    assert json.loads(rpc.error(3, -1, "no"))["error"] == {"code": -1, "message": "no"}
    assert json.loads(rpc.error(3, -1, "no", [1]))["error"] == {"code": -1, "message": "no", "data": [1]}


@pytest.mark.parametrize("bad", ["\ud800", object()], ids=["surrogate", "object"])
def test_what_cannot_be_written_is_an_error_of_the_caller_and_nothing_waits(bad: object) -> None:
    rpc = Rpc(Heard())
    with pytest.raises(InvalidArgumentsError, match="cannot be written as JSON"):
        rpc.request("tools/call", {"x": bad}, resolve=print)
    assert rpc.waiting == 0


# ── answers


@pytest.mark.parametrize("dress", ["plain", "text id", "mark", "spaces"])
def test_answer_resolves_its_call(dress: str) -> None:
    talk = Talk()
    data = json.dumps(answer("1" if dress == "text id" else 1)).encode()
    data = {"mark": b"\xef\xbb\xbf" + data, "spaces": b" \t" + data + b" \r"}.get(dress, data)
    assert str(talk.say(data)) == "1"
    assert talk.outcome() == OK
    assert (talk.rpc.waiting, talk.rpc.junk, talk.rpc.received) == (0, 0, 1)


def test_text_id_of_the_callers_own_comes_back_as_it_is() -> None:
    talk = Talk(0)
    for own in ("a", "007", "²", "9" * 19):
        talk.call(request_id=own)
        talk.say(answer(own))
        assert talk.outcome(own) == OK


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "null"),
        ([], "a list"),
        ("x", "a text"),
        (True, "true or false"),
        (7, "a number"),
        (1.5, "a number"),
    ],
)
def test_result_that_is_no_object_fails_its_call(result: object, said: str) -> None:
    talk = Talk()
    talk.say(answer(result=result))
    assert f"tools/call has {said} as its result" in str(talk.failure())
    assert talk.failure().rpc_code == PARSE_ERROR


def test_answer_without_result_and_error_fails_its_call() -> None:
    talk = Talk()
    talk.say({"jsonrpc": "2.0", "id": 1})
    assert "has no result" in str(talk.failure())


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ({"code": -32602, "message": "no", "data": {"a": 1}}, -32602, "no"),
        ({"code": "E1", "message": 5}, -32603, "reported an error"),
        ({}, -32603, "reported an error: {}"),
        ("went wrong", -32603, "'went wrong'"),
        ([1], -32603, "[1]"),
        (False, -32603, "False"),
        ({"code": True, "message": ""}, -32603, "reported an error"),
    ],
)
def test_error_of_any_shape_fails_its_call(error: object, code: int, said: str) -> None:
    talk = Talk()
    talk.say(answer(error=error))
    assert said in str(talk.failure())
    assert talk.failure().rpc_code == code


def test_error_wins_over_a_result_unless_it_is_null() -> None:
    talk = Talk(2)
    talk.say(answer(1, error={"code": 1, "message": "x"}, result=OK))
    talk.say(answer(2, error=None, result=OK))
    assert talk.failure(1).rpc_code == 1
    assert talk.outcome(2) == OK


def test_enormous_error_is_said_in_short() -> None:
    talk = Talk()
    talk.say(answer(error="x" * 100_000))
    assert len(str(talk.failure())) < 400


@pytest.mark.parametrize("wrong", [2, -1, "nobody", None, 1.0, True, [], {}])
def test_answer_without_a_request_is_junk(wrong: object) -> None:
    talk = Talk()
    assert talk.say(answer(wrong)) is None
    assert talk.rpc.junk == 1
    assert talk.outcomes[1] == []


def test_second_answer_is_junk() -> None:
    talk = Talk()
    talk.say(answer())
    talk.say(answer(result={"other": 1}))
    assert talk.outcome() == OK
    assert talk.rpc.junk == 1


def test_last_of_two_equal_keys_counts() -> None:
    talk = Talk()
    talk.say(b'{"jsonrpc":"2.0","id":5,"id":1,"result":{"a":1},"result":{"a":2}}')
    assert talk.outcome() == {"a": 2}


@pytest.mark.parametrize("size", [10, 100_000])
def test_numbers_at_the_edge_are_read_in_small_and_in_large_answers(size: int) -> None:
    """Digits in a text, a long fraction, and the largest float are no reason to refuse an answer."""
    talk = Talk()
    edge = {
        "text": "2e999" + "1" * 500,
        "most": 1.7976931348623157e308,
        "least": 5e-324,
        "list": [0.5] * size,
    }
    talk.say(json.dumps({"jsonrpc": "2.0", "id": 1, "result": edge}).encode())
    assert talk.outcome() == edge


def test_of_an_error_that_is_a_book_the_beginning_is_kept() -> None:
    talk = Talk()
    talk.say(answer(error={"code": 5, "message": "long " * 100_000, "data": ["x"] * 100_000}))
    error = talk.failure()
    assert (error.rpc_code, error.data) == (5, None)
    assert str(error).startswith("long long")
    assert len(str(error)) < 20_000


# ── what does not parse

BROKEN = {
    "bad UTF-8": b'{"jsonrpc":"2.0","id":1,"result":{"t":"\xff"}}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"result":{"t":NaN}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"result":{"t":Infinity}}',
    "-Infinity": b'{"jsonrpc":"2.0","id":1,"result":{"t":-Infinity}}',
    "an exponent too large": b'{"jsonrpc":"2.0","id":1,"result":{"t":[{"u":1e400}]}}',
    "a negative one": b'{"jsonrpc":"2.0","id":1,"result":{"t":-1E+0999}}',
    "a fraction with too many digits": b'{"jsonrpc":"2.0","id":1,"result":{"t":' + b"9" * 400 + b".0}}",
    **{
        f"{number[:20].decode()} after many": b'{"jsonrpc":"2.0","id":1,"result":{"t":[%s],"u":%s}}'
        % (b",".join([b"[0.5]"] * 100_000), number)
        for number in (b"1e400", b"-1E+0999", b"9" * 230 + b"e90", b"9" * 400 + b".0")
    },
    "too deep": b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    "a long number": b'{"jsonrpc":"2.0","id":1,"result":{"t":' + b"9" * 5000 + b"}}",
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"result":{"t":"\\ud800"}}',
    "a control character": b'{"jsonrpc":"2.0","id":1,"result":{"t":"\0"}}',
    "cut": b'{"jsonrpc":"2.0","id":1,"result":{"t":"a',
    "a text as id": b'{"jsonrpc":"2.0","id":"1","result":{"t":NaN}}',
    "the id last": b'{"jsonrpc":"2.0","result":{"t":NaN},"id":1}',
    "the id last but one": b'{"result":{"t":NaN},"id": 1 , "jsonrpc" : "2.0" }',
    "the id last and far away": b'{"result":{"t":[NaN' + b",1" * SALVAGE_BYTES + b']},"id":1}',
    "unescaped quotes": b'{"result":{"t":"say "hi""},"id":1}',
    "something before it": b'DEBUG {"jsonrpc":"2.0","id":1,"result":{}}',
    "something behind it": b'{"jsonrpc":"2.0","id":1,"result":{}} ok',
    "brackets before it": b'[info] {"jsonrpc":"2.0","id":1,"result":{}}',
    "in a batch": b'[{"jsonrpc":"2.0","id":1,"result":{"t":NaN}}]',
    "with an odd end": b'}]{"jsonrpc":"2.0","id":1,"result":{}}',
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_unreadable_answer_whose_id_can_be_read_fails_its_call_at_once(data: bytes) -> None:
    talk = Talk()
    assert talk.say(data) in (1, "1")
    assert "cannot be read" in str(talk.failure())
    assert talk.rpc.junk == 1
    assert talk.rpc.waiting == 0


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_an_answer_with_a_number_that_json_lacks_says_so(number: bytes) -> None:
    talk = Talk()
    talk.say(b'{"jsonrpc":"2.0","id":1,"result":{"t":%s}}' % number)
    assert "NaN and infinities are not numbers in JSON" in str(talk.failure())


NOT_FINITE = {
    "NaN": {"x": math.nan},
    "infinity": {"x": [1, {"y": math.inf}]},
    "negative": {"x": (-math.inf,)},
    "of a subclass": {"x": type("Float", (float,), {})(math.nan)},
    "what a parser makes of 1e999": json.loads('{"x": 1e999}'),
    "after a long text": {"text": "a" * 10_000, "x": math.nan},
    "after many numbers": {"x": [0.5] * 10_000, "y": {"z": math.inf}},
    "in a tuple after a long text": {"text": "a" * 10_000, "x": (math.nan,)},
}


@pytest.mark.parametrize("params", NOT_FINITE.values(), ids=NOT_FINITE)
def test_a_number_that_is_not_finite_is_never_written(params: dict[str, Any]) -> None:
    talk = Talk()
    for write in (
        lambda: talk.rpc.request("x", params, resolve=print),
        lambda: talk.rpc.notification("x", params),
        lambda: talk.rpc.result(5, params),
        lambda: talk.rpc.error(5, 1, "x", params),
    ):
        with pytest.raises(InvalidArgumentsError, match="NaN and infinities are not numbers in JSON"):
            write()
    assert talk.rpc.waiting == 1


@pytest.mark.parametrize("padding", ["", "a" * 10_000])
def test_texts_may_have_the_names_of_such_numbers(padding: str) -> None:
    params = {"NaN": "Infinity", "x": ["-Infinity", "NaN", 1.5e308], "y": (1, 2), "text": padding}
    _, data = Talk().rpc.request("x", params, resolve=print)
    assert json.loads(data)["params"] == {**params, "y": [1, 2]}


def test_two_answers_in_one_line_fail_both_calls() -> None:
    talk = Talk(2)
    talk.say(b'{"jsonrpc":"2.0","id":1,"result":{}}{"jsonrpc":"2.0","id":2,"result":{}}')
    assert talk.failure(1)
    assert talk.failure(2)


OTHERS = {
    "an id inside of the result": b'{"id":2,"result":{"id":1,"t":NaN}}',
    "an id deep inside": b'{"result":[{"id":1},{"id":1}],"id":2,"t":NaN}',
    "an id in a text": b'{"id":2,"result":{"t":"\\"id\\":1","u":NaN}}',
    "an id in a text at the end": b'{"id":2,"t":NaN,"u":"\\"id\\":1}"}',
    "a request of the peer's": b'{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"t":NaN}}',
    "a request with its id last": b'{"jsonrpc":"2.0","method":"x","params":{"t":NaN},"id":1}',
    "an id as a value": b'{"result":"id","t":NaN}',
    "a number that is longer": b'{"id":1000000000000000000000,"t":NaN}',
    "a fraction": b'{"id":1.5,"t":NaN}',
    "a method as a value is no request": b'{"id":2,"result":"method","t":NaN}',
    "no JSON at all": b"INFO listening on stdio",
    "nothing": b"",
    "garbage": bytes(range(256)),
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS)
def test_id_that_is_not_the_answers_own_fails_no_call(data: bytes) -> None:
    talk = Talk()
    assert talk.say(data) is None
    assert talk.outcomes[1] == []
    assert talk.rpc.junk == 1


def test_too_long_a_message_fails_its_call_by_either_end() -> None:
    talk = Talk(2)
    assert talk.rpc.salvage(b'{"jsonrpc":"2.0","id":1,"result":{"t":"xxx', b"xxx", "too long") == 1
    assert talk.rpc.salvage(b'{"jsonrpc":"2.0","result":{"t":"xxx', b'xxx"},"id":2}\r', "too long") == 2
    assert "too long" in str(talk.failure(1))
    assert "too long" in str(talk.failure(2))


# ── a lenient reading


def listing(*entries: bytes, cursor: bytes = b'"c"') -> bytes:
    tools = b",".join(entries)
    return b'{"jsonrpc":"2.0","id":1,"result":{"tools":[%s],"nextCursor":%s}}' % (tools, cursor)


GOOD = b'{"name":"good"}'


@pytest.mark.parametrize(
    "bad",
    [
        b'{"name":"deep","x":' + b'{"a":' * 400 + b"1" + b"}" * 401,
        b'{"name":"nan","x":NaN}',
        b'{"name":"huge","x":{"maximum":1e400}}',
        b'{"name":"lone \\ud800"}',
        b'{"name":"long","x":' + b"9" * 4299 + b'e1,"y":Infinity}',
        b"NaN",
    ],
)
def test_lenient_call_loses_only_the_bad_entries(bad: bytes) -> None:
    talk = Talk(method="tools/list", lenient=True)
    talk.say(listing(GOOD, bad, GOOD))
    assert talk.outcome() == {"tools": [{"name": "good"}] * 2, "nextCursor": "c"}
    assert talk.rpc.junk == 1
    assert talk.rpc._lenient == 0


def test_lenient_call_gets_bad_bytes_replaced_and_bad_fields_left_out() -> None:
    talk = Talk(method="tools/list", lenient=True)
    talk.say(listing(b'{"name":"caf\xe9"}', cursor=b"NaN"))
    assert talk.outcome() == {"tools": [{"name": "caf\ufffd"}]}


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"result":[NaN]}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":[',
    ],
)
def test_lenient_call_fails_if_there_is_nothing_to_mend(data: bytes) -> None:
    talk = Talk(method="tools/list", lenient=True)
    talk.say(data)
    assert "cannot be read" in str(talk.failure())


@pytest.mark.parametrize(
    ("data", "ended"),
    [(b"[NaN]", []), (b'{"id":[],"t":NaN}', []), (b'{"id":2,"result":{"t":[NaN]}}', [2])],
)
def test_lenient_call_does_not_change_how_others_are_read(data: bytes, ended: list[int]) -> None:
    talk = Talk(0)
    talk.call(lenient=True)
    talk.call()
    talk.say(data)
    assert [request_id for request_id, outcomes in talk.outcomes.items() if outcomes] == ended


def test_lenience_ends_with_its_call() -> None:
    talk = Talk(0)
    for end in (talk.rpc.forget, lambda one: talk.rpc.fail(one, LOST), lambda one: talk.say(answer(one))):
        end(talk.call(lenient=True))
    talk.call(lenient=True)
    assert talk.rpc._lenient == 1
    talk.rpc.close(LOST)
    assert talk.rpc._lenient == 0


# ── what else comes in


def test_requests_and_notifications_are_passed_on_in_their_order() -> None:
    talk = Talk(0)
    talk.say({"id": 1, "method": "a", "params": {"x": 1}})
    talk.say({"method": "b"})
    talk.say({"id": None, "method": "c", "params": {}})
    talk.say({"id": "r", "method": "d"})
    assert talk.heard.requests == [(1, "a", {"x": 1}), ("r", "d", None)]
    assert talk.heard.notifications == [("b", None), ("c", {})]


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": 5},
        {"id": 1, "method": "a", "params": []},
        {"method": "a", "params": "x"},
        {"id": 1.5, "method": "a"},
        {"id": [], "method": "a"},
        {"id": True, "method": "a"},
        {},
        7,
        "text",
        None,
        True,
    ],
)
def test_message_of_the_wrong_shape_is_junk(message: object) -> None:
    talk = Talk(0)
    talk.say(message)
    assert talk.rpc.junk == 1
    assert not talk.heard.requests
    assert not talk.heard.notifications


def test_batch_is_taken_apart() -> None:
    talk = Talk(2)
    assert talk.say([answer(1), {"method": "n"}, 7, answer(2, result=[])]) == 2
    assert talk.outcome(1) == OK
    assert talk.failure(2)
    assert talk.heard.notifications == [("n", None)]
    assert talk.rpc.junk == 1
    assert talk.say([]) is None


def test_junk_is_shown_in_short() -> None:
    talk = Talk(0)
    talk.say(b"x" * 10_000)
    ((_, sample),) = talk.heard.junk
    assert len(sample) == 200


# ── progress


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"progressToken": 1, "progress": 1}, [(1.0, None, None)]),
        ({"progressToken": "1", "progress": 0.5, "total": 2, "message": "m"}, [(0.5, 2.0, "m")]),
        ({"progressToken": 1, "progress": 1, "total": "x", "message": 5}, [(1.0, None, None)]),
        ({"progressToken": 2, "progress": 1}, []),
        ({"progressToken": None, "progress": 1}, []),
        ({"progressToken": [], "progress": 1}, []),
        ({"progressToken": 1}, []),
        ({"progressToken": 1, "progress": "x"}, []),
        ({"progressToken": 1, "progress": True}, []),
        (None, []),
    ],
)
def test_progress_reaches_its_call_and_is_passed_on(params: Any, told: list[Any]) -> None:
    seen: list[Any] = []
    talk = Talk(on_progress=lambda *facts: seen.append(facts))
    talk.say({"method": "notifications/progress", "params": params})
    assert seen == told
    assert talk.heard.notifications == [("notifications/progress", params)]


def test_progress_beyond_every_number_reaches_its_call_all_the_same() -> None:
    seen: list[Any] = []
    talk = Talk(on_progress=lambda *facts: seen.append(facts))
    huge = b"9" * 400
    talk.say(
        b'{"method":"notifications/progress","params":{"progressToken":1,"progress":%s,"total":%s}}'
        % (huge, huge)
    )
    assert len(seen) <= 1


def test_progress_of_a_call_without_a_handler_and_after_its_end_is_only_passed_on() -> None:
    talk = Talk()
    for _ in range(2):
        talk.say({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
        talk.say(answer())
    assert len(talk.heard.notifications) == 2


# ── the end


def test_forgotten_call_is_never_resolved() -> None:
    talk = Talk()
    assert talk.rpc.forget("1")
    assert not talk.rpc.forget(1)
    talk.say(answer())
    assert talk.outcomes[1] == []
    assert talk.rpc.junk == 0, "the server may have sent it before it knew"
    talk.say(answer())
    assert talk.rpc.junk == 1, "but once"


def test_failed_call_is_resolved_once() -> None:
    talk = Talk()
    assert talk.rpc.fail(1, LOST)
    assert not talk.rpc.fail(1, LOST)
    assert talk.outcome() is LOST


def test_close_resolves_every_call_and_refuses_later_ones() -> None:
    talk = Talk(3)
    talk.say(answer(2))
    talk.rpc.close(LOST)
    talk.rpc.close(ConnectionLostError("later", server="s", may_have_run=False))
    assert [talk.outcome(1), talk.outcome(2), talk.outcome(3)] == [LOST, OK, LOST]
    with pytest.raises(ConnectionLostError, match="gone"):
        talk.call()


def test_call_that_is_begun_while_the_rest_is_closed_is_refused() -> None:
    talk = Talk(0)
    refused: list[str] = []

    def resolve(_: object) -> None:
        try:
            talk.call()
        except ConnectionLostError as exc:
            refused.append(exc.message)

    talk.rpc.request("a", None, resolve=resolve)
    talk.rpc.close(LOST)
    assert refused == ["gone"]
    assert talk.rpc.waiting == 0
