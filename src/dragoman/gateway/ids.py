"""Names and URIs of many servers in one list, and back again. Pure.

A prompt is `server.prompt`, a resource `dragoman://server/` in front of its own URI. The prefix depends on
the server alone, and stays in front of a template that a client fills in. `ui://` and `skill://` keep their
scheme, since hosts recognise them by it: `ui://server/` and the rest. Tools have the registry's names. The id
of a task is `server:id.mark` in every view: servers may count their tasks, and clients must not guess them.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from dragoman.model import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEME = "dragoman://"
KEPT_SCHEMES = ("ui://", "skill://")
UI = "ui"
_URI_KEYS = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of a tool's `_meta` beside `ui.resourceUri` that hold the URI of its view."""


def outer_uri(server: str, uri: str) -> str:
    """Return the URI of a server's resource in the list of all servers."""
    for scheme in KEPT_SCHEMES:
        if uri.startswith(scheme):
            return f"{scheme}{quote(server, safe='')}/{uri[len(scheme) :]}"
    return f"{SCHEME}{quote(server, safe='')}/{uri}"


def inner_uri(uri: str) -> tuple[str, str] | None:
    """Return the server and its own URI; `None` if this is not a URI of `outer_uri`."""
    for scheme in (SCHEME, *KEPT_SCHEMES):
        if uri.startswith(scheme):
            server, slash, rest = uri[len(scheme) :].partition("/")
            return (unquote(server), rest if scheme == SCHEME else scheme + rest) if slash else None
    return None


def outer_prompt(server: str, name: str) -> str:
    """Return the name of a server's prompt in the list of all servers."""
    return f"{quote(server, safe='').replace('.', '%2E')}.{name}"


def inner_prompt(name: str) -> tuple[str, str] | None:
    """Return the server and its own name for a prompt; `None` if this is not a name of `outer_prompt`."""
    server, dot, own = name.partition(".")
    return (unquote(server), own) if dot else None


def task_key(secret: bytes, user: str) -> bytes:
    """Return the key that marks the ids of tasks of a user; empty where there are no users."""
    return hmac.digest(secret, b"dragoman task " + user.encode("utf-8", "surrogatepass"), "sha256")


def outer_task(server: str, task: str, key: bytes) -> str:
    """Return the id of a server's task for clients, with a mark that no client can guess."""
    return f"{quote(server, safe='')}:{task}.{_mark(server, task, key)}"


def inner_task(text: str, keys: Sequence[bytes]) -> tuple[str, str] | None:
    """Return the server and its own id for a task; `None` if the mark is of none of these keys."""
    name, _, marked = text.partition(":")
    server, (task, _, mark) = unquote(name), marked.rpartition(".")
    given = mark.encode("utf-8", "surrogatepass")
    marks = [_mark(server, task, key).encode() for key in keys]
    return (server, task) if any(hmac.compare_digest(one, given) for one in marks) else None


def _mark(server: str, task: str, key: bytes) -> str:
    text = f"{server}\0{task}".encode("utf-8", "surrogatepass")
    return urlsafe_b64encode(hmac.digest(key, text, "sha256")[:18]).decode()


def outer_tool(entry: Mapping[str, Any], *, server: str, name: str) -> dict[str, Any]:
    """Return a tool's definition under its exposed name, with the URI of its view rewritten."""
    named = {**entry, "name": name}
    meta = json_object(entry.get("_meta"))
    changed: dict[str, Any] = {
        key: outer_uri(server, meta[key]) for key in _URI_KEYS if isinstance(meta.get(key), str)
    }
    view = json_object(meta.get(UI))
    if isinstance(view.get("resourceUri"), str):
        changed[UI] = {**view, "resourceUri": outer_uri(server, view["resourceUri"])}
    return {**named, "_meta": {**meta, **changed}} if changed else named


def outer_block(block: Any, server: str) -> Any:
    """Return a content block whose URI, if it has one, can be read through the list of all servers."""
    fields = json_object(block)
    match fields.get("type"):
        case "resource_link" if isinstance(fields.get("uri"), str):
            return {**fields, "uri": outer_uri(server, fields["uri"])}
        case "resource" if isinstance(json_object(fields.get("resource")).get("uri"), str):
            resource = json_object(fields["resource"])
            return {**fields, "resource": {**resource, "uri": outer_uri(server, resource["uri"])}}
        case _:
            return block


def outer_result(result: Mapping[str, Any], server: str) -> Mapping[str, Any]:
    """Return the result of a call, a prompt or a read whose URIs are those of the list of all servers."""
    if isinstance(result.get("content"), list):
        return {**result, "content": [outer_block(block, server) for block in result["content"]]}
    if isinstance(result.get("contents"), list):
        return {**result, "contents": [_outer_content(content, server) for content in result["contents"]]}
    if isinstance(result.get("messages"), list):
        return {**result, "messages": [_outer_message(message, server) for message in result["messages"]]}
    return result


def _outer_content(content: Any, server: str) -> Any:
    uri = json_object(content).get("uri")
    return {**content, "uri": outer_uri(server, uri)} if isinstance(uri, str) else content


def _outer_message(message: Any, server: str) -> Any:
    fields = json_object(message)
    return {**fields, "content": outer_block(fields["content"], server)} if "content" in fields else message
