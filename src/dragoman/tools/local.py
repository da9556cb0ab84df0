"""Make a Python function a tool: its name, docstring and type hints become the definition.

pydantic makes the schemas and converts the arguments: a parameter may be a model, a dataclass, an enum or a
date. pydantic is imported when a function is decorated, not before. Type hints are read then too, so that
mistakes show up early; hints that refer to names defined later are read at the tool's first use.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

from dragoman.errors import InvalidArgumentsError
from dragoman.model import Part, ToolDef, ToolResult
from dragoman.struct import HIDDEN, Struct, field, force_setattr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic import TypeAdapter, ValidationError

    from dragoman.model import JsonObject

_GOOGLE = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*$"
)
_NUMPY = re.compile(r"(Parameters|Other Parameters)\s*$")
_RULE = re.compile(r"\s*-{3,}\s*$")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\)\s*+)?:\s*+(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r":(?P<field>\w++)(?P<words>\s[^:]*+)?+:\s*+(?P<text>.*)$")
_SPHINX_NAME = re.compile(r"\*{0,2}(\w+)")
_PARAMETER_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "kwarg"})


class Docstring(Struct):
    """A parsed docstring."""

    description: str
    """Everything except the parameters."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def read_docstring(text: str) -> Docstring:
    """Parse a docstring; text that does not look like parameters stays in the description."""
    # `cleandoc` takes quadratic time for blank lines at the beginning.
    text = "\n" + text.lstrip("\n") if text.startswith("\n") else text
    lines = inspect.cleandoc(text.rstrip()).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if _GOOGLE.match(line) and (not following.strip() or following[:1].isspace()):
            end = _end_of_block(lines, at + 1, 0)
            parameters |= _google(lines[at + 1 : end])
            at = end
        elif _NUMPY.match(line) and _RULE.match(following):
            end = _end_of_numpy(lines, at + 2)
            parameters |= _numpy(lines[at + 2 : end])
            at = end
        elif (found := _SPHINX.match(line)) and (
            found["field"] == "type" or (found["field"] in _PARAMETER_FIELDS and _sphinx_name(found["words"]))
        ):
            end = _end_of_block(lines, at + 1, 0, blank_ends=True)
            if found["field"] != "type":
                parameters[_sphinx_name(found["words"])] = _joined([found["text"], *lines[at + 1 : end]])
            at = end
        else:
            kept.append(line)
            at += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _sphinx_name(words: str | None) -> str:
    """Return the parameter of a field: its last word, without stars."""
    last = (words or "").split()[-1:]
    name = _SPHINX_NAME.fullmatch(last[0]) if last else None
    return name[1] if name else ""


def _end_of_block(lines: list[str], start: int, indent: int, *, blank_ends: bool = False) -> int:
    """Return where the block that is indented further than `indent` ends."""
    for at in range(start, len(lines)):
        line = lines[at]
        if not line.strip():
            if blank_ends:
                return at
        elif _indent(line) <= indent:
            return at
    return len(lines)


def _end_of_numpy(lines: list[str], start: int) -> int:
    """Return where a section ends: before the next heading, or after the last parameter."""
    for at in range(start, len(lines)):
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if lines[at].strip() and _RULE.match(following):
            return at
        if (
            at
            and not lines[at - 1].strip()
            and lines[at].strip()
            and not _NUMPY_ENTRY.match(lines[at].strip())
        ):
            return at
    return len(lines)


def _google(lines: list[str]) -> dict[str, str]:
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    return {
        found["name"]: _joined([found["text"], *more])
        for head, more in _entries(lines, indent)
        if (found := _ENTRY.match(head)) is not None
    }


def _numpy(lines: list[str]) -> dict[str, str]:
    return {
        found["name"]: _joined(more)
        for head, more in _entries(lines, 0)
        if (found := _NUMPY_ENTRY.match(head)) is not None
    }


