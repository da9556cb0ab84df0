"""Load the configuration of a profile: find the files, read and merge them, report every problem.

This is the only way to read configuration. A problem in a file never raises: it is logged and kept in
`Settings.problems` with its place, and the rest is used. A missing file is a problem only if it was named
explicitly.
"""

from __future__ import annotations

import copy
import os
import sys
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.config.dialect import EMPTY, Place, local_part
from dragoman.config.dialects import HOSTS, dialect
from dragoman.config.dialects.agents import VARIABLES, finder
from dragoman.config.documents import MAX_PROJECT_BYTES, Document, dotted, environment
from dragoman.config.entries import read_entries
from dragoman.config.files import is_file, read
from dragoman.config.merge import Layer, merge
from dragoman.config.misspelled import doubts, variable_doubts
from dragoman.config.profiles import BUILT_IN, Profile, profile_named
from dragoman.config.templates import ExpansionContext, expand, expand_home
from dragoman.config.values import shown
from dragoman.errors import ConfigError, ConfigSyntaxError
from dragoman.model import Layers, Settings, Source
from dragoman.trust.layers import as_read, project_servers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.config.dialect import Dialect, Entry, FileSettings
    from dragoman.config.misspelled import Doubt
    from dragoman.errors import ConnectError
    from dragoman.model import Input, ServerSpec
    from dragoman.trust.approval_store import Approvals
    from dragoman.trust.approvals import Evidence

_BY_NAME = {
    "claude_desktop_config.json": "claude-desktop",
    ".claude.json": "claude-code",
    ".kode.json": "kode",
    ".mcprc": "kode",
    "otter.toml": "otter",
    "dragoman.toml": "dragoman",
    "mcp_config.json": "windsurf",
    "cline_mcp_settings.json": "cline",
    "mcp_settings.json": "roo",
    "mcp-config.json": "copilot-cli",
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
    "librechat.yaml": "librechat",
    "librechat.yml": "librechat",
    "crush.json": "crush",
    ".crush.json": "crush",
}
_BY_FOLDER = {
    ".cursor": "cursor",
    ".vscode": "vscode",
    ".codex": "codex",
    ".gemini": "gemini",
    ".otter": "otter",
    "otter": "otter",
    ".rrclaw": "rrclaw",
    ".excelmanus": "excelmanus",
    "dragoman": "dragoman",
    ".roo": "roo",
    ".kilocode": "roo",
    ".continue": "continue",
    ".copilot": "copilot-cli",
    ".github": "copilot-cli",
    ".zed": "zed",
    ".opencode": "opencode",
    ".amazonq": "amazon-q",
    ".lmstudio": "lm-studio",
}
_BY_END = {
    ".continue/mcpServers": "continue",
    "zed/settings.json": "zed",
    "Zed/settings.json": "zed",
    "goose/config.yaml": "goose",
    "goose/config": "goose",
    "amazonq/mcp.json": "amazon-q",
    "amazonq/cli-agents": "amazon-q",
    ".amazonq/cli-agents": "amazon-q",
    ".kiro/settings": "kiro",
    ".kiro/agents": "kiro",
    "lm-studio/mcp.json": "lm-studio",
}
"""The last two parts of a file's path, or of its folder's: for names that would be too common alone."""
_BY_SCHEMA = {"opencode.ai": "opencode", "charm.land": "crush", "server.schema.json": "server-json"}
_BY_KEY = {
    "copilot-cli": {"deferTools", "disableToolCache", "filterMapping", "oauthClientId", "oauthGrantType"},
    "gemini": {"httpUrl", "includeTools", "excludeTools"},
    "cursor": {"envFile"},
    "windsurf": {"serverUrl"},
    "cline": {"transportType", "oauthClient", "remoteConfigured"},
    "roo": {"watchPaths"},
    "kiro": {"oauthScopes"},
    "librechat": {"customUserVars", "serverInstructions", "chatMenu", "requiresOAuth"},
    "fastmcp": {"sse_read_timeout", "include_tags", "exclude_tags", "keep_alive"},
}
"""Keys of entries under `mcpServers` that only one host has, the first that fits counts."""
_GOOSE_TYPES = ("stdio", "streamable_http", "sse", "builtin", "platform")


