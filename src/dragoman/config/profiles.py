"""Profiles: where an application keeps its servers, what its variables are called, how it names tools.

`Profile(app="myagent")` gives any application the usual places under its own name; the applications
that dragoman knows are in `BUILT_IN`, and every host's dialect is a profile too.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Literal

from dragoman.config.dialect import Place
from dragoman.config.dialects import HOSTS, dialect
from dragoman.errors import ConfigError
from dragoman.model import Texts
from dragoman.struct import Struct, field
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_NAMING = "mcp_{server}_{tool}"

_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9_]")


class Profile(Struct, kw_only=True):
    """How one application is configured.

    Everything but `app` follows from its name where it is not given.
    """

    app: str = "dragoman"
    """The application's name, as it stands in file names."""
    places: Sequence[Place] | None = None
    """Files that may hold servers, the strongest first."""
    combine: Literal["replace", "fields", "first"] = "replace"
    """One name in two files: the stronger entry, field by field, or only the first file counts."""
    variable: str | None = None
    """The environment variable that names the one file to read; empty: none."""
    environment: str = ""
    """The prefix of variables that describe servers themselves, as LEGAL in `LEGAL_MCP_SERVER_URL`."""
    unset_variable: str = ""
    """The environment variable that says what an unset `${VAR}` becomes: error, keep or empty."""
    naming: str = DEFAULT_NAMING
    """How tools are named for the model."""
    collisions: Literal["rename", "skip"] = "rename"
    """What becomes of an exposed name that tools of several servers want; see `Settings`."""
    sources_in_text: bool = False
    """Whether the text of a result ends with its sources, for servers that do not say."""
    texts: Texts = field(default_factory=Texts)
    """The application's own words for results and for the log."""
    language: str = ""
    """The language of notices and notes, `en` or `zh`; that of the user's locale unless given."""
    failure_level: Literal["error", "warning"] = "error"
    """The level of the log for a server that fails."""
    write_to: str | None = None
    """The file that `add` and `import` write to; empty: none."""
    default_dialect: str = "mcp-json"
    """The dialect of a file that is named instead of found."""
    hosts: Sequence[str] = ()
    """Other hosts whose servers are used too, after its own: names such as `claude-code`, `cursor`."""

    def all_places(self) -> Sequence[Place]:
        """Return the files that may hold servers, the strongest first."""
        if self.places is not None:
            return self.places
        user = f"${{XDG_CONFIG_HOME:-~/.config}}/{self.app}"
        return (
            Place("${workspaceFolder}/mcp.json", "project", dialect="mcp-json"),
            Place("${workspaceFolder}/.mcp.json", "project", dialect="mcp-json"),
            Place(f"${{workspaceFolder}}/{self.app}.toml", "project", dialect="dragoman"),
            Place(f"{user}/mcp.json", "user", dialect="dragoman"),
            Place(f"{user}/{self.app}.toml", "user", dialect="dragoman"),
            Place(f"{user}/config.toml", "user", dialect="dragoman"),
        )

    def config_variable(self) -> str:
        """Return the name of the variable that names the one file to read; empty: none."""
        if self.variable is not None:
            return self.variable
        return f"{_NOT_IN_VARIABLES.sub('_', self.app.upper())}_MCP_CONFIG"

    def written_file(self) -> str:
        """Return the file that changes go to, a template; empty: this profile has none."""
        if self.write_to is not None:
            return self.write_to
        return f"${{XDG_CONFIG_HOME:-~/.config}}/{self.app}/mcp.json"


