"""Models behind their APIs, one file each; their SDKs are extras, imported when a model is first asked."""

from dragoman.agent.providers.failures import ProviderAuthError, ProviderError, StreamBrokenError
from dragoman.agent.providers.opening import open_provider
from dragoman.agent.providers.retrying import RetryPolicy
from dragoman.agent.providers.scripted import Say, ScriptedProvider

__all__ = [
    "ProviderAuthError",
    "ProviderError",
    "RetryPolicy",
    "Say",
    "ScriptedProvider",
    "StreamBrokenError",
    "open_provider",
]
