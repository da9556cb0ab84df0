"""What can go wrong between us and a model's API, in our words and the API's own.

No key is ever in here: the API's words are masked, shortened and freed of control characters, and no foreign
exception is chained, because its request holds the headers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.agent.providers.fields import as_object, text_in
from dragoman.errors import ModelError
from dragoman.trust.redact import MASK, mask_text

if TYPE_CHECKING:
    from dragoman.agent.messages import Message

LONGEST_WORDS = 1000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")


class ProviderError(ModelError):
    """A model's API failed; `status` and `kind` say how, `partial` holds what had come."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        kind: str = "",
        retry_after: float | None = None,
        transient: bool = False,
        partial: Message | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        """`openai`, `responses` or `anthropic`."""
        self.status = status
        """The HTTP status, where there was an answer at all."""
        self.kind = kind
        """The API's own name for it, as `context_length_exceeded`."""
        self.retry_after = retry_after
        """Seconds, where the API asked to wait."""
        self.transient = transient
        """Whether the same request may go well later."""
        self.partial = partial
        """What had come of the answer when the stream broke."""


class ProviderAuthError(ProviderError):
    """The key is missing, wrong, or not good for this."""

    code = "agent.model.auth"


class StreamBrokenError(ProviderError):
    """The answer ended in the middle, or stopped being what the API promises."""

    code = "agent.model.stream"


def words_of(body: object, *, secret: str = "") -> tuple[str, str]:
    """Return what an API says about an error, and what it calls it."""
    fields = as_object(body)
    inner = as_object(fields.get("error")) or fields
    error = fields.get("error")
    said = text_in(inner, "message") or text_in(inner, "detail") or (error if isinstance(error, str) else "")
    if not said and isinstance(body, str):
        # A page of a proxy in between is not worth reading.
        said = "" if body.lstrip().startswith("<") else body
    kind = text_in(inner, "code") or text_in(inner, "type")
    return shown(said, secret=secret), shown(kind, secret=secret)[:100]


def shown(text: str, *, secret: str = "") -> str:
    """Make foreign words fit for a message."""
    if secret:
        text = text.replace(secret, MASK)
    text = _CONTROL.sub(" ", mask_text(text[: 4 * LONGEST_WORDS])).strip()
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}…"
