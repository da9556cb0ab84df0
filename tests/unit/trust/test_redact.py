"""Masking: secrets of any known kind disappear, references and names stay, any text is taken."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.trust.redact import (
    MASK,
    is_telling,
    mask_args,
    mask_arguments,
    mask_text,
    mask_url,
    mask_value,
    mask_values,
)

ALNUM = string.ascii_letters + string.digits
WORDY = st.text(ALNUM, min_size=36, max_size=50)
TOKENS = st.one_of(
    st.builds(str.__add__, st.sampled_from(["ghp_", "gho_", "ghs_", "github_pat_", "hf_", "npm_"]), WORDY),
    st.builds(
        str.__add__, st.sampled_from(["sk-", "sk-ant-api03-", "sk-proj-", "sk_live_", "rk_test_"]), WORDY
    ),
    st.builds(
        str.__add__, st.sampled_from(["glpat-", "xoxb-", "xapp-", "pypi-", "tvly-", "AIza", "ya29."]), WORDY
    ),
    st.builds(
        "{}{}".format, st.sampled_from(["AKIA", "ASIA"]), st.text("ABC123XYZ", min_size=16, max_size=16)
    ),
    st.builds("eyJ{}.{}.{}".format, WORDY, WORDY, WORDY),
)
SECRETS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=6, max_size=30).filter(
    lambda text: text == text.strip() and MASK not in text and "$" not in text
)
KEYS = st.sampled_from(
    "token api_key API-KEY apiKey clientSecret client_secret PGPASSWORD password passwd authtoken AUTHORIZATION "
    "X-Auth-Token GITHUB_TOKEN access_key secretKey cookie session private_key credentials DB_PWD ghPat".split()
)


@pytest.mark.parametrize(
    "name",
    "api_key apikey API-KEY X-Auth-Token clientSecret PGPASSWORD NGROK_AUTHTOKEN accesstoken passphrase "
    "AWS_SECRET_ACCESS_KEY --token --bearer cookie OPENAI_KEY DB_PWD tokens key2".split(),
)
def test_a_name_that_announces_a_secret_is_telling(name: str) -> None:
    assert is_telling(name)


@pytest.mark.parametrize(
    "name",
    "path monkey keyboard author authentic pattern tokenizer compass --verbose q turkey sessions_".split()[
        :-1
    ],
)
def test_a_name_that_only_sounds_similar_is_not_telling(name: str) -> None:
    assert not is_telling(name)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hunter2", MASK),
        ("", ""),
        ("  ", "  "),
        ("${TOKEN}", "${TOKEN}"),
        ("${env:TOKEN}", "${env:TOKEN}"),
        ("${input:api-key}", "${input:api-key}"),
        ("Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("Bearer hunter2", f"Bearer {MASK}"),
        ("Bearer", "Bearer"),
        ("basic aHVudGVyMg==", f"basic {MASK}"),
        ("a${USER}b", f"{MASK}${{USER}}{MASK}"),
        ("${TOKEN:-hunter2}", f"${{TOKEN:-{MASK}}}"),
        ("${TOKEN-hunter2}", f"${{TOKEN-{MASK}}}"),
        ("${TOKEN:-}", "${TOKEN:-}"),
        ("$${hunter2}", MASK),
        ("${hunter 2}", MASK),
        ("${TOKEN", MASK),
        ("Bearer ${keyring:https://x/me}", "Bearer ${keyring:https://x/me}"),
        ("${command:pass show a/b}", "${command:pass show a/b}"),
        ("${command:get --token hunter2}", f"${{command:get --token {MASK}}}"),
        ("a${command:x}b", f"{MASK}${{command:x}}{MASK}"),
        ("${command:-hunter2}", f"${{command:-{MASK}}}"),
        ("$${command:hunter2}", MASK),
    ],
)
def test_a_value_keeps_its_references_and_nothing_else(value: str, shown: str) -> None:
    assert mask_value(value) == shown


def test_values_are_masked_whatever_they_are_called_and_a_removed_variable_stays_removed() -> None:
    assert mask_values({"HARMLESS": "x", "GONE": None}) == {"HARMLESS": MASK, "GONE": None}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com:8080/mcp", "https://example.com:8080/mcp"),
        ("https://example.com/@scope/server", "https://example.com/@scope/server"),
        ("http://[::1]:3000/mcp", "http://[::1]:3000/mcp"),
        ("https://ann:pw@example.com/mcp", f"https://{MASK}@example.com/mcp"),
        ("https://ann:${PW}@example.com/mcp", f"https://{MASK}${{PW}}@example.com/mcp"),
        ("https://ann:p@w@example.com/mcp", f"https://{MASK}@example.com/mcp"),
        ("https://ann:p/a?s#s@w@example.com/mcp", f"https://{MASK}"),
        ("https://ann:p w@example.com/mcp", f"https://{MASK}@example.com/mcp"),
        ("ann:pw@example.com/mcp", f"{MASK}@example.com/mcp"),
        ("https://example.com/mcp?a=1&key=${KEY}&b", f"https://example.com/mcp?a={MASK}&key=${{KEY}}&{MASK}"),
        ("https://example.com/mcp?", "https://example.com/mcp?"),
        ("https://example.com/mcp#hunter2", f"https://example.com/mcp#{MASK}"),
        ("${BASE:-https://example.com}/mcp", "${BASE:-https://example.com}/mcp"),
        ("${BASE:-https://ann:pw@example.com}/mcp", f"${{BASE:-https://{MASK}@example.com}}/mcp"),
        (f"https://example.com/sk-{'a' * 20}/mcp", f"https://example.com/{MASK}/mcp"),
    ],
)
def test_a_url_keeps_its_place_and_loses_its_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-y", "server", "--root", "/data"], ["-y", "server", "--root", "/data"]),
        (["--token", "hunter2", "next"], ["--token", MASK, "next"]),
        (["--token", "-hunter2"], ["--token", MASK]),
        (["-token", "hunter2"], ["-token", MASK]),
        (["--use-auth", "--verbose", "-v"], ["--use-auth", "--verbose", "-v"]),
        (["--token", "${TOKEN}"], ["--token", "${TOKEN}"]),
        (["--api-key=hunter2"], [f"--api-key={MASK}"]),
        (["-e", "PGPASSWORD=hunter2"], ["-e", f"PGPASSWORD={MASK}"]),
        (["--env=API_KEY=hunter2"], [f"--env=API_KEY={MASK}"]),
        (["--header", "X-Api-Key: hunter2"], ["--header", f"X-Api-Key: {MASK}"]),
        (["-H", "Authorization: Bearer ${T}"], ["-H", "Authorization: Bearer ${T}"]),
        (["--header=Authorization: Bearer hunter2"], [f"--header=Authorization: Bearer {MASK}"]),
        (["--config", '{"apiKey": "hun\\"ter2", "n": 1}'], ["--config", f'{{"apiKey": "{MASK}", "n": 1}}']),
        (['{\\"apiKey\\":\\"hunter2\\"}'], [f'{{\\"apiKey\\":\\"{MASK}\\"}}']),
        (["https://example.com/mcp?key=hunter2"], [f"https://example.com/mcp?key={MASK}"]),
        (["postgresql://ann:pw@db/x"], [f"postgresql://{MASK}@db/x"]),
        (["--dsn=mysql://ann:pw@db"], [f"--dsn=mysql://{MASK}@db"]),
        (["task-master-ai-with-a-long-name"], ["task-master-ai-with-a-long-name"]),
    ],
)
def test_arguments_lose_what_follows_a_telling_name(args: list[str], shown: list[str]) -> None:
    assert mask_args(args) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nothing to hide", "nothing to hide"),
        ("GET https://a:b@c/d?e=f failed", f"GET https://{MASK}@c/d?e={MASK} failed"),
        ('refused: "Authorization: Bearer hunter2"', f'refused: "Authorization: Bearer {MASK}"'),
        ("Bearer ${A}hunter2", f"Bearer ${{A}}{MASK}"),
        ("{'password': 'hunter2'}", f"{{'password': '{MASK}'}}"),
        ("{'path': 'hunter2'}", "{'path': 'hunter2'}"),
    ],
)
def test_a_text_loses_what_is_recognised_in_it(text: str, shown: str) -> None:
    assert mask_text(text) == shown


def test_arguments_of_a_call_are_masked_shortened_and_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    given_ = {
        "path": "/a",
        "password": "hunter2",
        "token": None,
        "nested": [{"apiKey": {"any": "hunter2"}}, ("x", "Bearer hunter2")],
        "long": "y" * 100,
        "raw": b"hunter2",
        "count": 3,
        1: {"secret"},
        "deep": deep,
    }
    masked = mask_arguments(given_)
    assert masked["nested"] == [{"apiKey": MASK}, ["x", f"Bearer {MASK}"]]
    assert masked["long"] == "y" * 60 + "… (100 characters)"
    assert {name: masked[name] for name in ("path", "password", "token", "raw", "count", "1")} == {
        "path": "/a",
        "password": MASK,
        "token": None,
        "raw": "(7 bytes)",
        "count": 3,
        "1": ["secret"],
    }
    assert "bottom" not in json.dumps(masked)
    assert "hunter2" not in json.dumps(masked)


@given(token=TOKENS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_planted_token_of_a_known_shape_never_survives(token: str, before: str, after: str) -> None:
    text = f"{before} {token} {after}"
    assume(token not in before + after)
    for masked in (mask_text(text), *mask_args([text]), mask_value(text), mask_url(text)):
        assert token not in masked
    assert token not in json.dumps(
        mask_arguments({"text": [text], token: 1}, limit=10_000), ensure_ascii=False
    )


@given(key=KEYS, secret=SECRETS)
def test_a_secret_under_a_telling_key_never_survives(key: str, secret: str) -> None:
    assume(secret.casefold() not in key.casefold())
    assume(not secret.startswith("-"))
    shapes = [
        [f"--{key}", secret],
        [f"--{key}={secret}"],
        [f"{key}={secret}"],
        [f"{key}: {secret}"],
        ["--env", f"{key}={secret}"],
        [f"--header={key}: {secret}"],
        [json.dumps({key: secret}, ensure_ascii=False)],
    ]
    for args in shapes:
        masked = " ".join(mask_args(args))
        assert secret not in masked.replace(key, "").replace(MASK, ""), args
    assert mask_arguments({key: secret}) == {key: MASK}
    assert secret not in str(mask_values({key: secret})).replace(key, "").replace(MASK, "")


@given(user=st.text(ALNUM, min_size=6), secret=SECRETS.filter(lambda text: not text[0].isdigit()))
def test_a_password_in_a_url_never_survives(user: str, secret: str) -> None:
    url = f"https://{user}:{secret}@example.com/mcp?key={secret}&x#{secret}"
    assume(secret not in "https://@example.com/mcp?key=&x#")
    assert secret not in mask_url(url).replace(MASK, "")


@given(
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True), prefix=st.sampled_from(["", "env:"])
)
def test_a_reference_stays_readable_everywhere(name: str, prefix: str) -> None:
    reference = f"${{{prefix}{name}}}"
    assert mask_value(reference) == reference
    assert mask_args(["--token", reference, f"--key={reference}"]) == [
        "--token",
        reference,
        f"--key={reference}",
    ]
    assert mask_url(f"https://h/{reference}?k={reference}") == f"https://h/{reference}?k={reference}"
    assert mask_text(f"Bearer {reference}") == f"Bearer {reference}"


@given(
    st.one_of(
        st.text(st.characters(), max_size=60),
        st.lists(
            st.sampled_from(
                ["${", "}", "$", ":-", "A", "://", "@", "?", "#", '"', "\\", "key", "=", ": ", "Bearer "]
            )
        ).map("".join),
    )
)
def test_masking_takes_any_text_and_a_second_time_changes_nothing(text: str) -> None:
    for masked in (mask_value(text), mask_text(text), mask_url(text), mask_args([text, text])[1]):
        assert isinstance(masked, str)
    assert mask_value(mask_value(text)) == mask_value(text)


@pytest.mark.parametrize(
    "piece", ["${A:-", "${", "a=", '"a":"', "://", "Bearer ", "a://u:", '\\"a\\":\\"', "eyJ", "-"]
)
def test_a_long_text_of_beginnings_is_taken_too(piece: str) -> None:
    text = piece * 5_000
    assert all(
        isinstance(masked, str)
        for masked in (mask_value(text), mask_text(text), mask_url(text), *mask_args([text]))
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Basic Memory is ready.", "Basic Memory is ready."),
        ("It is called Basic Memory.", "It is called Basic Memory."),
        ("token limit reached", "token limit reached"),
        ("Basic dXNlcjpw", "Basic •••"),
        ("basic dXNlcjpwYXNz==", "basic •••"),
        ("Token abc123def", "Token •••"),
        ("Bearer hello", "Bearer •••"),
    ],
)
def test_schemes_that_are_plain_words_mask_only_what_looks_like_a_credential(text: str, masked: str) -> None:
    assert mask_text(text) == masked
