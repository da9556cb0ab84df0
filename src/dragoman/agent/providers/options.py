"""ProviderOptions: what a model is opened with, and how its endpoint is made of that."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- users resolve the fields' type hints
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.agent.providers.keys import KEYRING_SERVICE, find_key
from dragoman.agent.providers.request import ModelEndpoint, ProviderAuthError, ProviderError
from dragoman.struct import Struct, field

if TYPE_CHECKING:
    from dragoman.agent.providers.keys import Secret

    AnyEndpoint = TypeVar("AnyEndpoint", bound=ModelEndpoint)


class ProviderOptions(Struct, kw_only=True):
    """What the user asked for; `open_model` of a provider makes a model of it."""

    name: str
    """The provider: the first half of `deepseek:deepseek-chat`."""
    model: str = ""
    """The second half; may have colons, and may be empty."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    base_url: str | None = None
    """Another address than the provider's own."""
    key_variable: str | None = None
    """Another variable than the provider's own."""
    num_ctx: int | None = None
    think: bool | str | None = None
    """Whether the model thinks before it answers, or how much: `low`, `medium` or `high`."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields for the body of every request."""
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More fields of the endpoint: timeouts, retry policy."""

    def require_model(self) -> str:
        """Return the model's name.

        Raises:
            ProviderError: None was given.
        """
        if not self.model:
            msg = f"`{self.name}` names no model"
            raise ProviderError(
                msg, provider=self.name, hint=f"use `{self.name}:` followed by the model's name"
            )
        return self.model

    async def endpoint(
        self,
        own: str,
        *,
        variable: str,
        base_variable: str,
        kind: type[AnyEndpoint] = ModelEndpoint,
        **fields: Any,
    ) -> AnyEndpoint:
        """Return the endpoint of a hosted API.

        A key of the environment is sent to whatever address the user set; a key of the keyring only to the
        provider's own.

        Args:
            own: The provider's own address; empty if each user has one.
            variable: The variable of the key, unless another was given.
            base_variable: The variable of the address.
            kind: The class of the endpoint.
            **fields: More of its fields.

        Raises:
            ProviderAuthError: There is no key for the provider's own address, or none that can be sent.
        """
        base_url = self.base_url or self.env.get(base_variable, "").strip() or own
        variable = self.key_variable or variable
        key = await self.key(variable, is_required=base_url == own)
        known: dict[str, Any] = {"provider": self.name, "key_variable": variable, **fields, **self.how}
        return kind(base_url=base_url.rstrip("/"), key=key, **known)

    async def key(self, variable: str, *, is_required: bool) -> Secret | None:
        """Return the key; one that is not required is only looked for in the environment.

        Raises:
            ProviderAuthError: It is required, and there is none; or it cannot be sent.
        """
        key = await find_key(variable, self.env, keyring=is_required)
        if key is None and is_required:
            msg = f"no API key for `{self.name}`"
            hint = f"set `{variable}`, or run `keyring set {KEYRING_SERVICE} {variable}`"
            raise ProviderAuthError(msg, provider=self.name, hint=hint)
        if key is not None and not (key.reveal().isascii() and key.reveal().isprintable()):
            msg = f"the key in `{variable}` has characters that no API key has"
            raise ProviderAuthError(msg, provider=self.name, hint="copy it again")
        return key

    def effort(self, default: str = "") -> str:
        """Return how much the model thinks, for an API that has only that.

        Args:
            default: What a plain yes means; without it, a yes or no is an error.

        Raises:
            ProviderError: The API takes no yes or no.
        """
        if isinstance(self.think, str):
            return self.think
        if self.think and default:
            return default
        msg = f"`{self.name}` takes no yes or no about thinking"
        raise ProviderError(msg, provider=self.name, hint="say how much: low, medium or high")
