"""How a server is reached, as an entry says it: a command, or an address with its headers and certificates.

Decides between stdio, Streamable HTTP and legacy SSE by the dialect's rules; nothing is looked up or opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.config.documents import printable
from dragoman.config.expand import to_template
from dragoman.config.reading import shown
from dragoman.model import Http, Sse, Stdio, Tls
from dragoman.suggesting import suggest

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect, Entry
    from dragoman.config.reading import Reader
    from dragoman.model import Transport

_KINDS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
_FOREIGN_KINDS = {
    "ws": "WebSocket",
    "websocket": "WebSocket",
    "tcp": "plain TCP",
    "wside": "an editor's own WebSocket",
    "sseide": "an editor's own SSE",
    "sdk": "servers inside the host's own process",
    "builtin": "servers inside the host's own process",
    "platform": "servers inside the host's own process",
    "frontend": "servers inside the host's own window",
    "inlinepython": "servers whose code stands in the file",
}

_OF_STDIO = ("command", "args", "env", "env_file", "inherit_env", "cwd", "log_file")
_OF_URL = ("url", "headers", "auth", "alternate", "allow_http", "tls")


def read_transport(
    fields: dict[str, Any], extras: dict[str, Any], entry: Entry, dialect: Dialect, reader: Reader
) -> Transport | None:
    """Make the transport that an entry describes, or leave the reader with the problems.

    Keys that belong to another kind of transport are moved to `extras`, with a note.
    """
    kind = _kind(fields, entry, dialect, reader)
    if kind is None:
        return None
    for field in _OF_URL if kind == "stdio" else _OF_STDIO:
        if field in fields:
            key = entry.spellings.get(reader.spelling(field), reader.spelling(field))
            extras[key] = fields.pop(field)
            reader.note("conflict", key, f"a server of type {kind} has no use for it")
    if kind == "stdio":
        return _stdio(fields, dialect, reader)
    url = reader.text("url", fields.get("url"), required=f"a server of type `{kind}` needs a `url`")
    headers = reader.texts("headers", fields.get("headers"), header=True)
    if url is None or headers is None:
        return None
    template = to_template(url, dialect.style_of("url"))
    scheme, separator, _ = template.partition("://")
    if not template.startswith("${") and (not separator or scheme.lower() not in ("http", "https")):
        # The address itself may hold a secret, so it is not shown.
        reader.problem("url", "expected an address that begins with http:// or https://")
        return None
    return _remote(kind, template, headers, fields, dialect, reader)


def _remote(
    kind: str, url: str, headers: dict[str, str], fields: dict[str, Any], dialect: Dialect, reader: Reader
) -> Transport:
    style = dialect.style_of("headers")
    templates = {name: to_template(value, style) for name, value in headers.items()}
    given = reader.boolean("alternate", fields.get("alternate"))
    if "transport" in fields:
        made, alternate = _typed(kind, dialect, reader, alternate=given)
    else:
        made, alternate = _untyped(url, dialect, reader, alternate=given)
    alternate = alternate if given is None else given
    return made(
        url,
        headers=templates,
        alternate=alternate,
        tls=_tls(fields, url, dialect, reader),
        allow_http=reader.boolean("allow_http", fields.get("allow_http")) is True,
    )


def _typed(
    kind: str, dialect: Dialect, reader: Reader, *, alternate: bool | None
) -> tuple[type[Http | Sse], bool]:
    """Return what a type means, and whether the other kind is tried too unless the entry says."""
    if kind == "sse" and not dialect.sse_is_http:
        return Sse, dialect.either_kind
    if kind == "sse" and alternate is not False:
        key = reader.spelling("transport")
        reader.note("transport", key, "`sse` tries Streamable HTTP first, then legacy SSE")
    return Http, dialect.either_kind or kind == "sse"


def _untyped(
    url: str, dialect: Dialect, reader: Reader, *, alternate: bool | None
) -> tuple[type[Http | Sse], bool]:
    """Return what an address without a type means, and whether the other kind is tried too."""
    key = reader.spelling("url")
    if dialect.untyped_url == "sse":
        reader.note("transport", key, "a URL without a type is legacy SSE in this dialect")
        return Sse, False
    if dialect.untyped_url == "http":
        return Http, False
    path = url.split("?", 1)[0].split("#", 1)[0].rstrip("/")
    only = " only" if alternate is False else ""
    if dialect.untyped_url == "auto" and path.endswith("/sse"):
        order = f"legacy SSE{only or ' first, then HTTP'}"
        reader.note("transport", key, f"no type given, and the path ends in /sse: {order}")
        return Sse, True
    reader.note("transport", key, f"no type given: Streamable HTTP{only or ' first, then legacy SSE'}")
    return Http, True


_TLS_FILES = ("ca", "cert", "key")


def _tls(fields: dict[str, Any], url: str, dialect: Dialect, reader: Reader) -> Tls | None:
    if "tls" not in fields:
        return None
    table = reader.mapping("tls", fields["tls"])
    for name in table:
        if name not in (*_TLS_FILES, "verify"):
            reader.problem("tls", "expected ca, cert, key or verify", name)
    files: dict[str, str | None] = {}
    for name in _TLS_FILES:
        path = reader.text("tls", table.get(name), inner=name)
        if path is not None and not path.strip():
            reader.problem("tls", "expected the path of a file", name)
        files[name] = None if path is None else to_template(path, dialect.style_of("tls"))
    verify = reader.boolean("tls", table.get("verify"), inner="verify")
    if files["key"] is not None and files["cert"] is None:
        reader.problem("tls", "a key is of no use without its certificate: add `cert`", "key")
    if url.lower().startswith("http://"):
        reader.note("unused", reader.spelling("tls"), "an address that begins with http:// has no TLS")
    return Tls(**files, verify=verify is not False)


def _kind(fields: dict[str, Any], entry: Entry, dialect: Dialect, reader: Reader) -> str | None:
    """Decide between `stdio`, `http` and `sse`, or say why it cannot be decided."""
    written = fields.get("transport")
    has_command, has_url = "command" in fields, "url" in fields
    if written is None:
        if dialect.listed_need_transport and isinstance(entry.pointer[-1], int):
            reader.problem("", "`transport` is missing: stdio, http or sse")
            return None
        if has_command and has_url:
            reader.problem(
                "url", "both a `command` and a URL are given; say which one with a type, or remove one"
            )
            return None
        if has_url and dialect.untyped_url == "error":
            reader.problem("url", 'a URL needs a type in this dialect: add "type": "http" or "sse"')
            return None
        if not has_command and not has_url and entry.problems:
            return None
        if not has_command and not has_url:
            reader.problem("", "a server needs a `command` (stdio) or a `url` (http, sse)")
            return None
        return "stdio" if has_command else "http"
    if not isinstance(written, str):
        reader.problem("transport", f"expected stdio, http or sse, not {shown(written)}")
        return None
    folded = written.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    kind = _KINDS.get(folded)
    if kind is None:
        if folded in _FOREIGN_KINDS:
            reader.problem("transport", f"{_FOREIGN_KINDS[folded]} (`{written.strip()}`) is not supported")
            return None
        near = suggest(folded, _KINDS, count=1)
        guess = f"; did you mean `{_KINDS[near[0]]}`?" if near else ""
        reader.problem("transport", f"`{printable(written):.40}` is no transport: stdio, http or sse{guess}")
        return None
    return kind


def _stdio(fields: dict[str, Any], dialect: Dialect, reader: Reader) -> Stdio | None:
    command: object = fields.get("command")
    words: list[str] | None = []
    if isinstance(command, list):
        words = reader.strings("command", cast("list[object]", command))
        command = words[0] if words else None
    text = (
        reader.text("command", command, required="a server of type `stdio` needs a `command`")
        if words is not None
        else None
    )
    args = reader.strings("args", fields.get("args"))
    env = reader.environment("env", fields.get("env"))
    cwd = reader.text("cwd", fields.get("cwd"))
    env_file = reader.one_or_many("env_file", fields.get("env_file"))
    log_file = reader.text("log_file", fields.get("log_file"))
    if log_file is not None and not log_file.strip():
        reader.problem("log_file", "expected the path of a file")
    inherit = _inherit(fields, reader)
    if text is None or args is None or env is None or env_file is None or words is None or reader.problems:
        return None
    args = words[1:] + args
    _note_unsplit(text, args, reader)
    paths = {"command": text, "cwd": cwd, "env_file": env_file[0] if env_file else "", "log_file": log_file}
    _note_home(paths, reader)

    def template(field: str, value: str) -> str:
        return to_template(value, dialect.style_of(field))

    return Stdio(
        template("command", text),
        [template("args", arg) for arg in args],
        env={name: None if value is None else template("env", value) for name, value in env.items()},
        cwd=None if cwd is None else template("cwd", cwd),
        env_file=[template("env_file", name) for name in env_file],
        inherit_env=inherit,
        log_file=None if log_file is None else template("log_file", log_file),
    )


def _note_unsplit(command: str, args: list[str], reader: Reader) -> None:
    if len(command.split()) > 1 and not args and "/" not in command and "\\" not in command:
        message = (
            "it has spaces and no `args`; if it does not start, put every word but the first into `args`"
        )
        reader.note("type", reader.spelling("command"), message)


def _note_home(paths: dict[str, str | None], reader: Reader) -> None:
    for field, path in paths.items():
        if path and (path == "~" or path.startswith(("~/", "~\\"))):
            reader.note("path", reader.spelling(field), "the `~` is taken as the home directory")


def _inherit(fields: dict[str, Any], reader: Reader) -> Literal["safe", "all"] | list[str]:
    value = fields.get("inherit_env")
    match value:
        case None:
            return "safe"
        case "safe" | "all":
            return value
        case list():
            return reader.strings("inherit_env", cast("list[object]", value)) or []
        case _:
            reader.problem("inherit_env", f'expected "safe", "all" or a list of names, not {shown(value)}')
            return "safe"