def detect(document: Document) -> str:
    """Return the name of the dialect that a document is most likely written in."""
    path = PurePath(document.source)
    if document.format == "env":
        return "legal"
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.parent.name in _BY_FOLDER:
        return _BY_FOLDER[path.parent.name]
    for end in ("/".join(path.parts[-2:]), "/".join(path.parts[-3:-1])):
        if end in _BY_END:
            return _BY_END[end]
    return _by_content(document.data, document.format)


def _by_content(data: object, format: str) -> str:  # noqa: A002 -- as in `documents.parse`
    if isinstance(data, list):
        return "excelmanus"
    if not isinstance(data, dict):
        return "mcp-json"
    keys = cast("dict[str, Any]", data)
    schema = str(keys.get("$schema", ""))
    for part, name in _BY_SCHEMA.items():
        if part in schema:
            return name
    if _is_of_the_registry(keys):
        return "server-json"
    if isinstance(keys.get("context_servers"), dict):
        return "zed"
    if any(entry.get("type") in _GOOSE_TYPES for entry in _entries(keys.get("extensions"))):
        return "goose"
    servers = keys.get("mcp_servers")
    if isinstance(servers, dict):
        return "codex"
    if isinstance(servers, list):
        return "otter"
    mcp = keys.get("mcp")
    if isinstance(mcp, dict) and "servers" in mcp:
        return "otter" if isinstance(mcp["servers"], list) else "dragoman"
    if isinstance(mcp, dict) and any(_is_reachable(entry) for entry in _entries(cast("object", mcp))):
        return _opencode_or_crush(_entries(cast("object", mcp)))
    if isinstance(keys.get("projects"), dict) and isinstance(keys.get("mcpServers"), dict):
        return "claude-code"
    if isinstance(keys.get("servers"), dict):
        return "vscode"
    if format == "yaml" and isinstance(keys.get("mcpServers"), list) and not _say_transport(keys):
        return "continue"
    if isinstance(keys.get("servers"), list) or isinstance(keys.get("mcpServers"), list):
        return "excelmanus"
    return _by_entry_keys(keys.get("mcpServers"))


def _is_of_the_registry(keys: dict[str, Any]) -> bool:
    """Return whether it is a `server.json`, or what the registry's API answers."""
    listed: object = keys.get("servers")
    items = cast("list[object]", listed) if isinstance(listed, list) else []
    for holder in (keys, *items[:1]):
        table: dict[str, Any] = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        inner: object = table.get("server", table)
        server = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
        ways = [server.get("packages"), server.get("remotes")]
        if isinstance(server.get("name"), str) and any(isinstance(way, list) for way in ways):
            return True
    return False


def _opencode_or_crush(entries: list[dict[str, Any]]) -> str:
    theirs = any(
        entry.get("type") in ("local", "remote") or isinstance(entry.get("command"), list)
        for entry in entries
    )
    return "opencode" if theirs else "crush"


def _is_reachable(entry: dict[str, Any]) -> bool:
    return "command" in entry or "url" in entry


def _say_transport(keys: dict[str, Any]) -> bool:
    return any(
        "transport" in cast("dict[str, Any]", one) for one in keys["mcpServers"] if isinstance(one, dict)
    )


def _by_entry_keys(servers: object) -> str:
    entries = _entries(servers)
    spelled = {key for entry in entries for key in entry}
    for name, keys in _BY_KEY.items():
        if spelled & keys:
            return name
    if "disabledTools" in spelled and spelled & {"autoApprove", "alwaysAllow"}:
        return "kiro" if "autoApprove" in spelled else "roo"
    for entry in entries:
        if isinstance(entry.get("transport"), dict):
            return "cline"
        if isinstance(entry.get("tools"), dict):
            from dragoman.config.dialects.formats import FASTMCP_WORDS, words_of_changes

            # Dragoman's own entries have such a table, too, without these words.
            if words_of_changes(entry["tools"]) & FASTMCP_WORDS:
                return "fastmcp"
        if isinstance(entry.get("tools"), list) or entry.get("type") == "local":
            return "copilot-cli"
    return "mcp-json"


def _entries(servers: object) -> list[dict[str, Any]]:
    values = cast("dict[str, object]", servers).values() if isinstance(servers, dict) else ()
    return [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]


MAX_SERVERS = 1_000
"""Of one file."""


class _Unset(Exception):  # noqa: N818 -- a signal inside this module, never seen outside
    """A place's path needs a variable that is not set, so the place does not exist."""


