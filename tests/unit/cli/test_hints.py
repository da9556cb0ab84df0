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
LOCAL = ServerSpec("own", Stdio("/opt/own/bin/server", ["--db", "x"]))
NPX_OFFLINE = "npm error code ENOTFOUND\nnpm error request to https://registry.example/x failed"
COMMANDS = """Usage: agent [OPTIONS] COMMAND [ARGS]...

Commands:
  config                Manage the configuration.
  project-server        Start the server of a project.
  start-mcp-server      Start the MCP server.
  tools                 Commands about tools.
"""
SIGN_IN = """Error: No access token was provided.
Run `watcher-mcp auth login` interactively first, or pass `--access-token` / `WATCHER_ACCESS_TOKEN`.
Usage: watcher-mcp [--access-token=<token>]
"""
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
        (LOCAL, {"stage": "handshake", "stderr": FASTMCP}, "install `mcp<2` beside it"),
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "Cannot find module '/x/node_modules/sdk/dist/mcp' imported from",
            },
            "`@scope/server` lacks a file of its own",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "ModuleNotFoundError: No module named 'logs.experimental.client'",
            },
            "`logs` is not installed there, or in another version",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "ImportError: cannot import name 'eval_type' from 'models._internal.extra' (x.py)",
            },
            "`models` is there in another version than it wants",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "FileNotFoundError: [Errno 2] No such file or directory: 'deno'",
            },
            "it starts `deno`, which is not there: install Deno (https://deno.com)",
        ),
        (LOCAL, {"stage": "handshake", "stderr": "Error: spawn kubectl ENOENT"}, "it starts `kubectl`"),
        (LOCAL, {"stage": "handshake", "stderr": "sh: 1: adb: not found"}, "it starts `adb`"),
        (LOCAL, {"stage": "handshake", "stderr": "Run: npx playwright install"}, "it wants a browser"),
        (NPX, {"stage": "handshake", "stderr": NPX_OFFLINE}, "cannot reach its package registry"),
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "code: 'ENOTFOUND',\n hostname: 'mcp.pay.example'",
                "timed_out": True,
            },
            "it runs, but cannot reach `mcp.pay.example`",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "Could not download model: [Errno -2] Name or service not known",
            },
            "cannot reach a service that it needs",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "code: 'SELF_SIGNED_CERT_IN_CHAIN'"},
            "does not trust the certificate",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "TypeError: fetch failed\n  connect ECONNREFUSED 127.0.0.1:5432",
            },
            "what it needs does not run at `127.0.0.1:5432`",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "  [Errno 111] Connection\n   refused", "timed_out": True},
            "what it needs does not run (connection refused)",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "npm error FetchError: connect ECONNREFUSED 127.0.0.1:4873"},
            "cannot reach its package registry",
        ),
        # Subcommands, arguments, logins
        (LOCAL, {"stage": "handshake", "stderr": COMMANDS, "exit_code": 2}, "perhaps `start-mcp-server`"),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Required command was not provided.", "junk": 9, "exit_code": 1},
            "it wants a subcommand, such as `stdio`",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Error: Unknown command: undefined. Expected 'init' or 'run'."},
            "it wants a subcommand",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "usage: runner [-h] [--port PORT]\n  [{stdio,http,example}]\nerror: Mode is required",
            },
            "perhaps `stdio`",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "usage: z [-h] [--transport {stdio,sse}]\nz: error: unrecognized arguments: serve",
            },
            "other arguments",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Please provide a database URL as a command-line argument"},
            "other arguments",
        ),
        (LOCAL, {"stage": "handshake", "stderr": "Invalid number of arguments"}, "other arguments"),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "[17] Usage: relay <https://server-url>"},
            "other arguments",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Error: a spec is required. Use one of: --spec, --inline"},
            "other arguments",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Credentials not found. Please run with 'auth' argument first."},
            "it wants a login first: run it by hand once, with `auth`",
        ),
        (
            LOCAL,
            {"stage": "handshake", "junk": 9, "exit_code": 1},
            "printed text that is no message, and ended",
        ),
        # Variables
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "Please set CHAT_BOT_TOKEN and CHAT_TEAM_ID environment variables",
            },
            "it wants the variables `CHAT_BOT_TOKEN` and `CHAT_TEAM_ID`: set them",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "Missing required variables: DB_HOST, DB_USER, DB_PASSWORD"},
            '`"DB_HOST": "${DB_HOST}", "DB_USER": "${DB_USER}", "DB_PASSWORD": "${DB_PASSWORD}"`',
        ),
        (NPX, {"stage": "handshake", "stderr": SIGN_IN}, "it wants the variable `WATCHER_ACCESS_TOKEN`"),
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


def test_an_attribute_is_no_variable() -> None:
    text = "AttributeError: module 'lib' has no attribute 'X509_V_FLAG_NOTIFY_POLICY'"
    assert not any("X509" in hint for hint in hints(Facts(spec=LOCAL, stage="handshake", stderr=text)))


def test_a_login_is_named_besides_the_variable() -> None:
    found = hints(Facts(spec=NPX, stage="handshake", stderr=SIGN_IN))
    assert found[1] == "it wants a login first: run it by hand once, with `watcher-mcp auth login`"


@pytest.mark.parametrize(
    ("stderr", "name"),
    [("getaddrinfo ENOTFOUND api.example", "HTTPS_PROXY"), ("CERTIFICATE_VERIFY_FAILED", "SSL_CERT_FILE")],
)
def test_a_proxy_or_an_authority_that_is_not_handed_on_is_named(stderr: str, name: str) -> None:
    def told(**more: Any) -> bool:
        spec = ServerSpec("x", Stdio("server", **more))
        found = hints(Facts(spec=spec, stage="handshake", stderr=stderr, env={name: "x"}))
        return any(f"`{name}` is set here" in hint and f'"{name}": "${{{name}}}"' in hint for hint in found)

    assert told()
    assert not told(env={name: "x"})
    assert not told(inherit_env="all")
    assert not told(inherit_env=[name])


def test_variables_are_parted_into_those_that_are_set_here_and_those_that_are_not() -> None:
    text = "Set `ONE_TOKEN`, `TWO_TOKEN` and `RED_TOKEN`"
    spec = ServerSpec("x", Stdio("server", env={"RED_TOKEN": "x"}))
    found = hints(Facts(spec=spec, stage="handshake", stderr=text, env={"TWO_TOKEN": "x"}))
    assert "it wants the variable `ONE_TOKEN`" in found[0]
    assert found[1].startswith("`TWO_TOKEN` is set here")
    assert not any("RED_TOKEN" in hint for hint in found)


def test_hostile_last_words_cost_no_time() -> None:
    for text in (
        *("{abc} " * 20_000 + "required", "run " * 20_000 + "'", "use 'a a a a " * 9_000, "A_B, " * 20_000),
        *("Usage: " * 20_000, "missing A_B and " * 9_000, "host=a." * 20_000),
        "A_" * 50_000,
        "set " * 20_000,
        "cannot import name " * 10_000,
        "x" * 100_000,
    ):
        hints(Facts(spec=NPX, stage="handshake", stderr=text))
