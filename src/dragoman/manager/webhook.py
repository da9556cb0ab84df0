"""Tell a webhook of the user's own that a call waits: a signed POST, with a code that answers it once."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from typing import TYPE_CHECKING

from dragoman.server.late_import import late_import_module
from dragoman.struct import asdict
from dragoman.trust.encoding import encoded
from dragoman.trust.masking import mask_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import PendingApproval

logger = logging.getLogger("dragoman")

PAUSES = (0.0, 1.0, 5.0)
"""Seconds before each try."""
SECONDS = 10.0
"""How long one may take."""


def _signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message, as its header has it."""
    return f"sha256={hmac.new(secret.encode(), timestamp.encode() + b'.' + body, 'sha256').hexdigest()}"


def _message(entry: PendingApproval, code: str, public_url: str) -> bytes:
    """Return what is sent: the entry with masked arguments, and how it is answered."""
    place = f"{public_url.rstrip('/')}/approvals/{entry.id}"
    fields = {
        **encoded(asdict(entry)),
        "link": place,
        "answer": {"method": "POST", "url": place, "code": code},
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace")


async def tell_webhook(settings: Mapping[str, str], entry: PendingApproval, *, code: str) -> None:
    """Send it, and try again if that fails; a webhook that cannot be reached is a warning."""
    aiohttp = await late_import_module("aiohttp")
    url, body = settings["address"], _message(entry, code, settings.get("public_url", ""))
    why = ""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            timestamp = str(int(time.time()))
            headers = {
                "Content-Type": "application/json",
                "X-Dragoman-Timestamp": timestamp,
                "X-Dragoman-Signature": _signature(settings["secret"], timestamp, body),
            }
            try:
                # Never redirected: the code is for the user's own address.
                async with session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                    if answer.status < 300:
                        return
                    why = f"it answered with status {answer.status}"
            except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
                why = type(exc).__name__
    logger.warning("the webhook %s was not told that `%s` waits: %s", mask_url(url), entry.id, why)
