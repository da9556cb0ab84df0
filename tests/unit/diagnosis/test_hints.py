"""What a failure usually means: the likeliest hint comes first."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Http, ServerSpec, Sse, Stdio
from dragoman.diagnosis.hints import MOST, Facts, hints
from dragoman.model import Origin

UVX = ServerSpec("git", Stdio("uvx", ["mcp-server-git"]))
NPX = ServerSpec("fs", Stdio("npx", ["-y", "@scope/server"]))
HTTP = ServerSpec("law", Http("http://127.0.0.1:8000/mcp"))
SSE = ServerSpec("law", Sse("http://127.0.0.1:8000/sse"))
TOKEN = ServerSpec("law", Http("http://127.0.0.1/mcp", headers={"authorization": "Bearer x"}))
TLS = ServerSpec("law", Http("https://localhost/mcp"))
FAR = ServerSpec("law", Http("https://law.example/mcp"))
THEIRS = ServerSpec(
    "law", Http("http://127.0.0.1/mcp"), origin=Origin(source="mcp.json", dialect="cursor", scope="user")
)
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
        (NPX, {"stage": "command"}, "Install Node.js"),
        (UVX, {"stage": "command"}, "Install uv"),
        (ServerSpec("x", Stdio("npxx")), {"stage": "command", "near": ["npx"]}, "Did you mean `npx`?"),
        (ServerSpec("x", Stdio("npx -y s")), {"stage": "command"}, "command=npx args="),
        (ServerSpec("x", Stdio("/opt/s")), {"stage": "command"}, "chmod +x"),
        (ServerSpec("x", Stdio("s", cwd="/no")), {"stage": "command", "folder_missing": True}, "`/no`"),
        # Its standard error
        (UVX, {"stage": "handshake", "stderr": FASTMCP}, """args='["--with", "mcp<2", "mcp-server-git"]'`"""),
        (
            UVX,
            {
                "stage": "handshake",
                "stderr": "ImportError: cannot import name 'FastMCP' from 'mcp.server' (x)",
            },
            "needs version 1 of the `mcp` package",
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
            "Docker is not running",
        ),
        (NPX, {"stage": "handshake", "stderr": "Error: listen EADDRINUSE"}, "port is in use"),
        (NPX, {"stage": "handshake", "stderr": "Usage: server DIR"}, "other arguments"),
        *(
            (
                NPX,
                {"stage": "handshake", "exit_code": 0, "stderr": said},
                f"{what}. Create it, or correct the",
            )
            for said, what in (
                ("Warning: Cannot access directory /no/such dir, skipping", "`/no/such dir` does not exist"),
                ("ERROR:git.server:/no/such does not exist", "`/no/such` does not exist"),
                ("ERROR:git.server:/tmp/x is not a valid Git repository", "`/tmp/x` is not a Git repository"),
                (
                    "FileNotFoundError: [Errno 2] No such file or directory: '/d/x.db'",
                    "`/d/x.db` does not exist",
                ),
                ("Error: ENOENT: no such file or directory, stat '/d/x'", "`/d/x` does not exist"),
            )
        ),
        (LOCAL, {"stage": "handshake", "stderr": FASTMCP}, "install `mcp<2` in its environment"),
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "Cannot find module '/x/node_modules/sdk/dist/mcp' imported from",
            },
            "A file of `@scope/server` is missing",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "ModuleNotFoundError: No module named 'logs.experimental.client'",
            },
            "`logs` is missing, or its version does not fit",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "ImportError: cannot import name 'eval_type' from 'models._internal.extra' (x.py)",
            },
            "The installed version of `models` does not fit",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "FileNotFoundError: [Errno 2] No such file or directory: 'deno'",
            },
            "It starts `deno`, which was not found. Install Deno (https://deno.com).",
        ),
        (LOCAL, {"stage": "handshake", "stderr": "Error: spawn kubectl ENOENT"}, "It starts `kubectl`"),
        (LOCAL, {"stage": "handshake", "stderr": "sh: 1: adb: not found"}, "It starts `adb`"),
        (LOCAL, {"stage": "handshake", "stderr": "Run: npx playwright install"}, "It needs a browser"),
        (NPX, {"stage": "handshake", "stderr": NPX_OFFLINE}, "cannot reach its package registry"),
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "code: 'ENOTFOUND',\n hostname: 'mcp.pay.example'",
                "timed_out": True,
            },
            "It runs, but cannot reach `mcp.pay.example`",
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
            "A service that it needs refuses connections at `127.0.0.1:5432`",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "  [Errno 111] Connection\n   refused", "timed_out": True},
            "A service that it needs refuses connections.",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "npm error FetchError: connect ECONNREFUSED 127.0.0.1:4873"},
            "cannot reach its package registry",
        ),
        # Subcommands, arguments, logins
        (LOCAL, {"stage": "handshake", "stderr": COMMANDS, "exit_code": 2}, "probably `start-mcp-server`"),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Required command was not provided.", "junk": 9, "exit_code": 1},
            "It needs a subcommand, such as `stdio`",
        ),
        (
            LOCAL,
            {"stage": "handshake", "stderr": "Error: Unknown command: undefined. Expected 'init' or 'run'."},
            "It needs a subcommand",
        ),
        (
            LOCAL,
            {
                "stage": "handshake",
                "stderr": "usage: runner [-h] [--port PORT]\n  [{stdio,http,example}]\nerror: Mode is required",
            },
            "probably `stdio`",
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
            "It requires login. Run it yourself once, with `auth`.",
        ),
        (
            LOCAL,
            {"stage": "handshake", "junk": 9, "exit_code": 1},
            "It printed plain text and exited.",
        ),
        # Variables
        (
            NPX,
            {
                "stage": "handshake",
                "stderr": "Please set CHAT_BOT_TOKEN and CHAT_TEAM_ID environment variables",
            },
            "It needs the variables `CHAT_BOT_TOKEN` and `CHAT_TEAM_ID`. Enter them: ",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "Missing required variables: DB_HOST, DB_USER, DB_PASSWORD"},
            "`dragoman set fs env.DB_HOST env.DB_USER env.DB_PASSWORD`",
        ),
        (NPX, {"stage": "handshake", "stderr": SIGN_IN}, "It needs the variable `WATCHER_ACCESS_TOKEN`"),
        (
            NPX,
            {"stage": "handshake", "stderr": "GITHUB_TOKEN is not set"},
            "needs the variable `GITHUB_TOKEN`",
        ),
        (
            NPX,
            {"stage": "handshake", "stderr": "Please set BRAVE_API_KEY", "env": {"BRAVE_API_KEY": "x"}},
            "`BRAVE_API_KEY` is set, but not passed to the server",
        ),
        (NPX, {"stage": "handshake", "stderr": "an API key is needed"}, "needs a key or token"),
        # How it ended
        (NPX, {"stage": "handshake", "timed_out": True}, "downloads the package"),
        (ServerSpec("x", Stdio("cat")), {"stage": "handshake", "timed_out": True}, "over stdio"),
        (NPX, {"stage": "handshake", "junk": 3}, "It logs to standard output"),
        (NPX, {"stage": "handshake", "exit_code": -9}, "killed by signal 9"),
        (NPX, {"stage": "handshake", "exit_code": 0}, "exited without an error"),
        (NPX, {"stage": "listing"}, "cannot list its tools"),
        # The network
        (HTTP, {"stage": "connect", "network": "refused"}, "Nothing listens there"),
        (HTTP, {"stage": "connect", "network": "dns"}, "Host not found"),
        (HTTP, {"stage": "connect", "network": "tls"}, "`tls.ca`"),
        (TLS, {"stage": "connect", "network": "plain"}, "`dragoman set law url=http://localhost/mcp`"),
        (FAR, {"stage": "connect", "network": "plain"}, "Use http:// instead of https://."),
        (HTTP, {"stage": "connect", "network": "refused", "proxy": "http://p:1"}, "Start the proxy"),
        # HTTP
        (HTTP, {"stage": "handshake", "http_status": 401}, "dragoman login law"),
        (TOKEN, {"stage": "handshake", "http_status": 401}, "the token is wrong or has expired"),
        (HTTP, {"stage": "handshake", "http_status": 404}, "/mcp"),
        (HTTP, {"stage": "handshake", "http_status": 405}, "Check the address"),
        (
            HTTP,
            {"stage": "handshake", "works": ("http://127.0.0.1:8000/mcp", "sse")},
            "`dragoman set law transport=sse`",
        ),
        (
            SSE,
            {"stage": "handshake", "works": ("http://127.0.0.1:8000/sse", "http")},
            "`dragoman set law transport=http`",
        ),
        (
            SSE,
            {"stage": "handshake", "works": ("http://127.0.0.1:8000/a/sse", "sse")},
            "`dragoman set law url=http://127.0.0.1:8000/a/sse`",
        ),
        (
            THEIRS,
            {"stage": "handshake", "works": ("http://127.0.0.1/sse", "sse")},
            "url=http://127.0.0.1/sse transport=sse --profile cursor`",
        ),
        (HTTP, {"stage": "handshake", "http_status": 407}, "The proxy requires a password"),
        (HTTP, {"stage": "handshake", "http_status": 503}, "Check that the server runs"),
        (HTTP, {"stage": "handshake", "http_status": 500}, "its own log"),
        (HTTP, {"stage": "handshake", "http_status": 302}, "redirects"),
        (HTTP, {"stage": "handshake", "http_status": 200, "content_type": "text/html"}, "A web page answers"),
        (HTTP, {"stage": "handshake", "timed_out": True}, "Check that it is an MCP server"),
    ],
)
def test_the_first_hint_says_what_to_do(spec: ServerSpec, facts: dict[str, Any], words: str) -> None:
    found = hints(Facts(spec=spec, **facts))
    assert found
    assert words in found[0]
    assert len(found) <= MOST


