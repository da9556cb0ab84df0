"""The model APIs: one module each, found by its name.

A new API is a module here with `API = ModelApi(…)`; its name in `export`, in `tools --format` and in errors
is that of the module, with `-` for `_`. What a model gets as the result of a call is made in the same module.
"""

from __future__ import annotations

import functools
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.tools.export.api import ModelApi

APIS: tuple[str, ...] = tuple(sorted(one.name.replace("_", "-") for one in iter_modules(__path__)))
"""The names of all APIs; this imports none of them."""


@functools.cache
def model_api(name: str) -> ModelApi:
    """Return an API by its name.

    Raises:
        ValueError: It is unknown.
    """
    if name not in APIS:
        msg = f"unknown API `{name}`: use one of {', '.join(APIS)}"
        raise ValueError(msg)
    return import_module(f"{__name__}.{name.replace('-', '_')}").API
