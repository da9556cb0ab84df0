"""Dialects: where a host's files are, how to find the entries in them, and what their keys mean.

A dialect is data and a few small functions. It never reads a file, never expands a variable, and
never decides whether an entry is valid: `entries.py` builds every spec from every dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from dragoman.config.templates import NATIVE, NONE, VariableSyntax
from dragoman.config.values import seconds, shown
from dragoman.model import Note, Settings
from dragoman.model.keys import keys
from dragoman.model.server import server_keys
from dragoman.struct import HIDDEN, MutableStruct, Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.config.documents import Document, Format, Pointer
    from dragoman.config.values import Unit
    from dragoman.model.keys import Key

Scope: TypeAlias = Literal["session", "local", "project", "user", "system", "code"]


class _ScopedPath(Struct):
    path: str
    scope: Scope


class Place(_ScopedPath, kw_only=True):
    """A file that may hold servers; the path is a template (`templates.py`).

    A `*` in its last part stands for every file that fits, in the order of their names.
    """

    dialect: str = ""
    """The dialect of this file where it is another than its owner's."""
    platform: str = ""
    """`linux`, `darwin` or `win32` where the file exists on that one only."""
    format: Format | None = None


class Entry(MutableStruct):
    """One server as a file has it: the keys as they are written, and where they stand."""

    name: str
    """Empty where an item of a list has none."""
    fields: Annotated[dict[str, Any], HIDDEN]
    document: Document
    pointer: Pointer
    flat: bool = False
    """Whether its keys are siblings of the entry instead of inside it, as environment variables are."""
    notes: list[Note] = field(default_factory=list["Note"])
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Problems found by a translation: the key and the message."""
    spellings: dict[str, str] = field(default_factory=dict[str, str])
    """A key that a translation made, and the key of the file that it comes from."""
    layers: dict[str, Entry] = field(default_factory=dict[str, "Entry"])
    """After a merge by field: the entry that each key, or each key of a table in it, comes from."""

    def written(self, *keys: str | int) -> tuple[str | int, ...]:
        """Return a key, and a key inside it, as the file has them."""
        whole, first = ".".join(map(str, keys)), str(keys[0])
        if whole in self.spellings:
            return tuple(self.spellings[whole].split("."))
        return (*self.spellings.get(first, first).split("."), *keys[1:])

    def owner(self, *keys: str | int) -> Entry:
        """Return the entry that a key comes from: this one, unless weaker ones were merged into it."""
        written = self.written(*keys) if keys else ()
        inner = self.layers.get(".".join(map(str, written[:2])))
        return inner or (self.layers.get(str(written[0]), self) if written else self)

    def place(self, *keys: str | int) -> Pointer:
        """Return the pointer of a key in its file, or of the entry itself."""
        if not keys:
            return self.pointer
        pointer = self.owner(*keys).pointer
        return (*(pointer[:-1] if self.flat else pointer), *self.written(*keys))

    def line(self, *keys: str | int) -> int | None:
        """Return the line of a key of this entry, or of the entry itself."""
        return self.owner(*keys).document.line(self.place(*keys))

    def move(self, old: str, new: str, value: object = None) -> None:
        """Replace a key by another with the same meaning, and remember where it came from."""
        taken = self.fields.pop(old)
        self.fields[new] = taken if value is None else value
        self.spellings[new] = self.spellings.pop(old, old)

    def set_aside(self, key: str, note: Note | None = None) -> None:
        """Set a key aside, so that it is kept but means nothing."""
        self.move(key, f"{LEFT}{key}")
        if note is not None:
            self.notes.append(note)


class FileSettings(Struct, kw_only=True):
    """What a file says beyond its servers."""

    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The values of keys of `Settings`. Also `only_servers`: where given, only these may run; and
    `without_servers`: these may not run."""
    places: Mapping[str, Pointer] = field(default_factory=dict[str, "Pointer"])
    """Where each of the above stands in the file."""
    problems: Sequence[tuple[Pointer, str]] = ()


class Meaning(Struct, kw_only=True):
    """What a key means: the field it sets, and the unit of a duration."""

    field: str
    unit: Unit | None = None


EMPTY = FileSettings()


