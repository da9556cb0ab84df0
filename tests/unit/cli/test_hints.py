"""What a failure usually means: the likeliest hint comes first."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Http, ServerSpec, Sse, Stdio
from dragoman.cli.hints import MOST, Facts, hints

UVX = ServerSpec("git", Stdio("uvx", ["mcp-server-git"]))
NPX = ServerSpec("fs", Stdio("npx", ["-y", "@scope/server"]))
HTTP = ServerSpec("law", Http("http://127.0.0.1:8000/mcp"))
SSE = ServerSpec("law", Sse("http://127.0.0.1:8000/sse"))
TOKEN = ServerSpec("law", Http("http://127.0.0.1/mcp", headers={"authorization": "Bearer x"}))
FASTMCP = "  File x\nModuleNotFoundError: No module named 'mcp.server.fastmcp'\n"


@pytest.mark.parametrize(
    ("spec", "facts", "words"),
    [
        # The command
        (NPX, {"stage": "command"}, "install Node.js"),
        (UVX, {"stage": "command"}, "install uv"),
        (ServerSpec("x", Stdio("npxx")), {"stage": "command", "near": ["npx"]}, "did you mean `npx`?"),
        (ServerSpec("x", Stdio("npx -y s")), {"stage": "command"}, '"command": "npx", "args": ["-y", "s"]'),
        (ServerSpec("x", Stdio("/opt/s")), {"stage": "command"}, "chmod +x"),
        (ServerSpec("x", Stdio("s", cwd="/no")), {"stage": "command", "folder_missing": True}, "`/no`"),
        # Its last words
        (UVX, {"stage": "handshake", "stderr": FASTMCP}, "uvx --with 'mcp<2' mcp-server-git"),
        (
            UVX,
            {
                "stage": "handshake",
                "stderr": "ImportError: cannot import name 'FastMCP' from 'mcp.server' (x)",
            },
            "`mcp<2`",
        ),
        (
            UVX,
            {"stage": "handshake", "stderr": "ModuleNotFoundError: No module named 'mcp'"},
            "`mcp` is not ins",
        ),
        (NPX, {"stage": "handshake", "stderr": "npm error code E404"}, "no package `@scope/server`"),
        (NPX, {"stage": "handshake", "stderr": "npm error EAI_AGAIN registry"}, "package registry"),
        (NPX, {"stage": "handshake", "stderr": "npm warn EBADENGINE"}, "newer Node.js"),
        (
            NPX,
            {"stage": "handshake", "stderr": "Cannot connect to the Docker daemon at x"},
            "Docker does not",
        ),
        (NPX, {"stage": "handshake", "stderr": "Error: listen EADDRINUSE"}, "port is taken"),
        (NPX, {"stage": "handshake", "stderr": "Usage: server DIR"}, "other arguments"),
        # Variables
        (
            NPX,
            {"stage": "handshake", "stderr": "GITHUB_TOKEN is not set"},
            "wants the variable `GITHUB_TOKEN`",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "Please set BRAVE_API_KEY", "env": {"BRAVE_API_KEY": "x"}},
            "`BRAVE_API_KEY` is set here, but servers get only what their entry names",
        ),
        (NPX, {"stage": "handshake", "stderr": "an API key is needed"}, "wants a key or a token"),
        # How it ended
        (NPX, {"stage": "handshake", "timed_out": True}, "downloads the package"),
        (ServerSpec("x", Stdio("cat")), {"stage": "handshake", "timed_out": True}, "speaks over stdio?"),
        (NPX, {"stage": "handshake", "junk": 3}, "no messages to standard output"),
        (NPX, {"stage": "handshake", "exit_code": -9}, "killed by signal 9"),
        (NPX, {"stage": "handshake", "exit_code": 0}, "ended by itself"),
        (NPX, {"stage": "listing"}, "cannot list its tools"),
        # The network
        (HTTP, {"stage": "connect", "network": "refused"}, "nothing listens there"),
        (HTTP, {"stage": "connect", "network": "no-host"}, "no such host"),
        (HTTP, {"stage": "connect", "network": "certificate"}, "`tls.ca`"),
        (HTTP, {"stage": "connect", "network": "no-tls"}, "try http://"),
        (HTTP, {"stage": "connect", "network": "refused", "proxy": "http://p:1"}, "start the proxy"),
        # HTTP
        (HTTP, {"stage": "handshake", "http_status": 401}, "dragoman login law"),
        (TOKEN, {"stage": "handshake", "http_status": 401}, "the token is wrong or has expired"),
        (HTTP, {"stage": "handshake", "http_status": 404}, "/mcp"),
        (HTTP, {"stage": "handshake", "http_status": 405}, '"transport": "sse"'),
        (SSE, {"stage": "handshake", "http_status": 405}, '"transport": "http"'),
        (HTTP, {"stage": "handshake", "http_status": 407}, "the proxy wants a login"),
        (HTTP, {"stage": "handshake", "http_status": 503}, "is it up?"),
        (HTTP, {"stage": "handshake", "http_status": 500}, "its own log"),
        (HTTP, {"stage": "handshake", "http_status": 302}, "elsewhere"),
        (HTTP, {"stage": "handshake", "http_status": 200, "content_type": "text/html"}, "a web page answers"),
        (HTTP, {"stage": "handshake", "timed_out": True}, "is it an MCP server?"),
    ],
)
def test_the_first_hint_says_what_to_do(spec: ServerSpec, facts: dict[str, Any], words: str) -> None:
    found = hints(Facts(spec=spec, **facts))
    assert found
    assert words in found[0]
    assert len(found) <= MOST


def test_a_proxy_is_named_when_the_way_is_blocked() -> None:
    found = hints(Facts(spec=HTTP, stage="connect", network="timeout", proxy="http://proxy:3128"))
    assert any("http://proxy:3128" in hint and "NO_PROXY" in hint for hint in found)


def test_hostile_last_words_cost_no_time() -> None:
    for text in ("A_" * 50_000, "set " * 20_000, "cannot import name " * 10_000, "x" * 100_000):
        hints(Facts(spec=NPX, stage="handshake", stderr=text))
