"""Encoding of structs as plain JSON data; what the key of a field marks as secret is masked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

import msgspec

from dragoman.model.keys import keys
from dragoman.struct import UNSET, defaults, hidden_fields
from dragoman.trust.masking import MASK, mask_args, mask_command, mask_url, mask_value

if TYPE_CHECKING:
    from dragoman.model.keys import Key


def encoded(value: object) -> Any:
    """Return a value as plain JSON data; structs inside become objects."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, msgspec.Struct):
        return _of_struct(value)
    if isinstance(value, Mapping):
        return {name: encoded(item) for name, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in cast("list[object]", value)]
    return msgspec.to_builtins(value, enc_hook=_encode_other)


def encoded_field(value: Any, key: Key) -> Any:
    """Return the value of a key as plain JSON data, masked as its mark says."""
    if not value:
        return encoded(value)
    match key.mask:
        case "":
            return encoded(value)
        case "command":
            return mask_command(value)
        case "words":
            return mask_args(value)
        case "url":
            return mask_url(value)
        case "value":
            return _masked(value)


def _masked(value: object) -> Any:
    """Return a value whose texts are masked, however deep; references in them stay readable."""
    if isinstance(value, str):
        return mask_value(value)
    if isinstance(value, Mapping):
        return {name: _masked(item) for name, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_masked(item) for item in cast("list[object]", value)]
    return encoded(value)


def _of_struct(value: msgspec.Struct) -> dict[str, Any]:
    known = keys(type(value))
    shown: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if field is UNSET:
            continue
        if name in known:
            shown[name] = encoded_field(field, known[name])
        elif known and name in hidden_fields(type(value)):
            # Keys of an entry that mean nothing here, such as `apiToken`.
            shown[name] = dict.fromkeys(field, MASK)
        else:
            shown[name] = encoded(field)
    if value.__struct_config__.omit_defaults:
        usual = defaults(value)
        shown = {name: item for name, item in shown.items() if getattr(value, name) != usual.get(name, UNSET)}
    return shown


def _encode_other(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    msg = f"cannot encode {type(value).__name__} as JSON"
    raise TypeError(msg)