class Dialect(Struct, kw_only=True):
    """One host's way of writing servers down."""

    name: str
    title: str
    # Where
    places: Sequence[Place] = ()
    """Its files, the strongest first."""
    combine: Literal["replace", "fields", "first"] = "replace"
    """One name in two files: the stronger entry, field by field, or only the first file counts."""
    # How entries are found and read
    find: Callable[[Document, str], Iterable[Entry]]
    """Given a document and the project's directory, give its entries."""
    per_project: Sequence[str] | None = None
    """For a host whose own file also holds servers for each project, in `projects.DIRECTORY.mcpServers`: the
    keys beside them that list servers which are off. They count in a file of the user's only."""
    translate: Callable[[Entry], None] | None = None
    """Rewrite keys of an entry that need more than another name."""
    patch: Callable[[Document, str], FileSettings] = lambda _document, _root: EMPTY
    # What the keys mean
    keys: Mapping[str, Meaning]
    """Every spelling that the dialect has, and what it sets."""
    style: VariableSyntax = NATIVE
    expanded: frozenset[str] | None = None
    """The fields whose text has variables, where it is not all of them; the rest is literal."""
    untyped_url: Literal["auto", "both", "http", "sse", "error"] = "auto"
    """`both`: Streamable HTTP, then SSE; `auto`: the same, but SSE first where the path ends in /sse."""
    either_kind: bool = False
    """Whether a typed URL is also tried as the other kind."""
    sse_is_http: bool = False
    """Whether `sse` means Streamable HTTP first, legacy SSE second."""
    needs_args: bool = False
    """Whether a command needs `args`, even if it is empty; not in `.mcp.json`, which hosts share."""
    listed_need_transport: bool = False
    """Whether an entry of a list must say its transport."""
    empty_allows_all: bool = False
    """Whether an empty allow-list means every tool."""
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys that dragoman cannot carry over, with the reason; kept in `extras` all the same."""
    # How it is written
    container: Sequence[str] = ("mcpServers",)
    """The key, or the path of keys, under which entries stand in a file."""
    also_in: Sequence[Sequence[str]] = ()
    """Other paths at which entries are read, and where none are written."""
    settings: Sequence[Sequence[str]] = ()
    """The paths of keys beside the entries that are read."""
    as_list: bool = False
    """Whether new entries are items of a list, with a `name`, instead of values of a map."""
    writes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields of a spec that the dialect can express, and the key for each; empty: not written.

    A key with a dot in it stands in a table of its own. Besides the fields, `header_variables` and
    `bearer_variable`: keys that name a variable for a header.
    """
    literal_when_written: bool = False
    """Whether written text has no variables, although `translate` makes templates when reading."""
    write_unit: Literal["s", "ms", "text"] = "s"
    remote_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """How `stdio`, `http` and `sse` are spelled when written; absent: not expressible."""
    write_tools: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    """How changes of single tools are written, if not as we do; `None` if they cannot be expressed."""
    sandbox_is_enabled: bool = False
    """Whether a sandbox is written as `sandboxEnabled`, with a table beside it."""
    command_is_list: bool = False
    """Whether a command is written as one list with its arguments."""
    always: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys without which the host refuses an entry, and the value that says nothing."""

    def style_of(self, name: str) -> VariableSyntax:
        """Return the variable syntax of a field's text."""
        return self.style if self.expanded is None or name in self.expanded else NONE


def key_table(*pairs: str, unit: Unit = "s", **others: str | Meaning) -> dict[str, Meaning]:
    """Build a table of keys: names that mean themselves, then `spelling=field` pairs.

    Durations (`call`, `connect`, `idle`) get the unit.
    """
    table = {name: Meaning(field=name) for name in pairs}
    for spelling, target in others.items():
        table[spelling] = target if isinstance(target, Meaning) else Meaning(field=target)
    durations = {key.field for key in server_keys().values() if key.form == "seconds"}
    return {
        spelling: meaning.replace(unit=unit)
        if meaning.field in durations and meaning.unit is None
        else meaning
        for spelling, meaning in table.items()
    }


def under(*path: str) -> Callable[[Document, str], Iterable[Entry]]:
    """Find entries in the map, or in the list, that stands at a path."""

    def find(document: Document, _root: str) -> Iterable[Entry]:
        return entries_at(document, path)

    return find


