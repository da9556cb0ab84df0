"""An alias: each of these functions lives in the module of its API, in `dragoman.tools.export.apis`."""

from dragoman.tools.export.apis.anthropic import anthropic_content
from dragoman.tools.export.apis.gemini import gemini_response
from dragoman.tools.export.apis.openai import chat_content
from dragoman.tools.export.apis.responses import responses_output

__all__ = ["anthropic_content", "chat_content", "gemini_response", "responses_output"]
