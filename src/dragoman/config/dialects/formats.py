"""FastMCP's `MCPConfig`: `mcpServers`, or the bare map; milliseconds; no variables, no switches.

A remote entry has `transport`; the `type` that other hosts write is not looked at, and without a transport
the path decides: SSE where it has a part `sse`, else Streamable HTTP.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import PLAIN, SAME, Dialect, Entry, FileSettings, key_table, wrapped_or_bare
from dragoman.config.templates import NATIVE, NONE, escape, escape_before
from dragoman.model import Input, Note, json_object
from dragoman.struct import MutableStruct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.config.documents import Document, Pointer

_SSE = re.compile(r"/sse(/|\?|&|$)")


def translate(entry: Entry) -> None:
    """Decide the transport as this library does; read its login and its changes of tools."""
    fields = entry.fields
    url = fields.get("url")
    if isinstance(url, str):
        if "type" in fields:
            message = "a remote entry has no `type` in this library; `transport` or the path decides"
            entry.set_aside("type", Note(code="transport", key="type", message=message))
        if fields.get("transport") is None:
            kind = "sse" if _SSE.search(url) else "http"
            fields["transport"] = kind
            entry.spellings["transport"] = "url"
            message = f"no transport given: the path makes it {kind}"
            entry.notes.append(Note(code="transport", key="url", message=message))
    auth = fields.get("auth")
    if isinstance(auth, str) and auth != "oauth" and "command" not in fields:
        del fields["auth"]
        dialect.add_header(entry, "auth", value=f"Bearer {auth}")
    tools = entry.fields.get("tools")
    if isinstance(tools, dict):
        changes = cast("dict[str, object]", tools)
        entry.fields["tools"] = {name: _transform(json_object(change)) for name, change in changes.items()}
        if _LOST & words_of_changes(changes):
            message = "tags, examples and metadata of single tools are not kept"
            entry.notes.append(Note(code="unused", key="tools", message=message))


_LOST = frozenset({"tags", "examples", "meta"})
FASTMCP_WORDS = _LOST | {"enabled", "hide"}
"""Keys in changes of tools that only this library has."""


def words_of_changes(tools: Mapping[str, object]) -> set[str]:
    """Return the keys of all changes of tools and their arguments."""
    changes = [json_object(change) for change in tools.values()]
    arguments = [
        json_object(one) for change in changes for one in json_object(change.get("arguments")).values()
    ]
    return {key for one in (*changes, *arguments) for key in one}


def _transform(change: dict[str, Any]) -> dict[str, Any]:
    """Return a change of a tool in our words; what keeps something from callers is kept in any words."""
    kept = ("name", "title", "description", "hidden")
    found = {name: value for name, value in change.items() if name in kept and value is not None}
    if change.get("enabled") is False:
        found["hidden"] = True
    arguments = json_object(change.get("arguments"))
    return {**found, "arguments": {name: _argument(json_object(one)) for name, one in arguments.items()}}


def _argument(change: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "description", "default", "required", "value", "hidden")
    found = {name: value for name, value in change.items() if name in kept and value is not None}
    if change.get("hide") is True:
        found["hidden"] = True
    if "default" in found or "hidden" in found:
        found.pop("required", None)
    return found


def _written_tools(tools: dict[str, Any]) -> dict[str, Any] | None:
    """Return changes of tools in the words of this library; `None` if it has none for one of them."""
    written: dict[str, Any] = {}
    for name, change in tools.items():
        table = {key: value for key, value in change.items() if key != "hidden"}
        arguments: dict[str, Any] = {}
        for argument, one in change.get("arguments", {}).items():
            rest = {key: value for key, value in one.items() if key not in ("hidden", "value")}
            if "value" in one:
                rest["default"] = one["value"]
            arguments[argument] = rest | ({"hide": True} if "value" in one or one.get("hidden") else {})
        table |= {"arguments": arguments} if arguments else {}
        written[name] = table | ({"enabled": False} if change.get("hidden") else {})
    return None if "${" in json.dumps(written) else written


FASTMCP = Dialect(
    name="fastmcp",
    title="FastMCP",
    find=wrapped_or_bare,
    translate=translate,
    keys=key_table(
        *PLAIN,
        "auth",
        "transport",
        "description",
        "tools",
        type="transport",
        timeout="call",
        unit="ms",
    ),
    style=NONE,
    dropped={
        "include_tags": "tools are chosen by name here, not by tag",
        "exclude_tags": "tools are chosen by name here, not by tag",
        "sse_read_timeout": "a stream may be silent for as long as the server likes",
        "keep_alive": "a server runs for as long as it is wanted; `lazy` and `timeouts.idle` say when",
        "authentication": "it describes a login for other programs",
        "disabled": "this library has no such switch and starts the server",
        "icon": "a picture for other programs",
    },
    writes={
        **SAME,
        "transport": "transport",
        "description": "description",
        "tools": "tools",
        "call": "timeout",
    },
    write_tools=_written_tools,
    write_unit="ms",
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


_CURLY = re.compile(r"\{([^{}]+)\}")
_CAPITAL = re.compile(r"(?=[A-Z])")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_IDS = re.compile(r"[^\w./~@-]+")
_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
_INSTEAD = {"npx", "bunx", "pnpx", "uvx", "docker", "podman", "dnx"}
"""Programs that take the same arguments as the usual one of their registry."""
_ABOUT_AN_INPUT = (
    "value",
    "default",
    "format",
    "choices",
    "placeholder",
    "isRequired",
    "isSecret",
    "valueHint",
)


def find_server_json(document: Document, _root: str) -> Iterable[Entry]:
    """Find every way to have the server, or the servers of an answer of the registry."""
    return [entry for server in _servers(document) for entry in _ways(server, document)]


def patch(document: Document, _root: str) -> FileSettings:
    """Read what a person is asked for."""
    inputs: dict[str, Input] = {}
    for server in _servers(document):
        for way in _ways_of(server):
            inputs.update({item.id: item for item in way.asked})
    return FileSettings(said={"inputs": list(inputs.values())})


class _ServerEntry(MutableStruct):
    """One description of a server, and where it stands."""

    table: dict[str, Any]
    pointer: Pointer

    @property
    def name(self) -> str:
        name = self.table.get("name")
        return name.rpartition("/")[2] if isinstance(name, str) else ""


class _Way(MutableStruct):
    """One package or address, as the fields of an entry."""

    table: dict[str, Any]
    pointer: Pointer
    label: str
    server: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[Note] = field(default_factory=list[Note])
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    asked: list[Input] = field(default_factory=list[Input])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Templates of the variables of the environment that the file names."""

    def ask(self, name: str, about: dict[str, Any]) -> str:
        """Refer to a value that a person has to give."""
        choices = _get(about, "choices")
        default, secret = _get(about, "default"), _get(about, "isSecret") is True
        asked = Input(
            id=f"{_NOT_IN_IDS.sub('_', self.server)}.{_NOT_IN_IDS.sub('_', name)}",
            description=_text(_get(about, "description")) or "",
            secret=secret,
            default=None if secret else _text(default),
            choices=[str(choice) for choice in cast("list[object]", choices)] if _is_list(choices) else [],
        )
        self.asked.append(asked)
        return f"${{input:{asked.id}}}"

    def template(self, text: str, about: dict[str, Any]) -> str:
        """Turn a value with `{name}` in it into a template."""
        known = json_object(_get(about, "variables"))
        result, literal, end = "", "", 0
        for match in _CURLY.finditer(text):
            literal += text[end : match.start()]
            end = match.end()
            name, reference = match[1], ""
            inner = json_object(known.get(name))
            fixed = _text(_get(inner, "value"))
            if name in known and fixed is None:
                reference = self.ask(name, inner)
            elif name in self.variables and name not in known:
                reference = self.variables[name]
            else:
                literal += match[0] if fixed is None else fixed
            if reference:
                result += escape_before(literal) + reference
                literal = ""
        return result + escape(literal + text[end:])

    def value(self, about: dict[str, Any], name: str) -> str | None:
        """Return the template of an input's value; `None` where it may be left out."""
        for key in ("value", "default"):
            text = _text(_get(about, key))
            if text is not None:
                return self.template(text, about)
        if _get(about, "isRequired") is True:
            return self.ask(name, about)
        return None

    def lose(self, key: str, message: str) -> None:
        self.notes.append(Note(code="unused", key=key, message=message))


