from __future__ import annotations

import pytest

from dragoman.agent.providers.request import LONGEST_WORDS, ProviderAuthError, ProviderError, shown, words_of
from dragoman.errors import AgentError, ModelError


@pytest.mark.parametrize(
    ("body", "said", "kind"),
    [
        ({"error": {"message": "no", "code": "c", "type": "t"}}, "no", "c"),
        ({"message": "no", "code": None, "type": "t"}, "no", "t"),
        ({"error": {"message": "no", "code": 503, "status": "UNAVAILABLE"}}, "no", "UNAVAILABLE"),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            "busy",
            "overloaded_error",
        ),
        ({"error": "model not found"}, "model not found", ""),
        ({"detail": "Not Found"}, "Not Found", ""),
        ("plain words", "plain words", ""),
        (" <html><body>502</body></html>", "", ""),
        (None, "", ""),
        ([1], "", ""),
        ({"error": {"message": 3, "code": 400}}, "", ""),
    ],
)
def test_the_apis_words_are_found_in_every_form(body: object, said: str, kind: str) -> None:
    assert words_of(body) == (said, kind)


def test_secrets_control_characters_and_length_are_taken_out() -> None:
    assert "sk-abc" not in shown("bad key sk-abcdefghijklmnopqrstuvwx")
    assert shown("\x1b[31mred\x00\r\n\x9b bell\x07") == "[31mred \n  bell"
    assert len(shown("x" * 10**6)) == LONGEST_WORDS + 1


def test_errors_are_in_the_tree() -> None:
    error = ProviderAuthError("no", provider="openai", status=401, hint="set it")
    assert isinstance(error, ProviderError | ModelError | AgentError)
    assert (error.code, str(error)) == ("agent.model.auth", "no (set it)")
    assert ProviderError("x").code == ModelError.code
