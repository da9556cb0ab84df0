"""What servers get of our environment: proxies and certificates always, passwords only where they are needed."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.servers.forward_proxy import ForwardProxy
from tests.servers.package_registry import PackageRegistry

from dragoman import McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Make = Callable[..., ServerSpec]

PROXY_PASSWORD, INDEX_PASSWORD = "pr0xy-pa55word", "ind3x-pa55word"
PROXY_LOGIN = f"Basic {b64encode(f'me:{PROXY_PASSWORD}'.encode()).decode()}"


class Company:
    """A network whose only way out is a proxy with a password, and a registry with another one."""

    def __init__(self, registry: PackageRegistry, proxy: ForwardProxy) -> None:
        self.registry, self.proxy = registry, proxy

    @property
    def variables(self) -> dict[str, str]:
        """What the company sets in every shell."""
        proxy = self.proxy.url(f"me:{PROXY_PASSWORD}")
        return {
            "HTTP_PROXY": proxy,
            "https_proxy": proxy,
            "NO_PROXY": "intranet.test",
            "npm_config_registry": "http://registry.test/",
            "UV_DEFAULT_INDEX": f"http://reader:{INDEX_PASSWORD}@registry.test/simple/",
            "npm_config__authToken": "a-token-for-publishing",
            "UV_PUBLISH_TOKEN": "another-token-for-publishing",
            "SSL_CERT_FILE": "/etc/company.pem",
        }


@pytest.fixture
async def company(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Company]:
    async with (
        PackageRegistry() as registry,
        ForwardProxy({"registry.test:80": registry.port}, password=PROXY_LOGIN) as proxy,
    ):
        made = Company(registry, proxy)
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        # Certificates are the system's here: the file above does not exist.
        monkeypatch.delenv("SSL_CERT_FILE")
        for name in list(os.environ):
            if name.startswith(("PIP_", "UV_INDEX", "UV_CACHE", "NPM_CONFIG_", "npm_config_cache")):
                monkeypatch.delenv(name)
        yield made


def programs() -> str:
    """A PATH on which `npx` and `uvx` are found."""
    uvx = Path(sys.executable).parent / "uvx"
    assert uvx.is_file()
    return os.pathsep.join([str(uvx.parent), os.environ["PATH"]])


@pytest.mark.parametrize(("launcher", "args"), [("npx", ["-y", "law-desk"]), ("uvx", ["law-desk"])])
async def test_launchers_work_behind_a_company_proxy_without_a_line_of_configuration(
    launcher: str,
    args: list[str],
    company: Company,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", programs())
    log = tmp_path / "desk.log"
    spec = ServerSpec("desk", Stdio(launcher, args, log_file=str(log)), timeouts={"connect": 50})
    with anyio.fail_after(55):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready(), mcp.status()["desk"].last_error
            env = json.loads((await mcp.call("mcp_desk_environment", {})).text)
    assert company.registry.asked
    assert all(one.headers["proxy-authorization"] == PROXY_LOGIN for one in company.proxy.passed)
    if launcher == "uvx":
        sent = [headers.get("Authorization", "") for _, headers in company.registry.asked]
        assert f"Basic {b64encode(f'reader:{INDEX_PASSWORD}'.encode()).decode()}" in sent
    assert "UV_PUBLISH_TOKEN" not in env
    assert "npm_config__authToken" not in env
    # The server writes its proxy to stderr: neither log shows the password.
    written = log.read_text("utf-8")
    assert "proxy http://" in written
    for password in (PROXY_PASSWORD, INDEX_PASSWORD):
        assert password not in written + caplog.text


@pytest.mark.usefixtures("pipes")
async def test_other_programs_get_the_proxy_without_its_password_and_no_index(
    server: Make, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_DIR", "TMPDIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, f"/places/{name}")
    with anyio.fail_after(30):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            env = json.loads((await mcp.call("mcp_plain_environment")).text)["env"]
    assert env["HTTP_PROXY"] == env["https_proxy"] == company.proxy.url()
    assert env["NO_PROXY"] == "intranet.test"
    for name in ("SSL_CERT_DIR", "TMPDIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"):
        assert env[name] == f"/places/{name}"
    assert not {"npm_config_registry", "UV_DEFAULT_INDEX", "UV_PUBLISH_TOKEN"} & env.keys()
    assert PROXY_PASSWORD not in json.dumps(env)


def recorder(path: Path) -> Path:
    """Write a program that records its environment, and then speaks MCP."""
    path.parent.mkdir(parents=True, exist_ok=True)
    server = Path(__file__).resolve().parents[1] / "servers" / "plain.py"
    lines = ["#!/bin/sh", f"/usr/bin/env > {path}.env", f"exec {sys.executable} {server}", ""]
    path.write_text("\n".join(lines), "utf-8")
    path.chmod(0o755)
    return Path(f"{path}.env")


def project(command: str, **entry: object) -> Path:
    file = Path(".mcp.json")
    file.write_text(json.dumps({"mcpServers": {"desk": {"command": command, **entry}}}), "utf-8")
    return file


@pytest.mark.usefixtures("company")
async def test_launcher_of_an_unapproved_project_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = recorder(tmp_path / "bin" / "npx")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    project("npx", args=["-y", "law-desk"])
    with anyio.fail_after(30):
        async with McpManager.from_config("claude-code") as mcp:
            assert not await mcp.wait_ready(["desk"])
            assert not (await mcp.call("mcp_desk_environment", {})).success
    assert not recorded.exists()


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("how", ["relative", "absolute", "path"])
async def test_program_of_a_project_that_is_named_like_a_launcher_gets_no_password(
    how: str, tmp_path: Path
) -> None:
    recorded = recorder(tmp_path / "tools" / "npx")
    match how:
        case "relative":
            project("./tools/npx")
        case "absolute":
            project("${CLAUDE_PROJECT_DIR}/tools/npx")
        case _:
            project("npx", env={"PATH": f"{tmp_path / 'tools'}:/usr/bin:/bin"})
    with anyio.fail_after(30):
        async with McpManager.from_config("claude-code", trust_project=True) as mcp:
            assert await mcp.wait_ready(), mcp.status()["desk"].last_error
    text = recorded.read_text("utf-8")
    assert "HTTP_PROXY=http://127.0.0.1" in text
    assert PROXY_PASSWORD not in text
    assert INDEX_PASSWORD not in text


@pytest.mark.usefixtures("company")
async def test_entry_can_pass_the_password_on_or_take_the_proxy_away(server: Make) -> None:
    base = server("plain", "plain.py").transport
    assert isinstance(base, Stdio)
    named = Stdio(base.command, base.args, inherit_env=["HTTP_PROXY"], env={"https_proxy": None})
    with anyio.fail_after(30):
        async with McpManager([ServerSpec("plain", named)]) as mcp:
            await mcp.wait_ready()
            env = json.loads((await mcp.call("mcp_plain_environment")).text)["env"]
    assert env["HTTP_PROXY"] == os.environ["HTTP_PROXY"]
    assert "https_proxy" not in env