def _servers(document: Document) -> list[_ServerEntry]:
    data = json_object(document.data)
    found: list[_ServerEntry] = []
    listed = data.get("servers")
    items = enumerate(cast("list[object]", listed)) if _is_list(listed) else ()
    whole: list[tuple[Pointer, dict[str, Any]]] = [(("servers", at), json_object(item)) for at, item in items]
    for pointer, table in [((), data), *whole]:
        inner = table.get("server")
        if isinstance(inner, dict):
            found.append(_ServerEntry(cast("dict[str, Any]", inner), (*pointer, "server")))
        elif _is_list(table.get("packages")) or _is_list(table.get("remotes")):
            found.append(_ServerEntry(table, pointer))
    return found


def _ways(server: _ServerEntry, document: Document) -> list[Entry]:
    """Make an entry of each way; the first that can be used is on."""
    ways = _ways_of(server)
    first = next((way for way in ways if not way.problems), None)
    if first is not None:
        for way in ways:
            for _, message in way.problems:
                first.lose(f"{way.pointer[-2]}.{way.pointer[-1]}", message)
        ways = [way for way in ways if not way.problems]
    labels: dict[str, int] = {}
    entries: list[Entry] = []
    for way in ways:
        name = server.name
        fields = {**way.fields, **{key: server.table[key] for key in _ABOUT if key in server.table}}
        if way is not first:
            labels[way.label] = labels.get(way.label, 0) + 1
            name += f"-{way.label}" + (f"-{labels[way.label]}" if labels[way.label] > 1 else "")
            fields |= {} if first is None else {"enabled": False}
        entry = Entry(name, fields, document, way.pointer, notes=way.notes, problems=way.problems)
        entry.spellings.update(_SPELLINGS)
        entries.append(entry)
    return entries