def _entries(lines: list[str], indent: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry's first line and its continuation lines."""
    head, more = "", list[str]()
    for line in lines:
        if line.strip() and _indent(line) <= indent:
            if head:
                yield head, more
            head, more = line.strip(), []
        else:
            more.append(line)
    if head:
        yield head, more


def _joined(lines: list[str]) -> str:
    return " ".join(stripped for line in lines if (stripped := line.strip()))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_SCHEMAS = ("input_schema", "output_schema")
_BINDING = frozenset({"self", "cls"})


class LocalTool(ToolDef, Generic[P, R_co], kw_only=True, eq=False):
    """A tool that is a Python function, and can still be called as that function.

    In a class body it is a method: accessed through an instance, it is the tool of that instance.
    """

    function: Annotated[Callable[P, R_co], HIDDEN]
    """The decorated function; calling the tool calls it, without conversion."""
    _reader: Annotated[_HintReader, HIDDEN]
    _binds_class: Annotated[bool, HIDDEN] = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: LocalTool[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> LocalTool[Q, R]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        target = owner if self._binds_class else instance
        if target is None or not self._reader.unbound:
            return self
        return _made(
            self._reader.bound_to(target),
            functools.partial(cast("Any", self.function), target),
            description=self.description,
            title=self.title,
            annotations=self.annotations,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _SCHEMAS:
                return ToolDef.__getattr__(self, name)
            self._reader.read()
            for key in _SCHEMAS:
                force_setattr(self, key, getattr(self._reader, key))
            return getattr(self, name)


@overload
def tool(function: Callable[P, R], /) -> LocalTool[P, R]: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    title: str = "",
    annotations: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], LocalTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    title: str = "",
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """Make a function a tool; register it with `registry.register(function)`.

    The docstring is the description; its `Args:` (or `:param …:`) describe the parameters. A synchronous
    function runs in a thread when the tool is called, so that it does not block the event loop.

    Args:
        function: A function or method, synchronous or async.
        name: The tool's name; the function's name by default.
        description: The description; the docstring by default.
        title: A title for people.
        annotations: Hints such as `{"readOnlyHint": True}`.

    Raises:
        TypeError: The function cannot be called with named arguments, or a type has no JSON schema.
    """
    # Hints of a nested function may refer to local names of the enclosing function.
    nearby = dict(sys._getframe(1).f_locals)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def decorate(function: Callable[..., Any]) -> LocalTool[..., Any]:
        binds_class = isinstance(function, classmethod)
        if isinstance(function, classmethod | staticmethod):
            function = cast("Callable[..., Any]", cast("Any", function).__func__)
        if not callable(function):
            msg = f"`@tool` expects a function, not {type(function).__name__}"
            raise TypeError(msg)
        called = name or getattr(function, "__name__", "")
        if not called or called == "<lambda>":
            msg = "a tool needs a name: use `@tool(name=…)`, or decorate a function that has one"
            raise TypeError(msg)
        text = read_docstring(inspect.getdoc(function) or "")
        reader = _HintReader(called, function, nearby, text.parameters)
        # The name may be defined later; if it is still unknown at the first use, that is an error.
        with suppress(NameError):
            reader.read()
        return _made(
            reader,
            function,
            description=description or text.description,
            title=title,
            annotations=dict(annotations or {}),
            _binds_class=binds_class,
        )

    return decorate if function is None else decorate(function)


def _made(reader: _HintReader, function: Callable[..., Any], **fields: Any) -> LocalTool[..., Any]:
    """Make a tool whose schemas are read at their first use."""
    made = LocalTool(
        name=reader.name,
        input_schema={},
        func=reader.runner(),
        source="builtin",
        function=function,
        _reader=reader,
        **fields,
    )
    made.unset_schemas()
    return made


class _HintReader:
    """Turns a function's type hints into schemas and a converter for arguments."""

    def __init__(
        self, name: str, function: Callable[..., Any], nearby: dict[str, Any], described: Mapping[str, str]
    ) -> None:
        self.name = name
        self.input_schema: JsonObject = {}
        self.output_schema: JsonObject | None = None
        self.target: object = None
        """The instance or class that a method is bound to."""
        self._function = function
        self._nearby = nearby
        self._described = described
        self._signature, self.unbound = _signature_of(function, name)
        self._arguments: TypeAdapter[Any] | None = None

    def bound_to(self, target: object) -> _HintReader:
        """Return the reader of the same method bound to an instance; schemas are reused."""
        other = object.__new__(_HintReader)
        other.__dict__ = self.__dict__ | {"target": target, "unbound": False}
        return other

    def read(self) -> None:
        """Make the schemas if they are not made yet.

        Raises:
            NameError: A hint refers to a name that does not exist (yet).
            TypeError: A type has no JSON schema.
        """
        if self._arguments is not None:
            return
        function = inspect.unwrap(self._function)
        function = function.func if isinstance(function, functools.partial) else function
        try:
            hints = get_type_hints(function, localns=self._nearby, include_extras=True)
        except TypeError:  # an object with `__call__`
            hints = get_type_hints(type(function).__call__, localns=self._nearby, include_extras=True)
        adapter = self._adapter(hints)
        self.input_schema = self._input_schema(adapter)
        self.output_schema = _output_schema(hints.get("return"))
        self._arguments = adapter
        self._nearby = {}

    def runner(self) -> Callable[..., Any]:
        """Return the function for the registry: it takes and returns JSON values."""
        function = self._function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- whether calling it is async, not whether it can be
        ):

            async def run_async(*args: Any, **kwargs: Any) -> Any:
                given, named = self._converted(args, kwargs)
                return _plain(await function(*given, **named))

            return self._signed(run_async)

        def run(*args: Any, **kwargs: Any) -> Any:
            given, named = self._converted(args, kwargs)
            return _plain(function(*given, **named))

        return self._signed(run)

    def _signed(self, run: Callable[..., Any]) -> Callable[..., Any]:
        run.__name__ = self.name
        run.__doc__ = self._function.__doc__
        run.__signature__ = self._signature
        return run

    def _converted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        from pydantic import ValidationError
        from pydantic_core import ArgsKwargs

        if self.unbound:
            msg = f"`{self.name}` is a method: register it from an instance, `instance.{self.name}`"
            raise TypeError(msg)
        self.read()
        assert self._arguments is not None  # noqa: S101 -- `read` has made it, or raised
        # By name, so that a problem mentions `number` and not the first argument.
        named = dict(zip(self._signature.parameters, args, strict=False)) | kwargs
        try:
            given, named = self._arguments.validate_python(ArgsKwargs((), named))
        except ValidationError as exc:
            problems = [_problem(error) for error in _errors(exc)]
            msg = f"invalid arguments for `{self.name}`: {'; '.join(problems)}"
            raise InvalidArgumentsError(msg, tool=self.name, problems=problems) from exc
        return [*([] if self.target is None else [self.target]), *given], named

    def _adapter(self, hints: dict[str, Any]) -> TypeAdapter[Any]:
        """Return a converter for the function's arguments that does not call the function."""
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        def collect(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return args, kwargs

        collect.__name__ = collect.__qualname__ = self.name
        collect.__module__ = self._function.__module__
        collect.__signature__ = self._signature
        collect.__annotations__ = {key: hints[key] for key in self._signature.parameters if key in hints}
        try:
            return TypeAdapter(cast("Any", collect))
        except (PydanticSchemaGenerationError, PydanticUserError) as exc:
            raise self._unusable(exc) from exc

    def _input_schema(self, adapter: TypeAdapter[Any]) -> JsonObject:
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            schema = adapter.json_schema(schema_generator=_generator())
        except PydanticInvalidForJsonSchema as exc:
            raise self._unusable(exc) from exc
        schema.pop("title", None)
        properties = cast("dict[str, Any]", schema.setdefault("properties", {}))
        for parameter, text in self._described.items():
            if parameter in properties:
                properties[parameter].setdefault("description", text)
        return schema

    def _unusable(self, exc: Exception) -> TypeError:
        why = str(exc).splitlines()[0]
        return TypeError(
            f"`{self.name}` cannot be a tool: a parameter's type has no JSON schema ({why}); use a type that "
            "JSON can carry, or a pydantic model"
        )


def _signature_of(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, bool]:
    """Return the parameters, and whether the function is an unbound method."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    first = parameters[0] if parameters else None
    unbound = first is not None and first.name in _BINDING and first.annotation is first.empty
    for parameter in parameters[1:] if unbound else parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.kind is parameter.VAR_POSITIONAL:
            shown = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
            msg = (
                f"`{name}` cannot be a tool: a model passes every argument by name, and `{shown}` "
                "must be passed by position; make it an ordinary parameter, or a list"
            )
            raise TypeError(msg)
    return signature.replace(parameters=parameters[1:] if unbound else parameters), unbound


def _output_schema(hint: Any) -> JsonObject | None:
    """Return the schema of a function's return type if it is an object with a known type."""
    if hint is None or hint in (Any, ToolResult, Part, inspect.Parameter.empty):
        return None
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=_generator())
    except PydanticUserError:
        return None
    # A recursive type is a reference into `$defs`.
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    shape = cast("dict[str, Any]", schema.get("$defs", {}).get(reference, schema))
    if shape.get("type") != "object":
        return None
    return {"type": "object", **schema} if reference else schema


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        """Omits titles that only repeat a name, since they cost tokens."""

        # A default that is not JSON is left out of the schema; the function still uses it.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 -- as in pydantic

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 -- no field's is
            return False

        def get_title_from_name(self, name: str) -> str:  # noqa: ARG002 -- it would be repeated
            return ""

        def arguments_schema(self, schema: Any) -> Any:
            made = super().arguments_schema(schema)
            for one in made.get("properties", {}).values():
                if one.get("title") == "":
                    del one["title"]
            return made

    return Generator


def _plain(value: Any) -> Any:
    """Convert a return value to JSON; strings and results of dragoman stay as they are."""
    if value is None or isinstance(value, str | int | float | ToolResult | Part):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, serialize_unknown=True)


def _errors(exc: ValidationError) -> list[Any]:
    return list(exc.errors(include_url=False, include_context=False))


def _problem(error: Mapping[str, Any]) -> str:
    path = ".".join(str(step) for step in error["loc"])
    message = str(error["msg"])
    return f"`{path}`: {message[:1].lower()}{message[1:]}" if path else message
