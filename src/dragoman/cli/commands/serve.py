"""`dragoman serve`: every server behind one MCP endpoint, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.discover import find_servers, no_servers
from dragoman.cli.exits import Exit, report_problems, require_settings, run
from dragoman.cli.options import SERVERS, Options, common_options, typed
from dragoman.errors import ConfigError
from dragoman.model import UserLimits
from dragoman.observe.otlp import exporting
from dragoman.trust.masking import mask_text
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    import socket

    from dragoman.config.users import UsersFile
    from dragoman.console.app import ConsoleApp
    from dragoman.gateway.app import GatewayApp
    from dragoman.gateway.auth import Verifier
    from dragoman.gateway.gateway import Gateway
    from dragoman.manager.manager import McpManager
    from dragoman.model import Settings

MARK = "DRAGOMAN_CHILD"
"""The variable that every server has which dragoman starts."""
LOOPBACK = "127.0.0.1"
TOKEN_VARIABLE = "DRAGOMAN_TOKEN"  # noqa: S105 -- the name of a variable
KEY_VARIABLE = "DRAGOMAN_STATE_KEY"


@click.command()
@common_options
@click.option(
    "--http", "address", metavar="[HOST:]PORT", help="Serve Streamable HTTP, not stdio. Port 0: any."
)
@click.option(
    "--only", multiple=True, metavar="SERVER", shell_complete=SERVERS, help="Serve only this server."
)
@click.option(
    "--tools",
    type=click.Choice(["all", "search", "code"]),
    default="all",
    show_default=True,
    help="List all tools, or those that find and call them, or run programs that do.",
)
@click.option(
    "--token", metavar="TEXT", help=f"What clients must send; by default {TOKEN_VARIABLE} or generated."
)
@click.option("--no-token", is_flag=True, help="Let in everyone who reaches the address.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A host name of this gateway, or *.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="A web page that may use it.")
@click.option("--issuer", metavar="URL", help="Accept access tokens of this authorization server.")
@click.option(
    "--audience", metavar="URL", help="The audience of those tokens: the public URL of this gateway."
)
@click.option("--jwks", metavar="URL", help="Where the issuer's keys are, if its metadata does not say.")
@click.option("--scope", multiple=True, metavar="NAME", help="A scope that tokens must have.")
@click.option(
    "--user-claim",
    metavar="NAME",
    help="The claim of those tokens that says who the user is: sub by default.",
)
@click.option(
    "--users", metavar="FILE", help="Who uses the gateway: a token, variables and rules for each user."
)
@click.option("--sse", is_flag=True, help="Serve the older SSE transport too, at /sse and /sse/SERVER.")
@click.option(
    "--for-model",
    is_flag=True,
    help="Add sources to every answer, cut long ones, name lost servers, and add the tool mcp_status.",
)
@click.option("--proxy", metavar="ADDRESS", help="Take this proxy's word for the addresses of clients.")
@click.option("--stateless", is_flag=True, help="Keep no sessions, for replicas behind a load balancer.")
@click.option(
    "--state-key",
    multiple=True,
    metavar="TEXT",
    help=f"The secret that replicas share; by default {KEY_VARIABLE} or generated.",
)
@click.option("--console", is_flag=True, help="Serve the web console at /console, and print a link to it.")
@click.option("--read-only", is_flag=True, help="The console changes nothing and calls no tool.")
@click.option("--access-log/--no-access-log", default=None, help="Log requests to stderr; on with --http.")
@click.pass_obj
def serve(options: Options, **given: Any) -> int:
    """Serve all servers as one MCP server, to any host.

    Without --http it speaks MCP on standard input and output: make it the only server of an editor or agent.
    With --http, all servers are at /mcp with prefixed names, and each at /mcp/SERVER with its own;
    a toolset is at /toolsets/NAME/mcp.
    """
    return run(_serve(options, **given))


async def _serve(options: Options, *, address: str | None, **given: Any) -> int:
    if address is None and MARK in os.environ:
        # Otherwise a gateway in its own configuration would start itself without end.
        msg = "this gateway was started by dragoman itself"
        raise ConfigError(
            msg, hint="remove the server that runs `dragoman serve` from dragoman's configuration"
        )
    if given["read_only"] and not given["console"]:
        msg = "--read-only needs --console"
        raise click.UsageError(msg)
    if address is None and (hint := _http_only(given)):
        msg = f"{hint} needs --http"
        raise click.UsageError(msg)
    from dragoman.server.late_import import late_import_module

    # Imported in a thread while the configuration is read.
    importing = asyncio.create_task(late_import_module("dragoman.gateway.app"))
    try:
        # On a terminal, a person may choose among the servers of other apps; over stdio no one can be asked.
        settings = await asyncio.to_thread(
            options.load if address is None else partial(find_servers, options)
        )
        require_settings(settings)
        await _say_servers(options, settings, given["only"])
        report_problems(settings)
        for name in given["only"]:
            if settings.server(name) is None:
                msg = f"Unknown server `{name}`."
                raise click.UsageError(msg)
    finally:
        app_module = await importing
    users = await _users(given) if address is not None else None
    serving = await late_import_module("dragoman.gateway.serve")
    questions = (await late_import_module("dragoman.gateway.questions")).Questions()
    listener = bind_address(serving, address) if address is not None else None
    _log_to_stderr(options, access=given["access_log"] if given["access_log"] is not None else bool(address))
    manager = _manager(options, settings, given["only"], questions, users.limits if users else None)
    keys = [*given["state_key"]] or [key for key in [os.environ.get(KEY_VARIABLE, "")] if key]
    async with exporting("dragoman-gateway"), manager as mcp:
        if listener is None:
            gateway_module = await late_import_module("dragoman.gateway.gateway")
            stdio = await late_import_module("dragoman.gateway.stdio")
            gateway: Gateway = gateway_module.Gateway(
                mcp,
                questions=questions,
                tools=given["tools"],
                state_keys=keys,
                for_model=given["for_model"],
            )
            await stdio.serve_stdio(gateway)
            return Exit.DONE
        token = os.environ.get(TOKEN_VARIABLE)
        app: GatewayApp = app_module.asgi_app(
            mcp,
            token=None
            if given["no_token"]
            else given["token"] or os.environ.get(TOKEN_VARIABLE) or "generate",
            verifier=await _verifier(given, users),
            users=users.settings if users else None,
            hosts=[*given["allow_host"], *own_hosts(listener)],
            origins=given["allow_origin"],
            questions=questions,
            tools=given["tools"],
            state_keys=keys,
            stateless=given["stateless"],
            sse=given["sse"],
            for_model=given["for_model"],
        )
        console: ConsoleApp | None = None
        if given["console"]:
            module = await late_import_module("dragoman.console.app")
            app.console = console = module.ConsoleApp(
                mcp, app.guard, entrance=app, prefix=app_module.CONSOLE, read_only=given["read_only"]
            )
        generated = app.token if not (given["token"] or token) else ""
        shown = generated or (f"${TOKEN_VARIABLE}" if app.token else "")
        await serving.serve_http(
            app,
            listener,
            on_ready=lambda: _announce(listener, generated, shown, sse=given["sse"], console=console),
            proxy=given["proxy"] or "",
        )
    return Exit.DONE


def _manager(
    options: Options, settings: Any, only: tuple[str, ...], questions: Any, users: UserLimits | None
) -> McpManager:
    from dragoman.manager.manager import McpManager

    setup: dict[str, Any] = {
        "handlers": questions.handlers(),
        "users": users,
        "approvals": "inbox",
    }
    if not only:
        return McpManager.from_config(options.with_hosts(), config=options.config, **setup)
    chosen = [spec for spec in settings.servers if spec.name in only]
    return McpManager(settings.replace(servers=chosen, auto_reload=False), **setup)


async def _users(given: dict[str, Any]) -> UsersFile | None:
    """Return who uses the gateway; `None` if all clients are one user."""
    if given["user_claim"] and not given["issuer"]:
        msg = "--user-claim needs --issuer"
        raise click.UsageError(msg)
    if not given["users"] and not given["issuer"]:
        return None
    from dragoman.server.late_import import late_import_module

    module = await late_import_module("dragoman.config.users")
    if not given["users"]:
        return module.UsersFile(UserLimits(alone=True), {}, {module.OTHERS: {}})
    if given["token"] or given["no_token"]:
        msg = "--users has the tokens: leave --token and --no-token out"
        raise click.UsageError(msg)
    users: UsersFile = await asyncio.to_thread(module.read_users, Path(given["users"]))
    if given["issuer"] and users.tokens:
        msg = f"{given['users']} has tokens, but --issuer says who gives them"
        raise click.UsageError(msg)
    without = [user for user in users.entries if user not in users.tokens.values()]
    if not given["issuer"] and (without or not users.tokens):
        msg = f"{given['users']} has no token for `{without[0] if without else 'any user'}`"
        raise click.UsageError(msg)
    return users


async def _verifier(given: dict[str, Any], users: UsersFile | None) -> Verifier | None:
    if users is None:
        return None
    from dragoman.server.late_import import late_import_module

    auth = await late_import_module("dragoman.gateway.auth")
    if not given["issuer"]:
        return auth.UserTokens(users.tokens)
    if not given["audience"]:
        msg = "--issuer needs --audience, the public URL of this gateway"
        raise click.UsageError(msg)
    return auth.JwtVerifier(
        given["issuer"],
        audience=given["audience"],
        jwks_url=given["jwks"],
        scopes=given["scope"],
        user_claim=given["user_claim"] or "sub",
    )


def _http_only(given: dict[str, Any]) -> str:
    names = (
        "token",
        "no_token",
        "allow_host",
        "allow_origin",
        "issuer",
        "audience",
        "jwks",
        "scope",
        "user_claim",
        "users",
        "stateless",
        "sse",
        "proxy",
        "console",
    )
    return next((f"--{name.replace('_', '-')}" for name in names if given[name]), "")


def bind_address(serving: Any, address: str) -> socket.socket:
    """Return a socket that is bound to `[HOST:]PORT`; without a host, to this machine alone."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        msg = f"`{address}` is not [HOST:]PORT"
        raise click.UsageError(msg)
    return serving.bind(host.strip("[]") or LOOPBACK, int(port))