def _ways_of(server: _ServerEntry) -> list[_Way]:
    ways: list[_Way] = []
    for key, make in (("packages", _package), ("remotes", _remote)):
        given = server.table.get(key)
        for at, item in enumerate(cast("list[object]", given) if _is_list(given) else []):
            table = json_object(item)
            kind = _text(_get(table, "registryType" if key == "packages" else "type")) or "unknown"
            ways.append(_Way(table, (*server.pointer, key, at), _NOT_IN_IDS.sub("_", kind), server.name))
            make(ways[-1])
    return ways


def _remote(way: _Way) -> None:
    table = way.table
    url = _text(_get(table, "url"))
    way.fields["type"] = _get(table, "type") or _get(table, "transportType")
    way.fields["url"] = None if url is None else way.template(url, table)
    headers: dict[str, str] = {}
    for about in _tables(_get(table, "headers")):
        name = _text(about.get("name")) or ""
        value = way.value(about, name)
        if value is None:
            way.lose(f"headers.{name}", "it may be given, and is left out")
        else:
            headers[name] = value
    way.fields["headers"] = headers or None


def _package(way: _Way) -> None:
    table = way.table
    registry = _text(_get(table, "registryType")) or _text(table.get("registry_name")) or ""
    identifier = _text(_get(table, "identifier")) or _text(table.get("name")) or ""
    version = _text(_get(table, "version")) or ""
    _environment(way)
    runtime, arguments = (_arguments(way, key) for key in ("runtimeArguments", "packageArguments"))
    # A way that cannot be gone still has a command, so that its one problem is the only one.
    way.fields["command"] = escape(_program(way, registry) or identifier or registry or "?")
    kind = _text(_get(json_object(_get(table, "transport")), "type")) or "stdio"
    if registry not in _PROGRAMS:
        what = (
            "a bundle is never fetched"
            if registry == "mcpb"
            else f"the registry type `{registry:.40}` is not supported"
        )
        way.problems.append(("registryType", f"{what}: install it by hand, and write its command down"))
    elif not identifier:
        way.problems.append(("identifier", "the package has no name"))
    elif kind != "stdio":
        message = "the package listens at an address: start it by hand, and write its address down"
        way.problems.append(("transport.type", message))
    exactly = escape(_at_version(registry, identifier, version))
    if not version and "@" not in identifier and ":" not in identifier.rpartition("/")[2]:
        way.lose("version", "the file names none, so the newest one is run")
    match registry:
        case "npm":
            words = [*runtime, *([] if "-y" in runtime else ["-y"]), exactly, *arguments]
        case "oci":
            passed = [word for name in sorted(way.variables) for word in ("-e", name)]
            words = ["run", "-i", "--rm", *passed, *runtime, exactly, *arguments]
        case "nuget":
            words = [*runtime, exactly, "--yes", *arguments]
        case _:
            words = [*runtime, exactly, *arguments]
    way.fields["args"] = words
    for key in ("registryBaseUrl", "fileSha256"):
        if _get(table, key) is not None:
            way.fields[key] = _get(table, key)


