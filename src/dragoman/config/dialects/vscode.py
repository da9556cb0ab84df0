"""VS Code: `servers` and `inputs` in `.vscode/mcp.json` and in the user's `mcp.json`; JSON with comments.

`http` is tried as Streamable HTTP, then as SSE. Inputs are asked for when a connection needs them; an
input of the kind `command` is kept but never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import (
    PLAIN,
    SAME,
    Dialect,
    Entry,
    FileSettings,
    Place,
    key_table,
    table_at,
    under,
    wrapped_or_bare,
)
from dragoman.config.templates import VariableSyntax
from dragoman.model import Input

if TYPE_CHECKING:
    from dragoman.config.documents import Document, Pointer


def patch(document: Document, _root: str) -> FileSettings:
    """Read the inputs."""
    written: object = table_at(document, ()).get("inputs") or []
    problems: list[tuple[Pointer, str]] = []
    if not isinstance(written, list):
        return FileSettings(problems=[(("inputs",), "expected a list of inputs")])
    inputs: list[Input] = []
    for index, item in enumerate(cast("list[object]", written)):
        found = _input(cast("dict[str, Any]", item)) if isinstance(item, dict) else None
        if found is None:
            problems.append((("inputs", index), "an input needs an `id` and a `type` that asks for a value"))
        else:
            inputs.append(found)
    return FileSettings(said={"inputs": inputs}, places={"inputs": ("inputs",)}, problems=problems)


def _input(item: dict[str, Any]) -> Input | None:
    name, kind = item.get("id"), item.get("type")
    if not isinstance(name, str) or kind not in ("promptString", "pickString", "command"):
        return None
    options = item.get("options")
    choices = (
        [_option(option) for option in cast("list[object]", options)] if isinstance(options, list) else []
    )
    default = item.get("default")
    return Input(
        id=name,
        description=str(item.get("description") or ""),
        secret=item.get("password") is True,
        default=default if isinstance(default, str) and kind != "command" else None,
        choices=choices,
    )


def _option(option: object) -> str:
    value = cast("dict[str, object]", option).get("value", "") if isinstance(option, dict) else option
    return str(value)


def translate(entry: Entry) -> None:
    """Gather the sandbox, of which a part may stand at the top of the file."""
    dialect.rename(entry)
    table = entry.fields.pop("sandbox", None)
    if entry.fields.pop("sandboxEnabled", None) in (None, False):
        return  # The rest says nothing then. What is no boolean means a sandbox, too.
    for more in (table_at(entry.document, ("sandbox",)), table):
        given = dict(cast("dict[str, Any]", more)) if isinstance(more, dict) else {}
        given.pop("level", None)  # No key of this host: it would switch the sandbox off.
        entry.fields["sandbox"] = {"level": "strict", **entry.fields.get("sandbox", {}), **given}
    entry.spellings["sandbox"] = "sandboxEnabled"


VSCODE = Dialect(
    name="vscode",
    title="VS Code",
    places=(
        Place("${workspaceFolder}/.vscode/mcp.json", "project"),
        Place("${XDG_CONFIG_HOME:-~/.config}/Code/User/mcp.json", "user", platform="linux"),
        Place("~/Library/Application Support/Code/User/mcp.json", "user", platform="darwin"),
        Place("${APPDATA}/Code/User/mcp.json", "user", platform="win32"),
    ),
    find=under("servers"),
    patch=patch,
    translate=translate,
    keys=key_table(*PLAIN, "sandbox", oauth="auth", envFile="env_file", type="transport"),
    style=VariableSyntax(env_prefix=True, inputs=True, places=True),
    sandbox_is_enabled=True,
    untyped_url="both",
    either_kind=True,
    dropped={
        "dev": "watching a server's sources is for its developers",
        "gallery": "where it was installed from means nothing here",
        "version": "the version that the editor's gallery installed",
    },
    container=("servers",),
    settings=[("inputs",)],
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "env_file": "envFile",
        "cwd": "cwd",
        "url": "url",
        "headers": "headers",
        "transport": "type",
    },
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


def translate_copilot(entry: Entry) -> None:
    """Gather the login, and take the empty text for no tool at all."""
    if entry.fields.get("tools") == "":
        entry.fields["tools"] = []
    dialect.gather(entry, {"oauthClientId": "client_id", "oauthGrantType": "grant"})


COPILOT_CLI = Dialect(
    name="copilot-cli",
    title="GitHub Copilot CLI",
    places=(
        Place("${workspaceFolder}/.mcp.json", "project"),
        Place("${workspaceFolder}/.github/mcp.json", "project"),
        Place("${COPILOT_HOME:-~/.copilot}/mcp-config.json", "user"),
    ),
    find=wrapped_or_bare,
    translate=translate_copilot,
    keys=key_table(
        *PLAIN,
        type="transport",
        timeout="call",
        tools="allowed_tools",
        excludeTools="denied_tools",
        oauth="auth",
        unit="ms",
    ),
    style=VariableSyntax(braces=True, bare=True, defaults=True),
    expanded=frozenset({"env", "headers"}),
    untyped_url="http",
    dropped={
        "deferTools": "which tools are loaded is the agent's own choice",
        "disableToolCache": "dragoman asks a server for its tools when they change",
        "filterMapping": "results are cleaned by dragoman's own rules",
        "oauthPublicClient": "whether a client has a secret is seen from `client_secret`",
        "oidc": "a login through that host's own account",
        "auth": "a login through that host's own account",
    },
    writes={
        **SAME,
        "transport": "type",
        "allowed_tools": "tools",
        "denied_tools": "excludeTools",
        "call": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "local", "http": "http", "sse": "sse"},
    always={"tools": ["*"]},
)
