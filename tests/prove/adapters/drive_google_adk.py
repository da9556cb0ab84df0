"""Google ADK: `Runner.run_async` with an `LlmAgent`."""

from __future__ import annotations

import warnings
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from script import Outcome, Script, Seen

from dragoman.adapters.google_adk import DragomanToolset

HOW = {
    "structured result": "`structured_content` of the function response",
    "image": "a part of the function response",
    "tool error": '`{"error": …}`',
    "question as interrupt": "a request for confirmation, with a payload",
}
CANNOT: dict[str, str] = {}
CONFIRM = "adk_request_confirmation"


class Scripted(BaseLlm):
    script: Any

    async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
        declared = [one for tool in request.config.tools or [] for one in tool.function_declarations]
        step = self.script.next({one.name: one.description for one in declared})
        if step is None:
            part = types.Part.from_text(text="done")
        else:
            part = types.Part(function_call=types.FunctionCall(id=step[0], name=step[1], args=step[2]))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    agent = LlmAgent(
        name="a", model=Scripted(model="x", script=script), tools=[DragomanToolset(mcp, **options)]
    )
    runner = InMemoryRunner(agent=agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    return await _go(runner, session.id, types.Part.from_text(text="go"), [])


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    runner, session, call_id = outcome.state
    confirms = answers != "decline"
    response = {"confirmed": confirms, "payload": answers if confirms else None}
    part = types.Part(function_response=types.FunctionResponse(id=call_id, name=CONFIRM, response=response))
    return await _go(runner, session, part, outcome.seen)


async def _go(runner: Any, session: str, part: Any, seen: list[Seen]) -> Outcome:
    outcome = Outcome(seen)
    call_id = ""
    message = types.Content(role="user", parts=[part])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Parts of the framework are marked as experimental.
        async for event in runner.run_async(user_id="u", session_id=session, new_message=message):
            for call in event.get_function_calls():
                if call.name == CONFIRM:
                    outcome.question, call_id = call.args["toolConfirmation"]["payload"], call.id
            outcome.seen += [_seen(one) for one in event.get_function_responses()]
            texts = [one.text for one in event.content.parts if one.text] if event.content else []
            outcome.final = "".join(texts) or outcome.final
    outcome.state = (runner, session, call_id)
    return outcome


def _seen(response: Any) -> Seen:
    found = response.response
    return Seen(
        found.get("error") or found.get("result") or "",
        failed="error" in found,
        images=len(response.parts or []),
        structured=found.get("structured_content"),
    )
