"""How things are put on the screen: plain, aligned, masked, and safe for any terminal or pipe.

Text from files and servers is made harmless before it is printed; colour is for terminals only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.model import Http, Sse, Stdio
from dragoman.trust.redact import mask_args, mask_url, mask_values
from dragoman.trust.sanitize import for_terminal

if TYPE_CHECKING:
    from dragoman.errors import DragomanError
    from dragoman.model import Origin, ServerSpec, Transport

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"
    r"\U000e0000-\U000e007f]"
)
_QUOTE_FREE = re.compile(r"[\w@%+=:,./${}\-•*~]+")


def safe(text: str) -> str:
    """Replace characters that could move the cursor, hide text or change its direction."""
    return for_terminal(text)


def one_line(text: str) -> str:
    """Return a foreign text on one line: its first line that says anything, made harmless."""
    return safe(next((" ".join(line.split()) for line in text.splitlines() if line.strip()), ""))


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return a text that takes no more columns than that; what is cut off shows as `…`."""
    if width_of(text) <= width:
        return text
    if text.isascii():
        return f"{text[: max(0, width - 1)]}…"
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break a line at spaces so that no piece takes more columns; later pieces are indented."""
    words = text.lstrip(" ").split(" ")
    line = " " * (len(text) - len(text.lstrip(" "))) + words[0]
    lines: list[str] = []
    for word in words[1:]:
        if width_of(f"{line} {word}") <= width:
            line = f"{line} {word}"
        else:
            lines.append(line)
            line = indent + word
    return [*lines, line]


def columns() -> int | None:
    """Return how wide the terminal is, or nothing where lines may be as long as they are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str = "", **style: Any) -> None:
    """Print a line for people."""
    click.secho(safe(text), **style)


def say_json(value: object) -> None:
    """Print a value for programs."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_CONTROL.sub(lambda match: json.dumps(match[0])[1:-1].replace("\x7f", "\\u007f"), text))


def warn(text: str) -> None:
    """Print a line to standard error."""
    click.secho(safe(text), fg="yellow", err=True)


def note(text: str) -> None:
    """Print a remark to standard error that only people care about, where one may be reading."""
    if sys.stderr.isatty():
        click.secho(safe(text), dim=True, err=True)


def shorten_path(path: str) -> str:
    """Write a path as people do: relative to here, or to home."""
    here, home = os.getcwd(), os.path.expanduser("~")  # noqa: PTH109, PTH111 -- texts in, texts out
    if path == here or path.startswith(here + os.sep):
        return "." + path[len(here) :]
    if home != os.sep and path.startswith(home + os.sep):
        return "~" + path[len(home) :]
    return path


def place(origin: Origin) -> str:
    """Say where a definition stands."""
    source = shorten_path(origin.source)
    if origin.source == "environment":
        return f"environment, {origin.pointer}"
    return f"{source}:{origin.line}" if origin.line else source


def command_line(transport: Transport) -> str:
    """Show how a server is reached, with secrets masked."""
    match transport:
        case Stdio():
            return " ".join(_quoted(word) for word in [_command(transport), *mask_args(transport.args)])
        case Http() | Sse():
            return mask_url(transport.url)


def _command(stdio: Stdio) -> str:
    # People write whole command lines into `command`, options with secrets included.
    return " ".join(mask_args(stdio.command.split(" ")))


def _quoted(word: str) -> str:
    return word if _QUOTE_FREE.fullmatch(word) else shlex.quote(word)


def spec_json(spec: ServerSpec) -> dict[str, Any]:
    """Return a spec for programs, with secrets masked; absent keys mean the default."""
    shown: dict[str, Any] = {"name": spec.name, "transport": spec.kind, "enabled": spec.enabled}
    match spec.transport:
        case Stdio() as stdio:
            shown |= {"command": _command(stdio), "args": mask_args(stdio.args)}
            shown |= {"env": mask_values(stdio.env)} if stdio.env else {}
            shown |= {"cwd": stdio.cwd} if stdio.cwd else {}
            shown |= {"env_file": list(stdio.env_file)} if stdio.env_file else {}
            shown |= {"log_file": stdio.log_file} if stdio.log_file else {}
            if stdio.inherit_env != "safe":
                inherit = stdio.inherit_env
                shown["inherit_env"] = inherit if isinstance(inherit, str) else list(inherit)
        case Http() | Sse() as remote:
            shown |= {"url": mask_url(remote.url), "alternate": remote.alternate}
            shown |= {"headers": mask_values(remote.headers)} if remote.headers else {}
            shown |= {"allow_http": True} if remote.allow_http else {}
            if (tls := remote.tls) is not None:
                shown["tls"] = {"ca": tls.ca, "cert": tls.cert, "key": tls.key, "verify": tls.verify}
    for name in ("required", "lazy", "trust_annotations", "parallel"):
        shown |= {name: True} if getattr(spec, name) else {}
    plain = (
        "max_concurrency",
        "max_message_bytes",
        "naming",
        "health_check_interval",
        "title",
        "description",
    )
    for name in plain:
        shown |= {name: getattr(spec, name)} if getattr(spec, name) else {}
    shown |= {} if spec.reconnect else {"reconnect": False}
    shown |= {} if spec.mend_arguments is None else {"mend_arguments": spec.mend_arguments}
    shown |= {"attribution": dict(spec.attribution)} if spec.attribution else {}
    shown |= {"timeouts": dict(spec.timeouts)} if spec.timeouts else {}
    shown |= {} if spec.allowed_tools is None else {"allowed_tools": list(spec.allowed_tools)}
    shown |= {"denied_tools": list(spec.denied_tools)} if spec.denied_tools else {}
    shown |= {"fallback": list(spec.fallback)} if spec.fallback else {}
    shown["origin"] = origin_json(spec.origin)
    shown["shadowed"] = [origin_json(origin) for origin in spec.shadowed]
    shown["extras"] = sorted(spec.extras)
    shown["notes"] = [{"code": note.code, "key": note.key, "message": note.message} for note in spec.notes]
    return shown


def origin_json(origin: Origin) -> dict[str, Any]:
    """Return an origin for programs."""
    return {
        "source": origin.source,
        "line": origin.line,
        "pointer": origin.pointer,
        "dialect": origin.dialect,
        "scope": origin.scope,
    }


def error_json(error: DragomanError) -> dict[str, Any]:
    """Return an error for programs: its code never changes, its words may."""
    shown: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    problems = list(getattr(error, "problems", ()))
    return shown | ({"problems": problems} if problems else {})


def problem_json(problem: DragomanError) -> dict[str, Any]:
    """Return a problem for programs."""
    return {
        "code": problem.code,
        "source": getattr(problem, "source", ""),
        "line": getattr(problem, "line", None),
        "pointer": getattr(problem, "pointer", ""),
        "message": problem.message,
        "hint": problem.hint,
        "problems": list(getattr(problem, "problems", ())),
    }