def load(
    profile: str | Profile = "dragoman",
    *,
    root: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    missing_ok: bool = False,
    log_problems: bool = True,
    # The world around, for tests and for applications that serve several users
    env: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    platform: str | None = None,
) -> Settings:
    """Read all the configuration there is.

    Args:
        profile: An application's profile, or its name.
        root: The project's directory; the working directory unless given.
        config: The one file to read instead of the profile's own.
        missing_ok: Whether that file may be missing; if not, it is a problem.
        log_problems: Whether problems are logged; a caller that shows them itself needs no log.
        env: The environment; this process's unless given.
        home: The home directory; this user's unless given.
        platform: As `sys.platform`.
    """
    profile = profile_named(profile) if isinstance(profile, str) else profile
    expansion = ExpansionContext(
        env=os.environ if env is None else env,
        root=os.path.abspath(root or Path.cwd()),  # noqa: PTH100 -- keeps symbolic links as the user wrote them
        home=str(home) if home else str(Path.home()),
    )
    platform = platform or sys.platform
    search = _Search(profile, expansion, platform, missing_ok=missing_ok)
    search.run(None if config is None else os.fspath(config))
    settings = search.settings()
    if profile.hosts and not any(source.scope == "session" for source in settings.sources):
        from dragoman.config.hosts import with_hosts  # most configurations do not need it

        hosts = [_search(profile_named(name), expansion, platform) for name in profile.hosts]
        settings = with_hosts(settings, hosts)
    _log_problems(settings, wanted=log_problems)
    return settings


def _log_problems(settings: Settings, *, wanted: bool = True) -> None:
    if (settings.problems or settings.warnings) and wanted:
        # Imported late: most configurations have no problems, and logging is slow to import.
        import logging

        from dragoman.trust.log_records import install

        install()
        for problem in settings.problems:
            logging.getLogger("dragoman").error("%s", problem)
        for warning in settings.warnings:
            logging.getLogger("dragoman").warning("%s", warning)


def _search(profile: Profile, expansion: ExpansionContext, platform: str) -> Settings:
    search = _Search(profile, expansion, platform)
    search.run(None)
    return search.settings()


_CONTAINERS = ("mcpServers", "mcp_servers", "servers", "context_servers")
_SUFFIXES = {".json", ".jsonc", ".toml", ".yaml", ".yml", ".env"}


def is_path(name: object) -> bool:
    """Return whether a text is the path of a file, and not the name of a profile."""
    if not isinstance(name, str):
        return isinstance(name, os.PathLike)
    return name.startswith((".", "~")) or "/" in name or os.sep in name or PurePath(name).suffix in _SUFFIXES


