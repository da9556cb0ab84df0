"""What the conformance suite starts: one agent's session, through configuration, manager and registry.

The suite appends the server's URL to the command and names the scenario in the environment. The client lists
everything, calls every tool (with the arguments the scenario gives, else with plain ones made from the schema),
and reads a resource and a prompt where there are any. Where a login is wanted it is the browser: it opens the
address and goes where that leads. It ends with 0 if it could do its work.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import aiohttp

from dragoman import Handlers, McpManager

CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""What the suite wants to see as the client's id where the server takes such addresses."""

PLAIN: dict[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}


def accept(_server: str, request: dict[str, Any]) -> dict[str, Any]:
    """Accept a form with its defaults."""
    properties = request.get("requestedSchema", {}).get("properties", {})
    content = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    return {"action": "accept", "content": content}


async def browse(_server: str, request: dict[str, Any]) -> None:
    """Open the address of a login; it leads back to our own page."""
    async with aiohttp.ClientSession() as browser, browser.get(request["url"]) as page:
        await page.read()


def issuer_of(url: str, context: dict[str, Any]) -> str:
    """Return the authorization server that a program's credentials belong to.

    Who registers a client knows that beforehand. The suite's server has another port each time, and its context does
    not always name it; so it is looked up here, on behalf of who would write the configuration.
    """
    if "issuer" in context:
        return context["issuer"]
    parts = urlsplit(url)
    described = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    with urlopen(described, timeout=10) as page:
        return json.load(page)["authorization_servers"][0]


def login_settings(scenario: str, context: dict[str, Any], url: str) -> dict[str, Any] | None:
    """Write down what the scenario gives the client beforehand."""
    if "private_key_pem" in context:
        return {
            "grant": "client_credentials",
            "issuer": issuer_of(url, context),
            "client_id": context["client_id"],
            "private_key": context["private_key_pem"],
            "signing_algorithm": context["signing_algorithm"],
        }
    if "valid_jwt" in context:
        known = {"grant": "jwt_bearer", "issuer": issuer_of(url, context), "client_id": context["client_id"]}
        return known | {"assertion": context["valid_jwt"]}
    if "idp_id_token" in context:
        return {
            "grant": "jwt_bearer",
            "issuer": issuer_of(url, context),
            "client_id": context["client_id"],
            "client_secret": context["client_secret"],
            "id_token": context["idp_id_token"],
            "idp_token_url": context["idp_token_endpoint"],
            "idp_client_id": context["idp_client_id"],
        }
    if "client_secret" in context:
        known = {name: context[name] for name in ("client_id", "client_secret", "issuer") if name in context}
        if "client-credentials" in scenario:
            known |= {"grant": "client_credentials", "issuer": issuer_of(url, context)}
        return known
    return {"client_metadata_url": CLIENT_METADATA} if scenario == "auth/basic-cimd" else None


def sample(_server: str, _request: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "scripted"}


def arguments_for(schema: dict[str, Any]) -> dict[str, Any]:
    """Make plain arguments: every required property, by its type."""
    properties = schema.get("properties", {})
    wanted = schema.get("required", [])
    return {name: PLAIN.get(properties.get(name, {}).get("type", "string"), "text") for name in wanted}


async def main(config: Path) -> int:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    handlers = Handlers(elicitation=accept, sampling=sample, roots=["file:///tmp"], login=browse)
    manager = McpManager.from_config(config=config, root=config.parent, handlers=handlers)
    async with manager as mcp:
        if not await mcp.wait_ready(timeout=20):
            print(mcp.status()["suite"].last_error, file=sys.stderr)
            return 1
        return await session(mcp, context)


async def session(mcp: McpManager, context: dict[str, Any]) -> int:
    tools = {tool.original_name: tool for tool in mcp.tools()}
    calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
    if not calls:
        calls = [(name, arguments_for(tool.input_schema)) for name, tool in tools.items()]
    echoing = [name for name, tool in tools.items() if "schema" in tool.input_schema.get("properties", {})]
    if echoing:
        focal = next(tool for name, tool in tools.items() if name not in echoing)
        calls = [(name, {"schema": focal.input_schema}) for name in echoing]
    results = await asyncio.gather(*(mcp.call(tools[name].name, arguments) for name, arguments in calls))
    for (name, _), result in zip(calls, results, strict=True):
        print(f"{name}: {result.text if result.success else result.error}", file=sys.stderr)
    if "auth/" in os.environ.get("MCP_CONFORMANCE_SCENARIO", "") and not all(one.success for one in results):
        return 1
    if "sep-2640" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        return await use_skills(mcp)
    for resource in (await mcp.resources())[:1]:
        await mcp.read(resource.uri, server=resource.server)
    for prompt in (await mcp.prompts())[:1]:
        await mcp.prompt(prompt.name, server=prompt.server)
    return 0


async def use_skills(mcp: McpManager) -> int:
    """List the skills; load the first as an agent would, unless the scenario wants to see it left alone."""
    for skill in (await mcp.skills.all())[:1]:
        await mcp.skills.approve(skill.server, skill.uri)
        if "no-prefetch" not in os.environ["MCP_CONFORMANCE_SCENARIO"]:
            print(await mcp.skills.load(skill.server, skill.uri), file=sys.stderr)
            for file in skill.files:
                await mcp.skills.read(skill.server, skill.uri, file.uri)
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # Logins of another scenario, or of the person who runs this, are no business of ours.
        os.environ["XDG_DATA_HOME"] = folder
        written = Path(folder, "mcp.json")
        server: dict[str, Any] = {"type": "http", "url": sys.argv[-1]}
        found = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
        settings = login_settings(os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), found, sys.argv[-1])
        if settings is not None:
            server["auth"] = settings
        written.write_text(json.dumps({"mcpServers": {"suite": server}}), "utf-8")
        code = asyncio.run(main(written))
    sys.exit(code)