BUILT_IN: dict[str, Profile] = {
    "dragoman": Profile(),
    "excelmanus": Profile(
        app="excelmanus",
        places=(
            Place("${workspaceFolder}/mcp.json", "project", dialect="excelmanus"),
            Place("~/.excelmanus/mcp.json", "user", dialect="excelmanus"),
        ),
        combine="first",
        unset_variable="EXCELMANUS_MCP_UNDEFINED_ENV",
        collisions="skip",
        write_to="~/.excelmanus/mcp.json",
        default_dialect="excelmanus",
    ),
    "legal": Profile(
        app="legal",
        places=(),
        variable="",
        environment="LEGAL",
        sources_in_text=True,
        write_to="",
        default_dialect="legal",
    ),
    "otter": Profile(
        app="otter",
        places=(
            Place("${workspaceFolder}/otter.toml", "project", dialect="otter"),
            Place("${workspaceFolder}/.otter/config.toml", "project", dialect="otter"),
            Place("${XDG_CONFIG_HOME:-~/.config}/otter/config.toml", "user", dialect="otter"),
        ),
        naming="{tool}",
        write_to="${XDG_CONFIG_HOME:-~/.config}/otter/config.toml",
        default_dialect="otter",
    ),
    "kode": Profile(
        app="kode",
        places=(
            Place("${workspaceFolder}/.kode.json", "project", dialect="kode"),
            Place("${workspaceFolder}/.mcprc", "project", dialect="kode"),
            Place("${workspaceFolder}/.mcp.json", "project", dialect="kode"),
            Place("${KODE_CONFIG_DIR}/config.json", "user", dialect="kode"),
            Place("~/.kode.json", "user", dialect="kode"),
        ),
        naming="{server}:{tool}",
        write_to="~/.kode.json",
        default_dialect="kode",
    ),
    "rrclaw": Profile(
        app="rrclaw",
        places=(
            Place("${workspaceFolder}/config.toml", "project", dialect="rrclaw"),
            Place("~/.rrclaw/config.toml", "user", dialect="rrclaw"),
        ),
        texts=Texts(
            image="[图片内容]",
            resource="[资源内容]",
            call_failed="MCP 调用失败: {error}",
            connected="MCP Server '{server}' 连接成功",
            loaded="MCP Server '{server}' 加载了 {count} 个工具",
            not_connected="MCP Server '{server}' 连接失败（跳过）: {error}",
            not_listed="获取 MCP Server '{server}' 工具列表失败: {error}",
            closed="MCP Server '{server}' 已关闭",
        ),
        language="zh",
        failure_level="warning",
        write_to="~/.rrclaw/config.toml",
        default_dialect="rrclaw",
    ),
    "fastmcp": Profile(
        app="fastmcp",
        places=(Place("${workspaceFolder}/mcp.json", "project", dialect="fastmcp"),),
        variable="",
        write_to="",
        default_dialect="fastmcp",
    ),
    "server-json": Profile(
        app="server-json",
        places=(Place("${workspaceFolder}/server.json", "project", dialect="server-json"),),
        variable="",
        write_to="",
        default_dialect="server-json",
    ),
}


def profile_named(name: str) -> Profile:
    """Return a built-in profile, or the one of a host.

    Raises:
        ConfigError: The name is unknown; the error suggests the nearest.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in HOSTS:
        host = dialect(name)
        here = [one.path for one in host.places if one.scope == "user" and one.platform == sys.platform]
        users = [*(place.path for place in host.places if _is_everywhere(place)), *here]
        return Profile(
            app=name,
            places=[Place(p.path, p.scope, dialect=name, platform=p.platform) for p in host.places],
            combine=host.combine,
            variable="",
            write_to=users[0] if users else "",
            default_dialect=name,
        )
    known = [*BUILT_IN, *HOSTS]
    near = suggest(name, known, count=1)
    guess = f"did you mean `{near[0]}`?" if near else f"known profiles: {', '.join(known)}"
    msg = f"unknown profile `{name}`"
    raise ConfigError(msg, hint=guess)


def _is_everywhere(place: Place) -> bool:
    """Return whether a place is one file of the user on every platform, whatever is in the environment."""
    named_by_variable = place.path.startswith("${") and ":-" not in place.path.partition("}")[0]
    return place.scope == "user" and not place.platform and not named_by_variable and "*" not in place.path
