"""Tools as typed Python modules: names, types, and the type checker that programs meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_monty import CollectString, ExternalModule, Monty, MontyError, MontyTypingError

from dragoman.agent.code.stubs import Module, identifier, modules_of
from dragoman.model import ToolDef

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parents[3] / "data" / "real-tools.json"


def made(
    name: str, schema: dict[str, Any], output: dict[str, Any] | None = None, *, server: str = "s"
) -> ToolDef:
    return ToolDef(
        name=f"mcp_{server}_{name}",
        description="Does it.",
        input_schema=schema,
        output_schema=output,
        server=server,
        original_name=name,
    )


def takes(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def only(tool: ToolDef) -> Module:
    (module,) = modules_of([tool]).values()
    return module


def signature(schema: dict[str, Any], output: dict[str, Any] | None = None) -> str:
    (function,) = only(made("f", schema, output)).functions.values()
    return function.signature


def parameter(schema: dict[str, Any]) -> str:
    return signature(takes(x=schema)).removeprefix("(x: ").removesuffix(") -> str")


@pytest.fixture(scope="module")
def pool() -> Iterator[Monty]:
    with Monty(min_processes=1, max_processes=1) as pool:
        yield pool


def complaints(pool: Monty, module: Module, code: str) -> str:
    """Return what the checker says about a program, without running it."""
    offered = {module.name: ExternalModule(dict.fromkeys(module.functions, print), stubs=module.stub)}
    with pool.checkout(type_check=True, type_check_format="concise", external_modules=offered) as session:
        try:
            session.feed_run(
                f"import {module.name}\ndef never() -> None:\n    {code}", print_callback=CollectString()
            )
        except MontyTypingError as exc:
            return exc.display()
    return ""


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "int | None"),
        ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "str | list[str]"),
        ({"enum": ["a", "b's"]}, 'Literal["a", "b\'s"]'),
        ({"enum": ["a", 1, None, True]}, 'Literal["a", 1, None, True]'),
        ({"const": "x"}, 'Literal["x"]'),
        ({"enum": [str(n) for n in range(100)]}, "str"),
        ({"enum": [1.5]}, "Any"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "number"}}, "list[float] | list[int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"allOf": [{"type": "integer"}]}, "int"),
        ({}, "Any"),
        ({"$ref": "https://elsewhere/x"}, "Any"),
    ],
)
def test_each_kind_of_schema_has_its_type(schema: dict[str, Any], wanted: str) -> None:
    assert parameter(schema) == wanted


def test_required_parameters_come_first_and_defaults_are_shown() -> None:
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 10},
            "path": {"type": "string"},
            "mode": {"enum": ["r", "w"], "default": "r"},
            "note": {"type": "string", "default": None},
        },
        "required": ["path"],
    }
    wanted = '(path: str, limit: int = 10, mode: Literal["r", "w"] = ..., note: str = ...) -> str'
    assert signature(schema) == wanted


def test_nested_objects_become_typed_dicts_with_optional_keys() -> None:
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {**takes(id={"type": "integer"}), "required": []}}},
        "required": ["rows"],
    }
    module = only(made("find_all", {"type": "object"}, schema))
    assert module.stub == (
        "from typing import NotRequired, TypedDict\n\n"
        "class FindAllResultRowsItem(TypedDict):\n    id: NotRequired[int]\n\n"
        "class FindAllResult(TypedDict):\n    rows: list[FindAllResultRowsItem]\n\n"
        "def find_all() -> FindAllResult: ...\n"
    )


def test_recursive_schemas_refer_to_their_own_class(pool: Monty) -> None:
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["name", "kids"],
    }
    module = only(made("tree", {"type": "object"}, {"$ref": "#/$defs/Node", "$defs": {"Node": node}}))
    assert "kids: list[TreeNode]" in module.stub
    assert not complaints(pool, module, 's.tree()["kids"][0]["kids"][0]["name"].upper()')
    assert 'Unknown key "nme"' in complaints(pool, module, 's.tree()["kids"][0]["nme"]')
    loop = {"$ref": "#/$defs/L", "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}}
    assert signature({"type": "object"}, loop) == "() -> list[Any]"


def test_names_that_python_cannot_say_are_changed_and_map_back(pool: Monty) -> None:
    schema = {
        "type": "object",
        "properties": {
            "class": {"type": "string"},
            "user-id": {"type": "string"},
            "user_id": {"type": "string"},
            "$filter": {"type": "string"},
            "2nd": {"type": "string"},
            "名": {"type": "string"},
        },
        "required": ["class"],
    }
    (function,) = only(made("f", schema)).functions.values()
    assert dict(function.parameters) == {
        "class_": "class",
        "user_id": "user-id",
        "user_id_2": "user_id",
        "filter": "$filter",
        "argument_2nd": "2nd",
        "名": "名",
    }
    assert function.arguments(("A",), {"filter": "x"}) == {"class": "A", "$filter": "x"}
    tools = [
        made(name, {"type": "object"}) for name in ("get-it", "get_it", "import", "list", "_x", "!!", "str")
    ]
    (module,) = modules_of(tools).values()
    assert sorted(module.functions) == sorted(["get_it", "get_it_2", "import_", "list_", "x", "tool", "str_"])
    assert not complaints(pool, module, "s.list_()")


def test_modules_never_hide_a_module_or_name_of_python() -> None:
    tools = [
        made("t", {"type": "object"}, server=server)
        for server in ("time", "git", "my-server", "my.server", "print")
    ]
    assert list(modules_of(tools)) == ["git", "my_server", "my_server_2", "print_server", "time_server"]
    assert list(modules_of([made("t", {"type": "object"}, server="")])) == ["local"]


def test_odd_keys_and_hostile_texts_give_valid_stubs(pool: Monty) -> None:
    keys = {
        key: {"type": "string"} for key in ("a-b", "list", "class", "__x", 'q"uote', "line\nbreak", "\u202e")
    }
    wild = takes(x={"enum": ['"]\nimport os', "\\", '"""']})
    tools = [
        made("odd", wild, takes(**keys)),
        made("b", takes(y={"type": "array", "items": {"type": "string"}})),
    ]
    (module,) = modules_of(tools).values()
    assert not complaints(pool, module, 's.odd(x="\\\\")["a-b"] + s.b(["y"])')
    assert "Expected `list[str]`" in complaints(pool, module, "s.b([1])")
    compile(module.documented(), "s.pyi", "exec")


