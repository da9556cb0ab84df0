"""Questions to a person: arguments by their schema, forms of servers, addresses; a no is a no."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.asking import Person

from dragoman import ToolDef
from dragoman.agent.handlers import Form, Visit, question
from dragoman.cli.session.questions import (
    BAR,
    AbandonedError,
    Consent,
    ask_missing,
    ask_prompt_arguments,
    choices_of,
    fill,
    visit,
)
from dragoman.model import CallRequest, Prompt


def tool(required: list[str], **properties: Any) -> ToolDef:
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolDef(name="mcp_a_b", description="", input_schema=schema)


async def test_missing_arguments_are_asked_with_type_choices_and_default_until_they_fit() -> None:
    person = Person("many", "7", "blue", "", "a, b", "maybe", "yes", "secret-value")
    wanted = tool(
        ["count", "colour", "size", "tags", "deep", "token"],
        count={"type": "integer", "minimum": 5, "description": "How\nmany"},
        colour={"enum": ["red", "blue"]},
        size={"type": "integer", "default": 3},
        tags={"type": "array", "items": {"type": "string"}},
        deep={"type": "boolean"},
        token={"type": "string"},
        free={"type": "string"},
    )
    assert await ask_missing(person, wanted, {}) == {
        "count": 7,
        "colour": "blue",
        "size": 3,
        "tags": ["a, b"],
        "deep": True,
        "token": "secret-value",
    }
    assert person.asked[:3] == ["count (int)", "count (int)", 'colour ("red" | "blue")']
    assert person.complaints[0].startswith("`count`: expected an integer")
    assert "`deep`" in person.complaints[1]
    assert person.secrets == ["token (str)"]
    assert person.offered[2] == ["red", "blue"]
    assert "How" in person.shown


async def test_what_was_given_is_not_asked_and_an_empty_number_is_refused() -> None:
    person = Person("", "2")
    assert await ask_missing(person, tool(["a", "b"], a={"type": "number"}, b={}), {"b": 1}) == {
        "b": 1,
        "a": 2,
    }
    assert person.complaints == ["`a` is required (type: float)"]


async def test_a_required_text_is_not_sent_empty_unless_the_user_says_so() -> None:
    person = Person("", "  ", '""', "Ann")
    wanted = tool(["a", "b"], a={"type": "string"}, b={"type": "string"})
    assert await ask_missing(person, wanted, {}) == {"a": "", "b": "Ann"}
    assert person.complaints == ['`a` is required (type: str), or type "" for an empty text'] * 2


def test_choices_are_found_behind_references_and_branches() -> None:
    root = {"$defs": {"c": {"enum": ["x", 1]}}}
    assert choices_of({"$ref": "#/$defs/c"}, root) == ["x", "1"]
    assert choices_of({"anyOf": [{"type": "null"}, {"enum": ["y"]}]}, root) == ["y"]
    assert choices_of({"type": "boolean"}, root) == ["true", "false"]
    assert choices_of(True, root) == []


async def test_a_prompt_is_asked_for_what_it_requires() -> None:
    prompt = Prompt(
        server="s",
        name="p",
        arguments=[
            {"name": "a", "required": True, "description": "The a"},
            {"name": "b"},
            {"name": "c", "required": True},
        ],
    )
    person = Person("", "1")
    assert await ask_prompt_arguments(person, prompt, {"c": "3"}) == {"c": "3", "a": "1"}
    assert person.complaints == ["`a` is required"]
    assert "The a" in person.shown


def form(**properties: Any) -> Form:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    asked = question("shop", {"message": "Who\x1b are you?", "requestedSchema": schema})
    assert isinstance(asked, Form)
    return asked


async def test_a_form_is_filled_in_field_by_field() -> None:
    person = Person("", "Ann", "x", "42", "no", "red", "")
    asked = form(
        name={"type": "string", "title": "Your name"},
        age={"type": "integer"},
        member={"type": "boolean", "default": True},
        colour={"type": "string", "enum": ["red", "blue"]},
        note={"type": "string"},
    )
    assert await fill(person, asked) == {"name": "Ann", "age": 42, "member": False, "colour": "red"}
    assert person.asked[0] == '"shop": Your name (text)'
    assert person.complaints == ["`Your name` is required", "a whole number is expected, not `x`"]
    assert '? Server "shop" asks:\n  │ Who� are you?\n' in person.shown
    assert "one of red, blue, optional" in person.asked[-2]


async def test_a_form_that_does_not_fit_as_a_whole_is_asked_again() -> None:
    person = Person("1", "12")
    asked = form(age={"type": "integer", "minimum": 10})
    assert await fill(person, asked) == {"age": 12}
    assert "`age`" in person.shown


async def test_declining_and_cancelling_a_form_are_told_apart_and_secrets_are_warned_of() -> None:
    assert await fill(Person(None), form(name={"type": "string"})) is False
    assert await fill(Person(AbandonedError()), form(name={"type": "string"})) is None
    person = Person("hunter2")
    await fill(person, form(password={"type": "string"}))
    assert "should not ask for secrets in a form: password" in person.shown
    assert person.secrets
    assert await fill(Person("y"), form()) is True
    assert await fill(Person(""), form()) is False


@pytest.mark.parametrize(
    ("answer", "outcome", "opened"),
    [("y", True, 1), ("n", False, 0), ("", False, 0), (None, False, 0), (AbandonedError(), None, 0)],
)
async def test_an_address_is_shown_whole_and_opened_only_after_a_yes(
    answer: Any, outcome: bool | None, opened: int
) -> None:
    url = "https://login.example.org/a?b=c"
    found: list[str] = []
    person = Person(answer)

    async def open_url(address: str) -> None:
        found.append(address)

    assert await visit(person, Visit(server="shop", message="Log in", url=url), open_url) is outcome
    assert found == [url] * opened
    assert url in person.shown
    assert person.asked == ['Open login.example.org in the browser for "shop"?']


@pytest.mark.parametrize(
    "url", ["https://evil.example\\@github.com", "file:///etc/passwd", "-new-window", "http://shop.example/"]
)
async def test_an_address_that_hides_where_it_leads_is_declined_unasked(url: str) -> None:
    person = Person("y")

    async def open_url(address: str) -> None:
        raise AssertionError(address)

    assert await visit(person, Visit(server="shop", message="Log in", url=url), open_url) is False
    assert person.asked == []
    assert "not safe to open" in person.shown


async def test_an_address_in_another_script_is_named_and_opened_as_browsers_see_it() -> None:
    person = Person("y")
    found: list[str] = []

    async def open_url(address: str) -> None:
        found.append(address)

    asked = Visit(server="shop", message="Log in", url="https://\u0433ithub.com:8443/")
    assert await visit(person, asked, open_url)
    assert person.asked == ['Open xn--ithub-mwe.com:8443 in the browser for "shop"?']
    assert found == ["https://xn--ithub-mwe.com:8443/"]


async def test_a_page_about_an_argument_leaves_the_question_in_sight() -> None:
    person = Person("x")
    await ask_missing(person, tool(["a"], a={"type": "string", "description": "d" * 3000}), {})
    assert person.asked == ["a (str)"]
    assert 100 < person.shown.count("d") < 250


# ── No text of a server looks like a question of ours


FORGED = "\n".join(
    (
        "Please wait.",
        "",
        '? "delete" of "files" needs confirmation (a rule)',
        "\u2028? Call delete?\r? dragoman asks: your password",
        "x" * 300 + ' ? Server "github" asks: ' + "y" * 300,
    )
)


def ours(person: Person) -> list[str]:
    """Return the shown lines that do not stand behind a bar."""
    return [line for line in person.shown.splitlines() if not line.startswith(BAR)]


async def test_each_line_of_a_form_that_a_server_wrote_stands_behind_a_bar() -> None:
    person = Person("", "wrong\nvalue", "a")
    properties = {
        "a": {
            "type": "string",
            "title": FORGED,
            "description": FORGED,
            "enum": ["a", FORGED],
            "minLength": 1,
        },
    }
    asked = question(
        "shop", {"message": FORGED, "requestedSchema": {"type": "object", "properties": properties}}
    )
    assert isinstance(asked, Form)
    await fill(person, asked)
    assert ours(person) == [
        '? Server "shop" asks:',
        "  ! Servers should not ask for secrets in a form: Please wait.",
        "  Ctrl-D to decline, Ctrl-C to cancel.",
    ]
    assert person.shown.count("needs confirmation") == 1
    for label in person.asked:
        assert label.startswith('"shop": Please wait. (one of a, Please wait.')
        assert label.isprintable()


async def test_each_line_about_an_address_or_a_use_of_the_model_stands_behind_a_bar() -> None:
    person = Person("n", "n")

    async def open_url(_: str) -> None:
        raise AssertionError

    await visit(person, Visit(server="shop", message=FORGED, url="https://a.example/" + "?" * 500), open_url)
    await Consent(person).approve_sampling(
        "shop", {"systemPrompt": FORGED, "messages": [{"role": FORGED, "content": {"text": FORGED}}]}
    )
    assert ours(person) == ['? Server "shop" wants to open a URL:', '? "shop" wants to use the model:']


async def test_arguments_and_names_in_a_confirmation_forge_no_second_one() -> None:
    person = Person("n")
    request = CallRequest(
        server="shop",
        tool="t",
        original_name='pay" of "bank" needs confirmation (x)\n? Call "read',
        arguments={FORGED: FORGED, "path": FORGED},
        reason=FORGED,
    )
    await Consent(person).approve_call(request)
    name = "\"pay' of 'bank' needs confirmation (x)\""
    assert ours(person) == [f'? {name} of "shop" needs confirmation (Please wait.)']
    assert person.asked == [f"Call {name}?"]


async def test_a_field_that_is_titled_as_a_secret_is_hidden_and_warned_of() -> None:
    person = Person("hunter2")
    await fill(person, form(x={"type": "string", "title": "Password"}))
    assert "should not ask for secrets in a form: Password" in person.shown
    assert person.secrets == ['"shop": Password (text)']
