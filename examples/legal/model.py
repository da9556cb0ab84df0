"""The model: a script that needs no network, or the real model that `DRAGOMAN_MODEL` names."""

import json
import os
import re
import sys

from words import WORDS

from dragoman import DragomanError
from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider, open_provider

CODE: dict[str, object] = {"law": "民法典", "article_no": "585"}
LETTER = {
    "landlord": "Riverside Homes",
    "address": "1 River Street",
    "end_date": "2026-06-30",
    "amount": "3,000",
    "tenant": "Huang",
}
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("mcp_legal_get_article", CODE),
    ("mcp_desk_search_cases", {"query": "押金", "limit": 1}),
    ("mcp_desk_fill_template", {"template_id": "deposit-return", "values": LETTER}),
    ("mcp_legal_search_statutes", {"query": "押金"}),
    ("mcp_legal_get_article", CODE),
)


async def model() -> Provider:
    """Return the model that `DRAGOMAN_MODEL` names, such as `openai:gpt-5-mini`; without it, the script."""
    name = os.environ.get("DRAGOMAN_MODEL", "").strip()
    if not name:
        return ScriptedProvider(script)
    try:
        return await open_provider(name)
    except DragomanError as error:
        print(f"DRAGOMAN_MODEL={name}: {error}", file=sys.stderr)
        sys.exit(2)


def script(request: ModelRequest) -> Say:
    """Return the next message, depending on the results so far."""
    for message in request.messages:
        if message.is_error:
            return Say(text=f"I cannot go on: {message.text}")
    asked = sum(message.role == "user" and message.text.endswith(("?", "？")) for message in request.messages)
    results = [message.text for message in request.messages if message.role == "tool"]
    if len(results) < asked:
        return Say(calls=[CALLS[asked - 1]])
    return Say(text=answer(asked, results[-1]))


def answer(asked: int, result: str) -> str:
    """Return what the model says about a result."""
    words = result.partition(f"\n\n{WORDS.sources}")[0]
    lines = words.splitlines()
    match asked:
        case 1:
            return f"{WORDS.damages}\n{opening(wording(words))}"
        case 2:
            return f"{WORDS.case}\n{lines[0]}\n{lines[3]}"
        case 3:
            return "\n".join([WORDS.letter, *(line for line in lines if LETTER["amount"] in line)])
        case 4:
            note, title, _, text, *_ = lines
            return f"{WORDS.samples.format(named(note))}\n{title}\n{opening(text)}"
        case _:
            note, kept = lines
            return f"{WORDS.office.format(named(note))}\n{opening(wording(kept))}"


def wording(article: str) -> str:
    """Return the text of the article in a result."""
    try:
        return str(json.loads(article)["text"])
    except (ValueError, LookupError, TypeError):
        msg = f"the script finds no article in the answer of the server: {article}"
        raise DragomanError(msg) from None


def named(note: str) -> str:
    """Return who answered, of `[answered by `desk`, since …]`."""
    return note.split("`")[1]


def opening(text: str) -> str:
    """Return the first sentence."""
    return "".join(re.findall(r"^[^.。，]*[.。，]?", text))