def entries_at(document: Document, path: Sequence[str | int]) -> list[Entry]:
    """Return the entries of the map or list at a path; an absent one has none.

    A value that is not an entry becomes an entry without a usable field, so that its error has a
    place like any other.
    """
    found: object = document.data
    for part in path:
        if not isinstance(found, dict):
            return []
        found = cast("dict[str, Any]", found).get(str(part))
    pointer = tuple(path)
    if isinstance(found, dict):
        items = cast("dict[str, Any]", found).items()
        return [_entry(document, name, value, (*pointer, name)) for name, value in items]
    if isinstance(found, list):
        values = cast("list[Any]", found)
        return [
            _entry(document, _listed_name(value), value, (*pointer, index))
            for index, value in enumerate(values)
        ]
    if found is None:
        return []
    return [Entry("", {NOT_SERVERS: found}, document, pointer)]


def local_part(dialect: Dialect, document: Document, root: str) -> tuple[list[Entry], FileSettings]:
    """Return what a file says for one project alone: servers, and the names of those that are off.

    Only a file of the user's may say that: a project's own would vouch for itself.
    """
    if dialect.per_project is None:
        return [], EMPTY
    path = ("projects", root)
    found: object = document.data
    for part in path:
        found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    table = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    lists = {key: table[key] for key in dialect.per_project if isinstance(table.get(key), list)}
    off = [name for names in lists.values() for name in cast("list[object]", names) if isinstance(name, str)]
    places: dict[str, Pointer] = {"without_servers": (*path, next(iter(lists)))} if lists else {}
    patch = FileSettings(said={"without_servers": off}, places=places)
    return entries_at(document, (*path, "mcpServers")), patch


def _entry(document: Document, name: str, value: object, pointer: Pointer) -> Entry:
    fields: dict[str, Any] = (
        dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {NOT_A_MAP: value}
    )
    return Entry(name, fields, document, pointer)


def _listed_name(value: object) -> str:
    name = cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


NOT_A_MAP = "\0entry"
"""The only key of an entry that is not an object; no file can spell it as a meaningful key."""
NOT_SERVERS = "\0servers"
"""The only key of what stands for a value that should hold servers and is neither map nor list."""
LEFT = "\0left "
"""In front of a key that a translation sets aside."""


SHELL_LIKE = VariableSyntax(braces=True, defaults=True)
"""`${VAR}` and `${VAR:-default}`, where an empty value counts as unset."""

SAME = {key: key for key in ("command", "args", "env", "cwd", "url", "headers")}
"""What most hosts spell as we do."""
PLAIN = (*SAME, "inherit_env")
"""The same, and which variables a process inherits: most hosts pass on all, so their files do not say."""