def own_hosts(listener: socket.socket) -> list[str]:
    """Return the name under which a socket is reached beside those of this machine."""
    host = listener.getsockname()[0]
    return [] if host in ("0.0.0.0", "::") else [host]  # noqa: S104 -- compared, not bound


async def _say_servers(options: Options, settings: Settings, only: tuple[str, ...]) -> None:
    """Say on stderr which servers are served from which files, and which are not approved."""
    from dragoman.config.load import refused

    specs = [spec for spec in settings.servers if spec.enabled and (not only or spec.name in only)]
    waiting = await asyncio.to_thread(refused, settings, specs)
    served = [spec for spec in specs if spec.name not in waiting]
    files = dict.fromkeys(output.shorten_path(spec.origin.source) for spec in served)
    names = ", ".join(output.one_line(spec.name) for spec in served)
    count = f"{len(served)} server{'s' * (len(served) != 1)}"
    click.echo(f"{count}: {names} (from {', '.join(files)})" if served else no_servers(options), err=True)
    for spec in specs:
        if spec.name in waiting:
            command = shlex.join([*options.program(), "trust", "approve", spec.name])
            where = output.shorten_path(spec.origin.source)
            click.echo(f"not approved: {output.one_line(spec.name)} (from {where}): {command}", err=True)


