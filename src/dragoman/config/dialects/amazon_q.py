"""Amazon Q Developer CLI: as Kiro, which grew out of it, in other files; `type`, `timeout`, `${env:VAR}`."""

from __future__ import annotations

from dataclasses import replace

from dragoman.config.dialect import Place
from dragoman.config.dialects import kiro
from dragoman.config.expand import Style

DIALECT = replace(
    kiro.DIALECT,
    name="amazon-q",
    title="Amazon Q Developer CLI",
    places=(
        Place("${workspaceFolder}/.amazonq/cli-agents/*.json", "project"),
        Place("~/.aws/amazonq/cli-agents/*.json", "user"),
        Place("${workspaceFolder}/.amazonq/mcp.json", "project"),
        Place("~/.aws/amazonq/mcp.json", "user"),
    ),
    style=Style(env_prefix=True),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "disabled": "disabled",
        "call": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "", "http": "http"},
)