def _program(way: _Way, registry: str) -> str:
    hint, usual = _text(_get(way.table, "runtimeHint")), _PROGRAMS.get(registry, "")
    if hint and hint not in _INSTEAD:
        way.lose("runtimeHint", f"packages of this registry are run by `{usual}`")
        return usual
    return hint or usual


def _at_version(registry: str, identifier: str, version: str) -> str:
    last = identifier.rpartition("/")[2]
    if not version or "==" in last or (registry == "oci" and (":" in last or "@" in last)):
        return identifier
    mark = {"pypi": "==", "oci": ":"}.get(registry, "@")
    return f"{identifier}{mark}{version}"


def _environment(way: _Way) -> None:
    """Take variables from the environment, but for those whose value the file gives."""
    env: dict[str, str] = {}
    optional: list[str] = []
    given = _tables(_get(way.table, "environmentVariables"))
    for about in sorted(given, key=lambda each: _get(each, "value") is not None):
        name = _text(about.get("name")) or ""
        fixed, default = _text(_get(about, "value")), _text(_get(about, "default"))
        if not _VARIABLE.fullmatch(name):
            way.problems.append(("environmentVariables", "expected the names of variables"))
        elif fixed is not None:
            env[name] = way.template(fixed, about)
        elif default is not None and "}" not in default:
            env[name] = way.variables[name] = f"${{{name}:-{default}}}"
        elif _get(about, "isRequired") is True:
            env[name] = way.variables[name] = f"${{{name}}}"
        else:
            way.variables[name] = f"${{{name}}}"
            optional.append(name)
    way.variables |= env
    way.fields["env"] = env or None
    way.fields["inherit_env"] = optional or None


def _arguments(way: _Way, key: str) -> list[str]:
    words: list[str] = []
    for at, about in enumerate(_tables(_get(way.table, key))):
        name = _text(about.get("name"))
        hint = _text(_get(about, "valueHint"))
        value = way.value(about, name or hint or f"{key}.{at}")
        is_flag = bool(name) and all(_get(about, each) is None for each in _ABOUT_AN_INPUT)
        if value is not None or is_flag:
            words += [escape(name)] if name else []
            words += [] if value is None else [value]
        else:
            way.lose(f"{key}.{at}", "it may be given, and is left out")
    return words


def _get(table: dict[str, Any], key: str) -> Any:
    """Return the value of a key, in camel case or, as older files have it, in snake case."""
    return table.get(key, table.get(_CAPITAL.sub("_", key).lower()))


def _tables(value: object) -> list[dict[str, Any]]:
    return [json_object(item) for item in cast("list[object]", value)] if _is_list(value) else []


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


_ABOUT = ("title", "description", "websiteUrl", "icons", "repository")
_SPELLINGS = {"command": "identifier", "args": "packageArguments", "env": "environmentVariables"}

SERVER_JSON = Dialect(
    name="server-json",
    title="MCP registry (server.json)",
    find=find_server_json,
    patch=patch,
    keys=key_table(
        "command",
        "args",
        "env",
        "inherit_env",
        "url",
        "headers",
        "enabled",
        "title",
        "description",
        type="transport",
    ),
    style=NATIVE,
    dropped={
        "registryBaseUrl": "packages come from where the program that runs them is set up to look",
        "fileSha256": "the program that runs a package checks it by its own means",
        "websiteUrl": "it is for people and for registries",
        "icons": "it is for people and for registries",
        "repository": "it is for people and for registries",
    },
)
