from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import functools
import subprocess
import sys
import threading
from collections.abc import Callable  # noqa: TC003 -- pydantic reads hints at run time
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import TypedDict

from dragoman import InvalidArgumentsError, McpManager, ToolFailedError, ToolRegistry, ToolResult, tool
from dragoman.model import ToolDef

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    boss: Person | None = None


class Unadorned:
    def greet(self, name: str) -> str:
        return f"hello {name}"


class Address(TypedDict):
    street: str


async def run(made: ToolDef, **arguments: Any) -> str:
    registry = ToolRegistry()
    assert registry.register(made)
    return await registry.call(made.name, arguments)


def properties(made: ToolDef) -> dict[str, Any]:
    return made.input_schema["properties"]


def test_a_function_becomes_a_definition_and_can_still_be_called() -> None:
    @tool
    def search(query: str, limit: int = 10) -> str:
        """Search the index.

        Args:
            query: What to look for.
            limit: How many at most.
        """
        return f"{query}/{limit}"

    assert isinstance(search, ToolDef)
    assert (search.name, search.description, search.source) == ("search", "Search the index.", "builtin")
    assert search.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 10, "description": "How many at most."},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert search.output_schema is None
    assert search("a", limit=2) == "a/2"


def test_name_description_title_and_annotations_can_be_given() -> None:
    @tool(name="find", description="Find.", title="Finder", annotations={"readOnlyHint": True})
    def search() -> None:
        """Not this."""

    assert (search.name, search.description, search.title) == ("find", "Find.", "Finder")
    assert search.annotations == {"readOnlyHint": True}
    assert search.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_values_arrive_as_the_types_that_the_function_wants() -> None:
    seen: dict[str, Any] = {}

    @tool
    def take(
        person: Person,
        point: Point,
        colour: Colour,
        when: dt.date,
        where: Path,
        *,
        home: Address,
        mode: Literal["a", "b"] = "a",
        maybe: Optional[int] = None,  # noqa: UP045 -- people write it so
        tags: list[str] = [],  # noqa: B006 -- people write that too
    ) -> None:
        seen.update(locals())

    given = {
        "person": {"name": "n", "boss": {"name": "b"}},
        "point": {"x": 1},
        "colour": "blue",
        "when": "2026-01-30",
        "where": "a/b",
        "home": {"street": "s"},
    }
    await run(take, **given)
    assert seen["person"] == Person(name="n", boss=Person(name="b"))
    assert (seen["point"], seen["colour"]) == (Point(1, 0), Colour.BLUE)
    assert (seen["when"], seen["where"]) == (dt.date(2026, 1, 30), Path("a/b"))
    assert (seen["home"], seen["mode"], seen["maybe"], seen["tags"]) == ({"street": "s"}, "a", None, [])
    assert properties(take)["mode"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert properties(take)["maybe"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert set(take.input_schema["required"]) == set(given)
    assert set(take.input_schema["$defs"]) == {"Person", "Point", "Colour", "Address"}


async def test_a_default_that_is_a_list_is_a_new_one_for_every_call() -> None:
    @tool
    def collect(item: str, into: list[str] = []) -> list[str]:  # noqa: B006 -- the point of the test
        into.append(item)
        return into

    assert await run(collect, item="a") == '["a"]'
    assert await run(collect, item="b") == '["b"]'


def test_what_a_field_says_wins_over_the_docstring() -> None:
    @tool
    def search(limit: Annotated[int, Field(ge=1, le=5, description="From the field.")]) -> None:
        """Search.

        Args:
            limit: From the docstring.
            gone: No such parameter.
        """

    limit = {"type": "integer", "minimum": 1, "maximum": 5, "description": "From the field."}
    assert properties(search) == {"limit": limit}


async def test_arguments_that_do_not_fit_are_all_named_and_nothing_runs() -> None:
    ran: list[object] = []

    @tool
    def take(number: Annotated[int, Field(ge=1)], point: Point) -> None:
        ran.append(number)

    with pytest.raises(InvalidArgumentsError) as caught:
        await run(take, number=0, point={"x": "no"})
    assert len(caught.value.problems) == 2
    assert "`number`: input should be greater than or equal to 1" in caught.value.problems
    assert caught.value.problems[1].startswith("`point.x`: ")
    assert ran == []


async def test_an_error_of_pydantic_inside_the_function_is_the_functions_own() -> None:
    @tool
    def take(text: str) -> Person:
        return Person.model_validate({"nome": text})

    with pytest.raises(ToolFailedError) as caught:
        await run(take, text="x")
    assert isinstance(caught.value.__cause__, ValidationError)


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    threads: list[int] = []

    @tool
    def plain() -> None:
        threads.append(threading.get_ident())

    @tool
    async def waits() -> str:
        await asyncio.sleep(0)
        threads.append(threading.get_ident())
        return "waited"

    await run(plain)
    assert await run(waits) == "waited"
    assert await waits() == "waited"
    assert threads[0] != threading.get_ident()
    assert threads[1:] == [threading.get_ident()] * 2


async def test_what_is_returned_is_told_as_json_and_as_a_schema_where_it_is_an_object() -> None:
    @tool
    def who() -> Person:
        return Person(name="n")

    @tool
    def where() -> Point:
        return Point(1)

    @tool
    def counts() -> dict[str, int]:
        return {"a": 1}

    @tool
    def many() -> list[Person]:
        return [Person(name="n")]

    assert await run(who) == '{"name": "n", "boss": null}'
    assert await run(where) == '{"x": 1, "y": 0}'
    assert await run(many) == '[{"name": "n", "boss": null}]'
    assert who.output_schema is not None
    assert who.output_schema["type"] == "object"
    assert where.output_schema == {
        "type": "object",
        "title": "Point",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }
    assert counts.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert many.output_schema is None


def test_a_return_type_without_a_schema_is_no_obstacle() -> None:
    @tool
    def odd() -> Callable[[int], int]:
        return abs

    @tool
    def ours() -> ToolResult:
        return ToolResult(success=True)

    assert odd.output_schema is None
    assert ours.output_schema is None


async def test_methods_are_the_tools_of_their_instance() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.count = start

        @tool
        def add(self, number: int) -> int:
            """Count on."""
            self.count += number
            return self.count

        @tool
        async def peek(self) -> int:
            return self.count

        @tool
        @classmethod
        def kind(cls, suffix: str) -> str:
            return cls.__name__ + suffix

        @tool
        @staticmethod
        def double(number: int) -> int:
            return 2 * number

    counter = Counter(40)
    assert counter.add(1) == 41
    assert await run(counter.add, number=1) == "42"
    assert await run(counter.peek) == "42"
    assert await run(Counter.kind, suffix="!") == "Counter!"
    assert await run(counter.double, number=4) == "8"
    assert counter.add.description == "Count on."
    assert list(properties(counter.add)) == ["number"]
    assert await run(tool(Unadorned().greet), name="you") == "hello you"
    assert await run(tool(name="partly")(functools.partial(Unadorned().greet, name="me"))) == "hello me"
    with pytest.raises(ToolFailedError, match=r"register it from an instance, `instance\.add`"):
        await run(Counter.add, number=1)


async def test_hints_may_name_what_is_defined_beside_or_below_the_function() -> None:
    class Beside(BaseModel):
        n: int = 0

    @tool
    def take(beside: Beside, below: Below) -> str:
        return f"{beside.n} {below.n}"

    assert await run(take, beside={"n": 3}, below={"n": 4}) == "3 4"
    assert set(take.input_schema["$defs"]) == {"Beside", "Below"}


class Below(BaseModel):
    n: int


def test_a_hint_that_names_nothing_is_an_error_at_the_first_use() -> None:
    @tool
    def take(thing: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821 -- the point of the test
        return thing

    assert take("still callable") == "still callable"
    with pytest.raises(NameError, match="Nowhere"):
        take.input_schema  # noqa: B018 -- reading it is the first use


async def test_any_parameter_name_is_allowed_and_other_keywords_where_the_function_takes_them() -> None:
    @tool
    def take(model_config: int, schema: str, _hidden: int = 1, untyped=None, **more: int) -> list[Any]:  # type: ignore[no-untyped-def]
        return [model_config, schema, _hidden, untyped, more]

    assert (
        await run(take, model_config="3", schema="s", untyped=[1], other=2)
        == '[3, "s", 1, [1], {"other": 2}]'
    )
    assert take.input_schema["additionalProperties"] == {"type": "integer"}
    assert properties(take)["untyped"] == {"default": None}


async def test_a_function_behind_another_decorator_is_read_through_it() -> None:
    def shouting(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def shout(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs).upper()

        return shout

    @tool
    @shouting
    def greet(name: str) -> str:
        """Greet a person."""
        return f"hello {name}"

    assert greet.description == "Greet a person."
    assert properties(greet) == {"name": {"type": "string"}}
    assert await run(greet, name="you") == "HELLO YOU"


def unusable(function: Callable[..., Any]) -> str:
    with pytest.raises(TypeError) as caught:
        tool(function)
    return str(caught.value)


def test_a_signature_that_a_model_cannot_use_is_refused_where_it_is_written() -> None:
    def positional(first: int, /) -> None: ...
    def starred(*numbers: int) -> None: ...
    def arbitrary(thing: threading.Thread) -> None: ...
    def function(thing: Callable[[int], int]) -> None: ...

    assert "`positional` cannot be a tool" in unusable(positional)
    assert "`first` must be passed by position" in unusable(positional)
    assert "`*numbers` must be passed by position" in unusable(starred)
    assert "has no JSON schema" in unusable(arbitrary)
    assert "has no JSON schema" in unusable(function)
    assert "a tool needs a name" in unusable(lambda: None)
    assert "not int" in unusable(3)  # type: ignore[arg-type]


async def test_a_manager_checks_and_calls_it_like_any_other_tool() -> None:
    @tool
    def halve(number: float) -> float:
        return number / 2

    registry = ToolRegistry()
    registry.register(halve)
    async with McpManager([], registry=registry, cache=False) as mcp:
        assert (await mcp.call("halve", {"number": 3})).text == "1.5"
        refused = await mcp.call("halve", {"number": "three"})
    assert isinstance(refused.exception, InvalidArgumentsError)


def test_asking_for_the_decorator_does_not_import_pydantic() -> None:
    script = "import sys\nfrom dragoman import tool\nprint('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