def test_a_proxy_is_named_when_the_way_is_blocked() -> None:
    found = hints(Facts(spec=HTTP, stage="connect", network="unreachable", proxy="http://proxy:3128"))
    assert any("http://proxy:3128" in hint and "NO_PROXY" in hint for hint in found)


def test_an_attribute_is_no_variable() -> None:
    text = "AttributeError: module 'lib' has no attribute 'X509_V_FLAG_NOTIFY_POLICY'"
    assert not any("X509" in hint for hint in hints(Facts(spec=LOCAL, stage="handshake", stderr=text)))


def test_a_login_is_named_besides_the_variable() -> None:
    found = hints(Facts(spec=NPX, stage="handshake", stderr=SIGN_IN))
    assert found[1] == "It requires login. Run it yourself once, with `watcher-mcp auth login`."


def test_the_password_of_a_proxy_that_is_not_handed_on_is_named() -> None:
    def told(command: str = "server", proxy: str = "http://me:pa55word@proxy:3128", **more: Any) -> bool:
        spec = ServerSpec("x", Stdio(command, **more))
        env = {"HTTPS_PROXY": proxy}
        found = hints(
            Facts(spec=spec, stage="handshake", stderr="getaddrinfo ENOTFOUND api.example", env=env)
        )
        assert not any("pa55word" in hint for hint in found)
        return any(
            "The password in `HTTPS_PROXY` is not passed" in hint
            and "`dragoman set x env.HTTPS_PROXY='${HTTPS_PROXY}'`" in hint
            for hint in found
        )

    assert told()
    assert not told(proxy="http://proxy:3128")
    assert not told("npx")
    assert not told(env={"HTTPS_PROXY": "x"})
    assert not told(inherit_env="all")
    assert not told(inherit_env=["HTTPS_PROXY"])


def test_variables_are_parted_into_those_that_are_set_here_and_those_that_are_not() -> None:
    text = "Set `ONE_TOKEN`, `TWO_TOKEN` and `RED_TOKEN`"
    spec = ServerSpec("x", Stdio("server", env={"RED_TOKEN": "x"}))
    found = hints(Facts(spec=spec, stage="handshake", stderr=text, env={"TWO_TOKEN": "x"}))
    assert "It needs the variable `ONE_TOKEN`" in found[0]
    assert found[1].startswith("`TWO_TOKEN` is set, but not passed")
    assert not any("RED_TOKEN" in hint for hint in found)