def _announce(
    listener: socket.socket, token: str, shown: str, *, sse: bool, console: ConsoleApp | None
) -> None:
    """Say where the gateway is, and what to write into the configuration of the usual hosts.

    Args:
        listener: Where it listens.
        token: The token, if it was generated.
        shown: What stands for the token in the entries; empty if none is needed.
        sse: Whether the older transport is served too.
        console: The web console, if there is one.
    """
    host, port = listener.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    click.echo(f"serving at {place}/mcp", err=True)
    if sse:
        click.echo(f"serving at {place}/sse (SSE)", err=True)
    if token:
        click.echo(f"token: {token}", err=True)
    if console is not None:
        click.echo(f"console: {console.link(place)}", err=True)
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    entry: dict[str, Any] = {"url": f"{place}/mcp", **({"headers": headers} if headers else {})}
    words = ["claude", "mcp", "add", "--transport", "http", "dragoman", f"{place}/mcp"]
    # In double quotes, so that a shell replaces the variable.
    header = f' --header "Authorization: Bearer {shown}"' if shown else ""
    click.echo(f"Claude Code: {shlex.join(words)}{header}", err=True)
    click.echo(f"Cursor: {json.dumps({'mcpServers': {'dragoman': entry}})}", err=True)
    click.echo(f"VS Code: {json.dumps({'servers': {'dragoman': {'type': 'http', **entry}}})}", err=True)


class LogFormatter(logging.Formatter):
    """Says why a server failed as `dragoman status` does."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """Return the line of a record."""
        if failure := getattr(record, "failure", None):
            from dragoman.diagnosis.explain import explain

            error, spec = failure
            found = explain(error, spec)
            found = found.replace(next_step=typed(found.next_step))
            record.message = for_log(mask_text(f"{spec.name}: {found}"))
        return super().formatMessage(record)


def _log_to_stderr(options: Options, *, access: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("dragoman")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if options.debug else logging.WARNING)
    logging.getLogger("dragoman.access").setLevel(logging.INFO if access else logging.ERROR)
