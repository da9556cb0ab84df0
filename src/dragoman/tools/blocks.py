"""An alias: these functions live in `dragoman.tools.result.render`."""

from dragoman.tools.result.render import anthropic_content, chat_content, gemini_response, responses_output

__all__ = ["anthropic_content", "chat_content", "gemini_response", "responses_output"]