def require_file(config: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> None:
    """Check that the file that a program names exists.

    Raises:
        ConfigSyntaxError: It does not.
    """
    named = os.fspath(config)
    path = Path(root or Path.cwd(), expand_home(named, str(Path.home())))
    if not path.exists():
        hint = "check the path"
        if named in BUILT_IN or named in HOSTS:
            hint = f"`{named}` is a profile: write McpManager.from_config({named!r})"
        msg = "file not found"
        raise ConfigSyntaxError(msg, source=str(path), hint=hint)


def is_document(data: Mapping[str, Any]) -> bool:
    """Return whether a mapping is the content of a configuration file, and not servers by their names."""
    mcp = data.get("mcp")
    nested = cast("dict[str, Any]", mcp).get("servers") if isinstance(mcp, dict) else None
    return any(_has_servers(value) for value in (nested, *(data.get(key) for key in _CONTAINERS)))


def _has_servers(value: object) -> bool:
    # A server may be called `servers`: its entry has a command or a URL.
    is_entry = isinstance(value, dict) and any(
        isinstance(cast("dict[str, Any]", value).get(key), str) for key in ("command", "url")
    )
    return isinstance(value, dict | list) and not is_entry


def load_given(data: Mapping[str, Any], profile: str | Profile | None = None) -> Settings:
    """Read what a program holds: the content of a configuration file, or servers by their names.

    Args:
        data: The content, in any dialect; or entries, or specs, by name.
        profile: Whose rules, names and words hold. Unless given, RRClaw's do for a map as RRClaw has it.
    """
    if profile is None:
        profile = "rrclaw" if _is_of_rrclaw(data) else "dragoman"
    chosen = profile_named(profile) if isinstance(profile, str) else profile
    expansion = ExpansionContext(env=os.environ, root=str(Path.cwd()), home=str(Path.home()))
    search = _Search(chosen, expansion, sys.platform)
    own = None if chosen.default_dialect in ("mcp-json", "legal") else chosen.default_dialect
    if not is_document(data):
        specs, problems = read_entries(data, dialect(own or "dragoman"))
        return search.settings().replace(
            servers=search.with_unset(specs), problems=problems, layers=None, root=""
        )
    document = Document("code", "json", copy.deepcopy(dict(data)))
    if own is None or not any(True for _ in dialect(own).find(document, expansion.root)):
        own = detect(document)
    search.add(document, Place("code", "code"), own)
    settings = search.settings()
    _log_problems(settings)
    return settings


_RRCLAW_SHAPES = {
    "stdio": {"transport", "command", "args", "env", "allowed_tools"},
    "sse": {"transport", "url", "headers", "allowed_tools"},
}
"""RRClaw's `McpServerConfig` as it is serialized, with every field. With fewer or other fields it could be
another program's map, in which an empty `allowed_tools` allows nothing."""


def _is_of_rrclaw(data: Mapping[str, Any]) -> bool:
    """Return whether a map, bare or under `mcp.servers`, has the shape of RRClaw's own."""
    mcp = data.get("mcp")
    servers: object = (
        cast("dict[str, Any]", mcp).get("servers") if isinstance(mcp, dict) and len(data) == 1 else data
    )
    if not isinstance(servers, dict) or not servers:
        return False
    for entry in cast("dict[str, object]", servers).values():
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if set(fields) != _RRCLAW_SHAPES.get(str(fields.get("transport"))):
            return False
    return True


def candidate_places(
    profile: Profile, expansion: ExpansionContext, platform: str
) -> Iterable[tuple[Place, Path]]:
    """Yield the files that a profile looks for on this machine, the strongest first."""
    for place in profile.all_places():
        path = place_path(place.path, expansion)
        if path is not None and (not place.platform or platform.startswith(place.platform)):
            for each in _fitting(path):
                yield place, each


def _fitting(path: Path) -> Sequence[Path]:
    """Return the files that a path with a `*` stands for; itself where there are none."""
    if "*" not in path.name:
        return (path,)
    try:
        return sorted(path.parent.glob(path.name)) or (path,)
    except OSError:
        return (path,)


def place_path(template: str, expansion: ExpansionContext) -> Path | None:
    """Return the path that a template stands for; `None` where a variable in it is unset."""

    def missing(_name: str, _whole: str) -> str:
        raise _Unset

    home = expansion.home
    try:
        text = expand(template, expansion, missing)
    except _Unset:
        return None
    return Path(expand_home(text, home))


class _Search:
    """One pass over the places of a profile."""

    def __init__(
        self, profile: Profile, expansion: ExpansionContext, platform: str, *, missing_ok: bool = False
    ) -> None:
        self.profile = profile
        self.missing_ok = missing_ok
        self.expansion = expansion
        self.platform = platform
        self.unset = self._unset_policy()
        self.layers: list[Layer] = []
        self.sources: list[Source] = []
        self.problems: list[ConfigError] = []
        self.warnings: list[ConfigError] = []

    def run(self, config: str | None) -> None:
        variable = self.profile.config_variable()
        named = config or (self.expansion.env.get(variable, "") if variable else "")
        if named:
            path = Path(self.expansion.root, expand_home(named, self.expansion.home))
            self._read_named(path, "" if config else variable)
        candidates = list(candidate_places(self.profile, self.expansion, self.platform))
        # In the home folder, a file of the project may be the user's own: it is read once, as such.
        own = {os.path.realpath(path) for place, path in candidates if place.scope == "user"}
        for place, path in candidates:
            if place.scope == "project" and os.path.realpath(path) in own:
                continue
            self._read_place(place, path, hidden=bool(named))
        if self.profile.environment and not config:
            self._read_environment()

    def settings(self) -> Settings:
        combine = self.profile.combine
        local = [layer for layer in self.layers if layer.scope == "local"]
        others = [layer for layer in self.layers if layer.scope != "local"]
        merged = merge([*local, *others], combine)
        layers = Layers(
            servers=self.with_unset(merged.servers),
            own=self.with_unset(merged.own),
            statements=merged.statements,
            naming=self.profile.naming,
            first_only=combine == "first",
            problems=[*self.problems, *merged.problems],
            warnings=[*self.warnings, *_misspelt([*merged.servers, *merged.own])],
        )
        read = Settings(
            collisions=self.profile.collisions,
            sources_in_text=self.profile.sources_in_text,
            texts=self.profile.texts,
            language=self.profile.language,
            failure_level=self.profile.failure_level,
            by_field=combine == "fields",
            profile=self.profile.app,
            root=self.expansion.root,
            sources=self.sources,
            layers=layers,
        )
        return as_read(read)

    def with_unset(self, specs: Iterable[ServerSpec]) -> list[ServerSpec]:
        """Return servers with the profile's rule for unset variables."""
        if self.unset == "error":
            return list(specs)
        return [spec.replace(unset_variables=self.unset) for spec in specs]

    def _unset_policy(self) -> Literal["error", "keep", "empty"]:
        variable = self.profile.unset_variable
        value = self.expansion.env.get(variable, "error") if variable else "error"
        return cast("Literal['error', 'keep', 'empty']", value) if value in ("keep", "empty") else "error"

    def _read_named(self, path: Path, variable: str) -> None:
        place = Place(str(path), "session")
        try:
            document = read(path)
        except FileNotFoundError:
            if variable or not self.missing_ok:
                msg = f"file not found (named by `{variable}`)" if variable else "file not found"
                self.problems.append(ConfigSyntaxError(msg, source=str(path), hint="check the path"))
            self._note(place, path, "absent")
            return
        except ConfigSyntaxError as error:
            self.problems.append(error)
            self._note(place, path, "broken")
            return
        chosen = self.profile.default_dialect
        if chosen in ("mcp-json", "legal"):
            chosen = detect(document)
        self.add(document, place, chosen)

    def _read_place(self, place: Place, path: Path, *, hidden: bool) -> None:
        read_before = self.layers if self.profile.combine == "first" else ()
        before = {layer.scope == "project" for layer in read_before}
        # Behind a project's file, the user's own has to be known: it counts until the project's is approved.
        if hidden or False in before or (before and place.scope == "project"):
            self._note(place, path, "hidden" if is_file(path) else "absent")
            return
        try:
            most = MAX_PROJECT_BYTES if place.scope == "project" else None
            document = read(path, place.format, only_regular=True, most=most)
        except FileNotFoundError:
            self._note(place, path, "absent")
        except ConfigSyntaxError as error:
            self.problems.append(error)
            self._note(place, path, "broken")
        else:
            self.add(document, place, place.dialect, status="hidden" if before else "loaded")

    def _read_environment(self) -> None:
        found = self._dialect("legal")
        document = environment(self.expansion.env)
        entries = list(found.find(document, self.expansion.root))
        self.layers.append(Layer(document=document, dialect=found, scope="user", entries=entries))
        self._doubt(document, variable_doubts(self.expansion.env, self.profile.environment, VARIABLES))
        self.sources.append(
            Source(
                path=f"environment: {self.profile.environment}_MCP_*",
                dialect=found.name,
                scope="user",
                status="loaded" if entries else "absent",
                servers=len(entries),
            )
        )

    def add(
        self, document: Document, place: Place, name: str, status: Literal["loaded", "hidden"] = "loaded"
    ) -> None:
        found = self._dialect(name)
        root = self.expansion.root
        entries = self._bounded(document, found.find(document, root))
        layer = Layer(document=document, dialect=found, scope=place.scope, entries=entries)
        local, local_patch = local_part(found, document, root)
        local = self._bounded(document, local)
        if place.scope == "project":
            self.problems.extend(_not_local(document, found, local, local_patch))
            local, local_patch = [], EMPTY
        elif local or local_patch.said.get("without_servers"):
            self.layers.append(layer.replace(scope="local", entries=local, patch=local_patch))
        self.layers.append(layer.replace(patch=found.patch(document, root)))
        count = len(entries) + len(local)
        self.problems.extend(_wrong_as_a_whole(document, found, found_any=bool(count)))
        self._doubt(document, doubts(document, found, root, found_any=bool(count)))
        self._note(place, Path(document.source), status, servers=count, dialect_name=name)

    def _doubt(self, document: Document, found: Iterable[Doubt]) -> None:
        for one in found:
            line = document.line(one.pointer) if one.pointer else 1
            place = dotted(one.pointer)
            self.warnings.append(
                ConfigError(one.message, source=document.source, pointer=place, line=line, hint=one.hint)
            )

    def _bounded(self, document: Document, found: Iterable[Entry]) -> list[Entry]:
        """Return the entries of a file, up to a number that no person writes."""
        entries = list(islice(found, MAX_SERVERS + 1))
        if len(entries) > MAX_SERVERS:
            del entries[MAX_SERVERS:]
            msg = f"the file has more than {MAX_SERVERS:,} servers; the rest is ignored"
            self.problems.append(ConfigError(msg, source=document.source, hint="split the file"))
        return entries

    def _dialect(self, name: str) -> Dialect:
        """Return a dialect, as this profile and this environment have it."""
        found = dialect(name)
        if name == "legal" and self.profile.environment:
            return found.replace(find=finder(self.profile.environment))
        if self.unset == "keep" and found.style.bare:
            return found.replace(style=found.style.replace(keep_bare=True))
        return found

    def _note(
        self,
        place: Place,
        path: Path,
        status: Literal["absent", "loaded", "hidden", "broken"],
        *,
        servers: int = 0,
        dialect_name: str = "",
    ) -> None:
        source = Source(
            path=str(path),
            dialect=dialect_name or place.dialect,
            scope=place.scope,
            status=status,
            servers=servers,
        )
        self.sources.append(source)


def _not_local(
    document: Document, found: Dialect, entries: Sequence[Entry], patch: FileSettings
) -> Iterable[ConfigError]:
    """Report settings in a project's file that are allowed only in the user's own."""
    pointers = [entry.pointer for entry in entries] + list(patch.places.values())
    for pointer in pointers:
        msg = "ignored: this is allowed in your own files only, and this file belongs to the project"
        hint = f"put it into your own file of {found.title}, or under `{dotted(tuple(found.container))}` here"
        line = document.line(pointer)
        yield ConfigError(msg, source=document.source, pointer=dotted(pointer), line=line, hint=hint)


def _misspelt(specs: Iterable[ServerSpec]) -> Iterable[ConfigError]:
    """Report unknown keys of entries that are close to a known one, each once."""
    seen: set[tuple[str, str]] = set()
    for spec in specs:
        for note in spec.notes:
            place = spec.origin.source, f"{spec.origin.pointer}.{note.key}"
            if note.meant and place not in seen:
                seen.add(place)
                hint = f"did you mean `{note.meant}`?"
                msg = "not a key that is read, so it has no effect"
                yield ConfigError(msg, source=place[0], pointer=place[1], line=note.line, hint=hint)


def _wrong_as_a_whole(document: Document, found: Dialect, *, found_any: bool) -> Iterable[ConfigError]:
    data = document.data
    if not isinstance(data, dict) and not found_any and data != []:
        key = dotted(tuple(found.container))
        msg = f"expected an object with servers under `{key}`, not {shown(data, private=True)}"
        yield ConfigError(msg, source=document.source, line=1)
    for pointer, line in document.repeats.items():
        msg = "duplicate key; the last one is used"
        hint = "rename or remove one of them"
        yield ConfigError(msg, source=document.source, pointer=dotted(pointer), line=line, hint=hint)


def approvals(folder: Path | None = None, *, env: Mapping[str, str] | None = None) -> Approvals:
    """Open the user's approvals.

    Args:
        folder: Where they are; the user's data folder by default.
        env: The environment in which programs are looked up; this process's by default.
    """
    from dragoman.trust.approval_store import Approvals  # most commands do not need it

    return Approvals(partial(_gather, env=env), folder)


def refused(settings: Settings, specs: Sequence[ServerSpec]) -> dict[str, ConnectError]:
    """Return the errors of the project's servers that the user has not approved, by name."""
    if not any(spec.origin.scope == "project" or spec.shadowed for spec in specs):
        return {}
    return approvals().refused(project_servers(settings, specs), settings.root or Path.cwd(), settings.inputs)


def _gather(
    spec: ServerSpec,
    root: str | os.PathLike[str],
    inputs: Iterable[Input],
    *,
    env: Mapping[str, str] | None,
) -> Evidence:
    from dragoman.config.evidence import gather

    return gather(spec, root, inputs, env=env)
