from __future__ import annotations

import inspect
from typing import Any

import pytest

from dragoman.agent.handlers import Field, Form, SamplingLimits, Visit, make_handlers, question
from dragoman.agent.providers import ScriptedProvider
from dragoman.errors import AgentError

pytestmark = pytest.mark.requirement("otter-later.sampling")

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
    "maxTokens": 9_999,
}


@pytest.mark.anyio
async def test_sampling_is_bounded_in_tokens_and_in_requests_a_minute() -> None:
    model = ScriptedProvider(["one", "two"])
    limits = SamplingLimits(per_minute=2, max_tokens=50)
    sampling = make_handlers(lambda: model, approve=lambda server, params: True, limits=limits).sampling
    assert sampling is not None
    for _ in range(2):
        answer = sampling("s", ASKED)
        assert inspect.isawaitable(answer)
        await answer
    refused = sampling("s", ASKED)
    assert inspect.isawaitable(refused)
    with pytest.raises(AgentError, match="the limit is 2 requests a minute"):
        await refused
    assert [request.max_tokens for request in model.requests] == [50, 50]


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on the card", "minLength": 2},
        "age": {"type": "integer", "minimum": 18},
        "ratio": {"type": "number", "default": 0.5},
        "agree": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
        "days": {"type": "array", "items": {"type": "string", "enum": ["mo", "tu"]}},
    },
    "required": ["name", "age"],
}


def form() -> Form:
    asked = question("cards", {"message": "Who are you?", "requestedSchema": SCHEMA})
    assert isinstance(asked, Form)
    return asked


def field(name: str) -> Field:
    return next(one for one in form().fields if one.name == name)


def test_a_form_has_the_fields_of_the_schema_in_its_order() -> None:
    fields = form().fields

    assert [(one.name, one.kind, one.required) for one in fields] == [
        ("name", "text", True),
        ("age", "integer", True),
        ("ratio", "number", False),
        ("agree", "boolean", False),
        ("colour", "choice", False),
        ("size", "choice", False),
        ("days", "choices", False),
    ]
    assert (fields[0].title, fields[0].description) == ("Your name", "As on the card")
    assert form().defaults() == {"ratio": 0.5}


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("name", " Li ", " Li "),
        ("age", " 42 ", 42),
        ("ratio", "0.25", 0.25),
        ("agree", "Yes", True),
        ("agree", "0", False),
        ("colour", "g", "g"),
        ("colour", "green", "g"),
        ("size", "Large", "l"),
        ("days", "mo, tu", ["mo", "tu"]),
    ],
)
def test_what_a_person_types_becomes_the_value(name: str, typed: str, value: object) -> None:
    assert field(name).read(typed) == value


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("age", "many", "a whole number is expected"),
        ("ratio", "nan", "a number is expected"),
        ("ratio", "1e999", "a number is expected"),
        ("agree", "perhaps", "yes or no"),
        ("colour", "blue", "choose one of: r, g"),
        ("days", "mo, we", "choose one of: mo, tu"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_expected(name: str, typed: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        field(name).read(typed)


def test_everything_that_breaks_the_schema_is_named() -> None:
    problems = form().problems({"name": "x", "age": 3})

    assert len(problems) == 2
    assert any("name" in problem for problem in problems)
    assert any("age" in problem for problem in problems)
    assert form().problems({"name": "Li", "age": 18}) == []


def test_an_address_is_a_visit() -> None:
    asked = question(
        "pay", {"mode": "url", "message": "Pay", "url": "https://pay.example/1", "elicitationId": "7"}
    )

    assert asked == Visit(server="pay", message="Pay", url="https://pay.example/1", id="7")


@pytest.mark.parametrize("params", [{}, {"requestedSchema": None}, {"requestedSchema": {"properties": []}}])
def test_a_question_without_fields_is_an_empty_form(params: dict[str, object]) -> None:
    asked = question("odd", params)

    assert isinstance(asked, Form)
    assert asked.fields == ()
