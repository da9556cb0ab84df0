"""GitHub Copilot CLI: `mcpServers`, or the bare map in a project's file; milliseconds.

Assumed: variables count in `env` and `headers` only, as its reference says; an address without a type, which
the reference does not have, is Streamable HTTP. Of the files between the working directory and the root of
the repository only the project's own are read.
"""

from __future__ import annotations

from dragoman.config.dialect import Dialect, Entry, Place, key_table
from dragoman.config.dialects import logins
from dragoman.config.dialects.sections import PLAIN, SAME, wrapped_or_bare
from dragoman.config.expand import Style


def translate(entry: Entry) -> None:
    """Gather the login, and take the empty text for no tool at all."""
    if entry.fields.get("tools") == "":
        entry.fields["tools"] = []
    logins.gather(entry, {"oauthClientId": "client_id", "oauthGrantType": "grant"})


DIALECT = Dialect(
    name="copilot-cli",
    title="GitHub Copilot CLI",
    places=(
        Place("${workspaceFolder}/.mcp.json", "project"),
        Place("${workspaceFolder}/.github/mcp.json", "project"),
        Place("${COPILOT_HOME:-~/.copilot}/mcp-config.json", "user"),
    ),
    find=wrapped_or_bare,
    translate=translate,
    keys=key_table(
        *PLAIN,
        type="transport",
        timeout="call",
        tools="allowed_tools",
        excludeTools="denied_tools",
        oauth="auth",
        unit="ms",
    ),
    style=Style(braces=True, bare=True, defaults=True),
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
