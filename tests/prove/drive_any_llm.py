"""Ask a model through any-llm: `python drive_any_llm.py BASE_URL KEY CONVERSATION`; prints what came as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from dragoman.agent.messages import Answered, Message, ModelRequest, TextDelta, ToolCall
from dragoman.agent.providers import ProviderError, RetryPolicy, open_provider


async def main(base_url: str, key: str, conversation: str) -> dict[str, Any]:
    provider = await open_provider(
        "any-llm:openai:tiny",
        base_url=base_url,
        env={"THE_KEY": key},
        key_variable="THE_KEY",
        policy=RetryPolicy(attempts=1),
    )
    messages = [
        Message(**{**one, "calls": [ToolCall(**call) for call in one.get("calls", ())]})
        for one in json.loads(conversation)
    ]
    pieces = 0
    try:
        async for event in provider.stream(ModelRequest(messages=messages, max_tokens=50)):
            pieces += isinstance(event, TextDelta)
            if isinstance(event, Answered):
                return {
                    "text": event.message.text,
                    "finish": event.finish,
                    "pieces": pieces,
                    "calls": [[call.name, call.arguments] for call in event.message.calls],
                    "input": event.usage.input_tokens,
                    "output": event.usage.output_tokens,
                }
    except ProviderError as error:
        partial = error.partial.text if error.partial is not None else ""
        return {"error": str(error), "status": error.status, "partial": partial}
    finally:
        await provider.aclose()
    return {}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
