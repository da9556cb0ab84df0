"""The model: a real one where its key is set, else one that follows a script and needs no network."""

import json
import os

from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider


def model() -> Provider | str:
    """Return what AgentEngine asks; `DRAGOMAN_MODEL` names another model of the same API."""
    for api, usual in (("openai", "gpt-5-mini"), ("anthropic", "claude-sonnet-4-5")):
        if os.environ.get(f"{api.upper()}_API_KEY"):
            return f"{api}:{os.environ.get('DRAGOMAN_MODEL', usual)}"
    return ScriptedProvider(script)


def script(request: ModelRequest) -> Say:
    """Say the next thing, by the results that there are."""
    results = [message.text for message in request.messages if message.role == "tool"]
    if request.messages[-1].is_error:
        return Say(text=f"I cannot go on: {results[-1]}")
    asked = sum(message.role == "user" and message.text.endswith("?") for message in request.messages)
    match asked, results:
        case 1, []:
            code = {"law": "民法典", "article_no": "585"}
            return Say(
                calls=[("mcp_legal_get_article", code), ("mcp_legal_list_laws", {"keyword": "民法典"})]
            )
        case 1, [article, *_]:
            record = json.loads(article.partition("\n\nSources:")[0])
            return Say(text="It lets the parties agree on damages:\n" + opening(record["text"]))
        case 2, [_, _]:
            return Say(calls=[("mcp_legal_search_statutes", {"query": "押金"})])
        case _, [*_, found]:
            note, title, _, text, *_ = found.splitlines()
            return Say(text=f"From the samples only, {note.strip('[]')}:\n{title}\n{opening(text)}")
        case _:
            return Say(text="I have nothing to say.")


def opening(text: str) -> str:
    """Return the first sentence."""
    return next(text[: at + 1] for at, letter in enumerate(text) if letter in ".。，" or at == len(text) - 1)
