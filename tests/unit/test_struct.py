"""The base of the nouns: copies, hidden fields, defaults, and what files of earlier versions rely on."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from dragoman import Http, ServerSpec, Stdio, ToolDef, ToolResult
from dragoman.model.keys import Key, keys
from dragoman.struct import (
    HIDDEN,
    UNSET,
    MutableStruct,
    Report,
    Struct,
    UnsetType,
    asdict,
    defaults,
    field,
    field_names,
)
from dragoman.trust.encoding import encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Inner(Struct, kw_only=True):
    secret: Annotated[str, HIDDEN] = "s"
    shown: int = 1


class Outer(Struct, kw_only=True):
    name: str
    inner: Inner = Inner()
    many: Sequence[Inner] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict[str, Inner])
    more: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])


class Narrower(Outer, kw_only=True):
    also: Annotated[str, HIDDEN] = "hidden too"


class Counter(MutableStruct):
    count: int = 0
    key: Annotated[str, HIDDEN] = ""


def test_the_signature_has_names_that_only_type_checkers_import() -> None:
    assert str(inspect.signature(Outer)) == (
        "(*, name: 'str', inner: 'Inner' = Inner(shown=1), many: 'Sequence[Inner]' = (), "
        "by_name: 'Mapping[str, Inner]' = <factory>, more: 'Annotated[Mapping[str, Any], HIDDEN]' = <factory>)"
    )
    assert list(inspect.signature(ServerSpec).parameters)[:3] == ["name", "transport", "enabled"]
    assert inspect.signature(Stdio).parameters["command"].annotation is str
    inspect.signature(Stdio).bind("npx", ["-y"], cwd="/")
    with pytest.raises(TypeError, match="too many positional"):
        inspect.signature(Stdio).bind("npx", [], {})


def test_repr_leaves_hidden_fields_out_also_those_of_a_base() -> None:
    assert repr(Narrower(name="n", more={"a": 1})) == (
        "Narrower(name='n', inner=Inner(shown=1), many=(), by_name={})"
    )
    assert repr(Counter(key="k")) == "Counter(count=0)"
    assert "token" not in repr(ServerSpec("s", Http("https://a.test/?token=1", headers={"A": "token"})))
    assert "token" not in repr(Stdio("x", ["--token"], env={"token": "token"}))


def test_frozen_struct_cannot_be_assigned_and_a_copy_can_differ() -> None:
    one = Outer(name="a")
    with pytest.raises(AttributeError):
        one.name = "b"  # type: ignore[misc]
    assert one.replace(name="b") == Outer(name="b")
    assert one == Outer(name="a")
    with pytest.raises(TypeError, match="other"):
        one.replace(other=1)
    counter = Counter()
    counter.count = 2
    assert counter == Counter(2)


def test_asdict_goes_into_structs_lists_and_mappings() -> None:
    one = Outer(name="a", many=[Inner(shown=2)], by_name={"x": Inner(shown=3)}, more={"y": (Inner(),)})
    assert asdict(one) == {
        "name": "a",
        "inner": {"secret": "s", "shown": 1},
        "many": [{"secret": "s", "shown": 2}],
        "by_name": {"x": {"secret": "s", "shown": 3}},
        "more": {"y": ({"secret": "s", "shown": 1},)},
    }


def test_defaults_are_those_of_every_field_that_has_one() -> None:
    found = defaults(Narrower)
    assert found == {"inner": Inner(), "many": (), "by_name": {}, "more": {}, "also": "hidden too"}
    assert found["more"] is not defaults(Narrower)["more"]
    assert field_names(Narrower) == ("name", "inner", "many", "by_name", "more", "also")
    assert not {"name", "transport"} & defaults(ServerSpec).keys()


def test_structs_are_pickled_copied_compared_and_hashed() -> None:
    spec = ServerSpec("s", Stdio("x", ["a"], env={"A": "b"}), timeouts={"call": 2})
    for same in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), copy.copy(spec), spec.replace()):
        assert same == spec
        assert type(same) is ServerSpec
    assert hash(Inner()) == hash(Inner())
    assert ToolResult(success=True, raw={"a": 1}) == ToolResult(success=True)
    assert ToolResult(success=True) != ToolResult(success=False)
    assert ToolResult(success=True) != "a result"


@pytest.mark.parametrize("use", [copy.copy, copy.deepcopy, lambda tool: pickle.loads(pickle.dumps(tool))])
def test_schemas_that_are_not_decoded_yet_are_copied_too(use: Any) -> None:
    late = ToolDef.undecoded('[{"type": "object"}, null]', name="t", description="d")
    assert "{'type': 'object'}" in repr(
        ToolDef.undecoded('[{"type": "object"}, null]', name="t", description="d")
    )
    copied = use(late)
    assert (copied.input_schema, copied.output_schema) == ({"type": "object"}, None)
    again = ToolDef.undecoded('[{"type": "object"}, null]', name="t", description="d").replace(title="T")
    assert again == ToolDef(name="t", description="d", title="T", input_schema={"type": "object"})


def test_a_key_in_an_annotation_that_is_a_text_is_refused() -> None:
    class Late(Struct):
        token: Annotated[str, Key("a secret", mask="value")] = ""

    with pytest.raises(TypeError, match=r"`?Late.token`? is a text"):
        keys(Late)


class Shown(Report, kw_only=True):
    name: str
    also: str = ""
    size: int | UnsetType = UNSET
    parts: Sequence[Inner] = ()


def test_a_report_has_the_attributes_of_a_noun_and_what_is_added() -> None:
    shown = Shown.of(Narrower(name="a"), parts=[Inner()])
    assert encoded(shown) == {"name": "a", "also": "hidden too", "parts": [{"secret": "s", "shown": 1}]}
    assert encoded(Shown.of(object(), name="b", size=1))["size"] == 1


def test_anything_that_a_server_says_can_be_encoded() -> None:
    said = {"big": 2**80, "odd": "\ud800", "path": PurePosixPath("a"), "table": MappingProxyType({"a": (1,)})}
    assert encoded(said) == {"big": 2**80, "odd": "\ud800", "path": "a", "table": {"a": [1]}}
    with pytest.raises(TypeError, match="cannot encode object"):
        encoded({"what": object()})
