"""LibreChat: a map `mcpServers` in `librechat.yaml`; milliseconds; a URL without a type is SSE.

What LibreChat fills in for each of its users, `{{NAME}}`, is asked for here as an input: `NAME`, or
`server.NAME` where that server's `customUserVars` has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import PLAIN, SAME, Dialect, FileSettings, Place, key_table, table_at, under
from dragoman.config.templates import Spelling, VariableSyntax
from dragoman.model import Input

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry
    from dragoman.config.documents import Document

_REFERENCE = re.compile(r"\{\{([^{}]++)\}\}")
_NOT_IN_IDS = re.compile(r"[^\w-]")
_CLIENT_AUTH = {"default_post": "client_secret_post", "basic_auth_header": "client_secret_basic"}


def patch(document: Document, _root: str) -> FileSettings:
    """Read the values that LibreChat asks each user for."""
    inputs: dict[str, Input] = {}
    for server in table_at(document, ("mcpServers",)):
        for name, about in table_at(document, ("mcpServers", server, "customUserVars")).items():
            table = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
            texts = [text for key in ("title", "description") if isinstance(text := table.get(key), str)]
            asked_as, secret = _input_id(server, name), table.get("sensitive") is not False
            inputs[asked_as] = Input(id=asked_as, description=": ".join(texts), secret=secret)
        if table_at(document, ("mcpServers", server, "apiKey")).get("source") == "user":
            asked_as = _input_id(server, "apiKey")
            inputs[asked_as] = Input(id=asked_as, description=f"your key for {server}", secret=True)
    return FileSettings(said={"inputs": list(inputs.values())})


def _input_id(server: str, name: str) -> str:
    """Name a value that belongs to one server only: another one must never get it."""
    return f"{_NOT_IN_IDS.sub('_', server)}.{_NOT_IN_IDS.sub('_', name)}"


def translate(entry: Entry) -> None:
    """Rewrite the login, and take a server that is not started at once for a lazy one."""
    fields = entry.fields
    if isinstance(fields.get("startup"), bool):
        entry.move("startup", "lazy", not fields["startup"])
    asked = fields.get("customUserVars")
    if isinstance(asked, dict):
        names = cast("dict[str, Any]", asked)
        for key in ("env", "url", "headers", "oauth"):
            if key in fields:
                fields[key] = _owned(fields[key], entry.name, names)
    _login(entry)
    _api_key(entry)


def _owned(value: object, server: str, names: dict[str, Any]) -> object:
    """Refer to the values that this server asks for by the ids that they have here."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: _owned(item, server, names) for key, item in table.items()}
    if not isinstance(value, str):
        return value

    def reference(match: re.Match[str]) -> str:
        name = match[1].strip()
        return f"{{{{{_input_id(server, name)}}}}}" if name in names else match[0]

    return _REFERENCE.sub(reference, value)


def _login(entry: Entry) -> None:
    fields = entry.fields
    dialect.rename(entry, {"scope": "scopes", "token_exchange_method": "client_auth"})
    oauth = fields.get("oauth")
    if isinstance(oauth, dict):
        table = cast("dict[str, Any]", oauth)
        method = table.get("client_auth")
        if isinstance(method, str):
            table["client_auth"] = _CLIENT_AUTH.get(method, method)
    wanted = fields.get("requiresOAuth")
    if isinstance(wanted, bool):
        del fields["requiresOAuth"]
        if oauth is None:
            fields["oauth"] = {"mode": "oauth" if wanted else "none"}
            entry.spellings["oauth"] = "requiresOAuth"


def _api_key(entry: Entry) -> None:
    """Make the header that `apiKey` stands for."""
    given = entry.fields.get("apiKey")
    if not isinstance(given, dict):
        return
    table = cast("dict[str, Any]", given)
    key, kind = table.get("key"), table.get("authorization_type", "bearer")
    if table.get("source") == "user":
        key = f"{{{{{_input_id(entry.name, 'apiKey')}}}}}"
    header = table.get("custom_header") if kind == "custom" else "Authorization"
    if not isinstance(key, str) or not isinstance(header, str):
        entry.problems.append(("apiKey", "it lacks the `key`, or the name of the header for it"))
        return
    del entry.fields["apiKey"]
    scheme = {"bearer": "Bearer ", "basic": "Basic "}.get(str(kind), "")
    dialect.add_header(entry, "apiKey", name=header, value=f"{scheme}{key}")


PER_USER = Spelling(
    "{{", "}}", kind="input", loss="LibreChat fills it in for each user; here it is asked for, as an input"
)

LIBRECHAT = Dialect(
    name="librechat",
    title="LibreChat",
    places=(Place("${workspaceFolder}/librechat.yaml", "project"),),
    find=under("mcpServers"),
    patch=patch,
    translate=translate,
    keys=key_table(
        *PLAIN,
        "title",
        "description",
        "lazy",
        type="transport",
        timeout="call",
        initTimeout="connect",
        oauth="auth",
        unit="ms",
    ),
    style=VariableSyntax(braces=True, spellings=(PER_USER,)),
    expanded=frozenset({"env", "url", "headers", "auth"}),
    untyped_url="sse",
    dropped={
        "apiKey": "a key that LibreChat turns into a header",
        "chatMenu": "it is about that host's window",
        "iconPath": "a picture for that host's window",
        "customUserVars": "what is asked for is asked by its id",
        "serverInstructions": "what a model is told is the agent's own choice",
        "sseReadTimeout": "a stream may be silent for as long as the server likes",
        "stderr": "dragoman keeps the end of a server's standard error; `log_file` keeps all of it",
        "proxy": "a proxy is taken from the environment",
        "oauth_headers": "headers for the login alone cannot be given",
        "obo": "a login on behalf of LibreChat's own user",
        "requiresOAuth": "whether a login is needed",
        "startup": "whether it is started at once",
    },
    writes={
        **SAME,
        "transport": "type",
        "title": "title",
        "description": "description",
        "call": "timeout",
        "connect": "initTimeout",
    },
    write_unit="ms",
    remote_types={"stdio": "stdio", "http": "streamable-http", "sse": "sse"},
)
