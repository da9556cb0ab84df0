"""The text of a lock file: the pins of servers, sorted and indented, and read back with care."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from dragoman.trust.pins import Pin, ServerPins, canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
LOCK_NAME = "dragoman.lock"
MAX_SERVERS = 1_000


def dump_lock(servers: Mapping[str, ServerPins]) -> str:
    """Return the text of a lock file: sorted and indented, so that a review shows what changed."""
    data = {name: _server_json(pins) for name, pins in servers.items()}
    return json.dumps({"version": VERSION, "servers": data}, indent=2, sort_keys=True) + "\n"


def _server_json(pins: ServerPins) -> dict[str, Any]:
    found: dict[str, Any] = {"tools": {name: _pin_json(pin) for name, pin in pins.tools.items()}}
    if pins.prompts is not None:
        found["prompts"] = {name: _pin_json(pin) for name, pin in pins.prompts.items()}
    if pins.instructions is not None:
        found["instructions"] = _pin_json(pins.instructions)
    if pins.capabilities:
        found["capabilities"] = pins.capabilities
    if pins.variants:
        found["variants"] = {key: _server_json(one) for key, one in pins.variants.items()}
    return found


def _pin_json(pin: Pin) -> dict[str, Any]:
    return {"sha256": pin.hash} | ({} if pin.definition is None else {"definition": pin.definition})


def load_lock(text: str) -> dict[str, ServerPins]:
    """Read the text of a lock file.

    Raises:
        ValueError: It is none; nothing in it counts.
    """
    try:
        data: object = json.loads(text)
    except RecursionError:
        data = None
    if not _is_table(data) or data.get("version") != VERSION:
        msg = f"it is no lock file of version {VERSION}"
        raise ValueError(msg)
    servers = data.get("servers")
    if not _is_table(servers) or len(servers) > MAX_SERVERS:
        msg = "it has no servers, or too many"
        raise ValueError(msg)
    return {name: _server(entry) for name, entry in servers.items()}


def _server(entry: object, *, is_variant: bool = False) -> ServerPins:
    if not _is_table(entry):
        raise _damaged()
    capabilities, variants = entry.get("capabilities", ""), entry.get("variants", {})
    if not isinstance(capabilities, str) or not _is_table(variants) or (variants and is_variant):
        raise _damaged()
    return ServerPins(
        capabilities=capabilities,
        variants={key: _server(one, is_variant=True) for key, one in variants.items()},
        tools=_pin_table(entry.get("tools", {})),
        prompts=_pin_table(entry["prompts"]) if "prompts" in entry else None,
        instructions=_read_pin(entry["instructions"]) if "instructions" in entry else None,
    )


def _pin_table(table: object) -> dict[str, Pin]:
    if not _is_table(table):
        raise _damaged()
    return {name: _read_pin(pin) for name, pin in table.items()}


def _read_pin(pin: object) -> Pin:
    if not _is_table(pin) or not isinstance(pin.get("sha256"), str):
        raise _damaged()
    definition = pin.get("definition")
    digest = cast("str", pin["sha256"])
    if definition is None:
        return Pin(digest)
    if not _is_table(definition):
        raise _damaged()
    # A definition that somebody edited does not belong to its hash, and would make a false difference.
    real = hashlib.sha256(canonical(definition).encode("utf-8", "surrogatepass")).hexdigest()
    return Pin(digest, definition if real == digest else None)


def _damaged() -> ValueError:
    return ValueError("one of its entries is damaged")


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
