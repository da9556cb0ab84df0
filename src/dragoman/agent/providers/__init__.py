"""Model providers, one file per API. The SDKs are optional extras, imported on the first request."""

from dragoman.agent.providers.open import open_provider
from dragoman.agent.providers.options import ProviderOptions
from dragoman.agent.providers.request import ProviderAuthError, ProviderError, RetryPolicy, StreamBrokenError
from dragoman.agent.providers.scripted import Say, ScriptedProvider

__all__ = [
    "ProviderAuthError",
    "ProviderError",
    "ProviderOptions",
    "RetryPolicy",
    "Say",
    "ScriptedProvider",
    "StreamBrokenError",
    "open_provider",
]