def test_no_name_has_invisible_letters() -> None:
    # Python takes these fillers for letters.
    assert identifier("wipe\u3164\u115f", "x") == identifier("w\uffa0ipe", "x") == "wipe"


def test_depth_and_number_of_classes_are_bounded() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = takes(a=deep)
    (function,) = only(made("f", {"type": "object"}, deep)).functions.values()
    assert len(function.classes) < 20
    wide = takes(**{f"k{n}": takes(a={"type": "string"}) for n in range(1_000)})
    (function,) = only(made("f", {"type": "object"}, wide)).functions.values()
    assert len(function.classes) <= 201


def test_open_tools_take_any_argument() -> None:
    (function,) = only(made("f", {"type": "object", "additionalProperties": True})).functions.values()
    assert function.signature == "(**arguments: Any) -> str"
    assert function.arguments((), {"a": 1}) == {"a": 1}


def test_calls_that_do_not_fit_are_errors() -> None:
    (function,) = only(made("f", takes(a={"type": "string"}))).functions.values()
    for args, kwargs in ((("x", "y"), {}), (("x",), {"a": "y"}), ((), {"b": 1})):
        with pytest.raises(TypeError):
            function.arguments(args, kwargs)


@pytest.mark.parametrize("name", ["", "_", "a b", "1", "für", "class", "é" * 200, "a" * 200, "\ud800", "𝒳"])
def test_identifiers_are_legal_public_and_short(name: str) -> None:
    found = identifier(name, "tool")
    assert found.isidentifier()
    assert not found.startswith("_")
    assert len(found) <= 66


def test_stubs_of_all_real_tools_type_check(pool: Monty) -> None:
    data: dict[str, list[dict[str, Any]]] = json.loads(DATA.read_text("utf-8"))
    tools = [
        made(one["name"], one.get("inputSchema") or {}, one.get("outputSchema"), server=server)
        for server, listed in data.items()
        for one in listed
    ]
    modules = modules_of(tools)
    assert sum(len(module.functions) for module in modules.values()) == len(tools) == 943
    wrong: list[str] = []
    for module in modules.values():
        compile(module.documented(), module.name, "exec")
        # A stub as a program: only its defaults (`...`) and empty bodies are wrong there.
        with pool.checkout(type_check=True, type_check_format="concise") as session:
            try:
                session.feed_start(module.stub)
            except MontyTypingError as exc:
                wrong += [
                    line
                    for line in exc.display().splitlines()
                    if "EllipsisType" not in line and "empty-body" not in line
                ]
            except MontyError as exc:
                wrong.append(f"{module.name}: {exc}")
    assert wrong == []
