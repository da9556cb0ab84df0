"""The model: a script that needs no network, or the real model that `DRAGOMAN_MODEL` names."""

import json
import os
import re
import sys

from words import WORDS

from dragoman import DragomanError
from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider, open_provider

CODE = {"law": "民法典", "article_no": "585"}


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
    results = [message.text for message in request.messages if message.role == "tool"]
    for message in request.messages:
        if message.is_error:
            return Say(text=f"I cannot go on: {message.text}")
    asked = sum(message.role == "user" and message.text.endswith(("?", "？")) for message in request.messages)
    match asked, results:
        case 1, []:
            return Say(
                calls=[("mcp_legal_get_article", CODE), ("mcp_legal_list_laws", {"keyword": "民法典"})]
            )
        case 1, [article, *_]:
            return Say(text=f"{WORDS.damages}\n{opening(wording(article))}")
        case 2, [_, _]:
            return Say(calls=[("mcp_legal_search_statutes", {"query": "押金"})])
        case 3, [_, _, _]:
            return Say(calls=[("mcp_legal_get_article", CODE)])
        case _, [*_, found]:
            match found.splitlines():
                case [note, title, _, text, *_] if note.startswith("[answered by"):
                    return Say(text=f"{WORDS.samples.format(named(note))}\n{title}\n{opening(text)}")
                case [note, text] if note.startswith("[answered by"):
                    return Say(text=f"{WORDS.office.format(named(note))}\n{opening(text)}")
                case _:
                    return Say(text=f"The law says:\n{found}")
        case _:
            return Say(text="I have nothing to say.")


def wording(article: str) -> str:
    """Return the text of the article in the server's result."""
    try:
        return str(json.loads(article.partition("\n\nSources:")[0])["text"])
    except (ValueError, LookupError, TypeError):
        msg = f"the script finds no article in the answer of the server: {article}"
        raise DragomanError(msg) from None


def named(note: str) -> str:
    """Return who answered, of `[answered by `desk`, since …]`."""
    return note.split("`")[1]


def opening(text: str) -> str:
    """Return the first sentence."""
    return "".join(re.findall(r"^[^.。，]*[.。，]?", text))
