"""The peers: title, environment, import statement and usage of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "peers"
DRIVERS = Path(__file__).parent / "drivers"


@dataclass(frozen=True)
class Peer:
    """One client of the comparison."""

    name: str
    title: str
    script: str
    """The file that drives it."""
    statement: str
    """The import statement of a program that uses it."""
    environment: str = ""
    """Its folder in `.cache/peers`; if empty, the current environment is used."""
    package: str = ""
    """The distribution whose version is reported."""
    way: str = ""
    """How it is used, if there are several ways."""

    @property
    def python(self) -> str:
        """The interpreter that it is installed for."""
        return str(CACHE / self.environment / "bin" / "python") if self.environment else sys.executable

    @property
    def driver(self) -> str:
        """The path of its script."""
        return str(DRIVERS / self.script)

    def versions(self) -> dict[str, str]:
        """Return the versions of its package and of the SDK below it."""
        site = _site(Path(self.python))
        names = dict.fromkeys([self.package, "mcp"]) if self.package else {}
        found = {name: _version(site, name) for name in names}
        return {name: version for name, version in found.items() if version}


FLOOR, OURS = "floor", "dragoman"
PEERS = (
    Peer(
        OURS,
        "dragoman",
        "dragoman_manager.py",
        "from dragoman import McpManager",
        environment="dragoman",
        package="dragoman",
    ),
    Peer(
        "sdk-client",
        "SDK `Client`",
        "sdk_client.py",
        "from mcp import Client",
        environment="sdk",
        package="mcp",
        way="one `Client` for each server, entered by a task each and gathered",
    ),
    Peer(
        "sdk-session",
        "SDK `ClientSession`",
        "sdk_session.py",
        "from mcp import ClientSession",
        environment="sdk",
        package="mcp",
        way="one `ClientSession` on its transport for each server, entered by a task each and gathered",
    ),
    Peer(
        "fastmcp",
        "`fastmcp`",
        "fastmcp_client.py",
        "from fastmcp import Client",
        environment="fastmcp",
        package="fastmcp",
        way="one `Client` with a configuration of all servers",
    ),
    Peer(
        "fastmcp-group",
        "`fastmcp` `ClientGroup`",
        "fastmcp_group.py",
        "from fastmcp.client.group import ClientGroup",
        environment="fastmcp",
        package="fastmcp",
        way="one `ClientGroup` of all servers",
    ),
    Peer(
        "langchain",
        "LangChain `MCPAdapter`",
        "langchain_adapter.py",
        "from langchain.mcp import MCPAdapter",
        environment="langchain",
        package="langchain",
        way="one `MCPAdapter` over a `ClientGroup` of all servers",
    ),
    Peer(
        "langchain-mcp-adapters",
        "`langchain-mcp-adapters`",
        "langchain_tools.py",
        "from langchain_mcp_adapters.client import MultiServerMCPClient",
        environment="langchain-mcp-adapters",
        package="langchain-mcp-adapters",
        way="tools of sessions that stay open; its other way starts a server for each call",
    ),
    Peer(
        "mcp-use",
        "`mcp-use`",
        "mcp_use_client.py",
        "from mcp_use import MCPClient",
        environment="mcp-use",
        package="mcp-use",
        way="`MCPClient.create_all_sessions()`, with its telemetry off",
    ),
    Peer(
        "openai-agents",
        "`openai-agents`",
        "openai_agents_manager.py",
        "from agents.mcp import MCPServerManager, MCPServerStdio",
        environment="openai-agents",
        package="openai-agents",
        way="`MCPServerManager` that connects in parallel, with the listing kept",
    ),
    Peer(
        "pydantic-ai",
        "`pydantic-ai`",
        "pydantic_ai_toolset.py",
        "from pydantic_ai.mcp import MCPToolset",
        environment="pydantic-ai",
        package="pydantic-ai-slim",
        way="one `MCPToolset` for each server, entered by a task each and gathered",
    ),
    Peer(
        FLOOR,
        "the floor",
        "floor.py",
        "import asyncio, json, subprocess",
        environment="sdk",
        way="JSON-RPC by hand on asyncio's loop: a line out, a line in, nothing checked",
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}


def _site(python: Path) -> list[Path]:
    return sorted((python.parent.parent / "lib").glob("python3.*/site-packages"))


def _version(site: list[Path], name: str) -> str:
    for folder in site:
        for info in folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
            return PathDistribution(info).version
    return ""
