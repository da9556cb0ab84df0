"""Azure OpenAI: the Chat Completions API at the address of a resource; a model is a deployment there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from dragoman.agent.providers.openai_chat import OPENAI, ChatProvider
from dragoman.agent.providers.request import ProviderAuthError, ProviderError, require_sdk

if TYPE_CHECKING:
    from dragoman.agent.providers.options import ProviderOptions

KEY = "AZURE_OPENAI_API_KEY"
BASE = "AZURE_OPENAI_ENDPOINT"
VERSIONS = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
"""Variables with a dated version of the API; without one, its `v1`, which has no dates, is used."""


async def open_model(options: ProviderOptions) -> ChatProvider:
    """Open a deployment of the resource at `AZURE_OPENAI_ENDPOINT`.

    Raises:
        ProviderError: No resource is set.
        ProviderAuthError: There is no key.
    """
    deployment = options.require_model()
    require_sdk("openai")
    place = (options.base_url or options.env.get(BASE, "")).strip().rstrip("/").removesuffix("/openai/v1")
    if not place:
        msg = "`azure` needs the address of your resource"
        hint = f"set `{BASE}` to `https://NAME.openai.azure.com`"
        raise ProviderError(msg, provider=options.name, hint=hint)
    version = next((value for name in VERSIONS if (value := options.env.get(name, "").strip())), "")
    path = f"/openai/deployments/{quote(deployment, safe='')}" if version else "/openai/v1"
    endpoint = await options.replace(base_url=place + path).endpoint(
        "",
        variable=KEY,
        base_variable=BASE,
        key_header="api-key",
        query={"api-version": version} if version else {},
    )
    if not endpoint.key:
        # Each resource has its own key, so that of a keyring would be a guess.
        msg = f"no API key for `{options.name}`"
        raise ProviderAuthError(msg, provider=options.name, hint=f"set `{endpoint.key_variable}`")
    thinking = {} if options.think is None else {"reasoning_effort": options.effort()}
    return ChatProvider(deployment, endpoint=endpoint, extra={**thinking, **options.extra}, rules=OPENAI)