def table_at(document: Document, path: Sequence[str]) -> dict[str, Any]:
    """Return the object at a path, or an empty one where there is none."""
    found: object = document.data
    for part in path:
        if not isinstance(found, dict):
            return {}
        found = cast("dict[str, Any]", found).get(part)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def each_text(value: object, change: Callable[[str], str]) -> object:
    """Return a value in which every text, however deep, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: each_text(item, change) for key, item in cast("dict[str, object]", value).items()}
    return value


def bare_map(document: Document) -> list[Entry]:
    """Find entries in a document that is itself the map of servers."""
    values = [value for key, value in table_at(document, ()).items() if not key.startswith("$")]
    if not all(isinstance(value, dict) for value in values):
        return []
    if not any(_ENTRY_KEYS & cast("dict[str, Any]", value).keys() for value in values):
        return []
    return [entry for entry in entries_at(document, ()) if not entry.name.startswith("$")]


def wrapped_or_bare(document: Document, _root: str) -> list[Entry]:
    """Find the map `mcpServers`, or take the document for it."""
    wrapped = "mcpServers" in table_at(document, ())
    return entries_at(document, ("mcpServers",)) if wrapped else bare_map(document)


_ENTRY_KEYS = frozenset({"command", "url", "serverUrl", "httpUrl"})


def names_at(table: dict[str, Any], key: str) -> list[str] | None:
    """Return a list of names, or `None` where the key is absent or no such list."""
    value = table.get(key)
    if not isinstance(value, list):
        return None
    return [name for name in cast("list[object]", value) if isinstance(name, str)]


def switches() -> list[str]:
    """Return the names of the settings that every dialect with settings has."""
    return [name for name, key in keys(Settings).items() if key.layers == "strongest"]


def settings_patch(document: Document, path: Sequence[str]) -> FileSettings:
    """Read the switches, `health_check_interval` and `naming` from a table."""
    table = table_at(document, path)
    problems: list[tuple[Pointer, str]] = []
    found = table_at(document, path[:-1]).get(path[-1])
    if found is not None and not isinstance(found, dict):
        problems.append((tuple(path), f"expected a table, not {shown(found)}"))
    said: dict[str, Any] = {}
    for name in switches():
        try:
            said |= {name: _setting(keys(Settings)[name], table[name])} if name in table else {}
        except ValueError as error:
            problems.append(((*path, name), str(error)))
    return FileSettings(said=said, places={key: (*path, key) for key in table}, problems=problems)


def _setting(key: Key, value: Any) -> Any:
    if key.form == "seconds":
        return seconds(value, "s")
    if value is None or (isinstance(value, bool) and key.form == "flag"):
        return value
    if isinstance(value, str) and key.form == "text" and key.contains in value:
        return value
    if isinstance(value, str) and value in key.choices:
        return value
    if key.form == "table":
        return _webhook(value)
    wanted = "true or false" if key.form == "flag" else "a text with {tool} in it, such as {server}__{tool}"
    wanted = " or ".join(f'"{one}"' for one in key.choices) or wanted
    msg = f"expected {wanted}{'' if key.form == 'text' else f', not {shown(value)}'}"
    raise ValueError(msg)


def _webhook(value: Any) -> dict[str, str]:
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    known = {"address", "secret", "public_url"}
    if not {"address", "secret"} <= table.keys() <= known or not all(
        isinstance(one, str) for one in table.values()
    ):
        msg = "expected a table of texts: `address` and `secret`, perhaps `public_url`"
        raise ValueError(msg)
    if not table["address"].startswith(("https://", "http://")) or len(table["secret"]) < SHORTEST_SECRET:
        msg = f"`address` must be a URL, and `secret` have at least {SHORTEST_SECRET} characters"
        raise ValueError(msg)
    return table


SHORTEST_SECRET = 16
"""Characters of the secret that signs what a webhook gets."""
CAMEL_CASE = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "callbackPort": "callback_port",
    "authServerMetadataUrl": "metadata_url",
    "redirectUri": "redirect_uri",
}


def rename(entry: Entry, names: Mapping[str, str] = CAMEL_CASE, *, key: str = "oauth") -> None:
    """Rename the keys of a table about a login."""
    table = entry.fields.get(key)
    if isinstance(table, dict):
        pairs = cast("dict[str, Any]", table).items()
        entry.fields[key] = {names.get(name, name): value for name, value in pairs}
        entry.spellings.update({f"{key}.{new}": f"{key}.{old}" for old, new in names.items()})


def gather(entry: Entry, names: Mapping[str, str]) -> None:
    """Move keys that stand beside `oauth` into it, under the names that they have there."""
    fields = entry.fields
    table: dict[str, Any] = {}
    for key, name in names.items():
        if fields.get(key) is not None:
            table[name] = fields.pop(key)
            entry.spellings[f"oauth.{name}"] = key
    oauth = fields.get("oauth")
    if table and (oauth is None or isinstance(oauth, dict)):
        fields["oauth"] = {**cast("dict[str, Any]", oauth or {}), **table}
        if oauth is None:
            entry.spellings["oauth"] = entry.spellings[f"oauth.{next(iter(table))}"]


def switch(entry: Entry) -> None:
    """Read an `oauth` that may be true or false: a login is wanted, or there is none."""
    value = entry.fields.get("oauth")
    if isinstance(value, bool):
        entry.fields["oauth"] = {} if value else {"mode": "none"}


def add_header(entry: Entry, key: str, *, name: str = "Authorization", value: str) -> None:
    """Add a header that a host makes from another key; it wins over the one in `headers`."""
    headers = entry.fields.get("headers")
    if headers is None or isinstance(headers, dict):
        entry.fields["headers"] = {**cast("dict[str, Any]", headers or {}), name: value}
        entry.spellings.setdefault("headers", "headers" if headers is not None else key)
        entry.spellings[f"headers.{name}"] = key


def forget(entry: Entry, key: str) -> None:
    """Leave a host's tokens where they are: they are not even kept."""
    if entry.fields.pop(key, None) is not None:
        message = "tokens of that host are not imported; log in again"
        entry.notes.append(Note(code="unused", key=key, message=message))
