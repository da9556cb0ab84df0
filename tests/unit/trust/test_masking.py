"""Masking: secrets of any known kind disappear, references and names stay, any text is taken."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.trust.masking import (
    MASK,
    is_sensitive_name,
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
    assert is_sensitive_name(name)


@pytest.mark.parametrize(
    "name",
    "path monkey keyboard author authentic pattern tokenizer compass --verbose q turkey sessions_".split()[
        :-1
    ],
)
def test_a_name_that_only_sounds_similar_is_not_telling(name: str) -> None:
    assert not is_sensitive_name(name)


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
    assume(secret != "header")  # stands in one of the shapes
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


S = "hunt3rZ"
"""A secret that is neither long nor of a known shape: only what stands around it can tell."""
KEY = "q7XhUnt3rZk29Vbs0pQe81"
"""A secret that tells by itself."""


@pytest.mark.parametrize(
    "args",
    [
        *([option, S] for option in "--pass --pw --creds -pass --jwt --otp --authkey --sessionid -p".split()),
        *([f"{option}={S}"] for option in "--pass --pw --cred --master-key --userpwd --db.pass".split()),
        *([f"{option}:{S}"] for option in "/password /p --token auth".split()),
        [f"-p{S}"],
        ["-u", f"ann:{S}"],
        [f"-uann:{S}"],
        [f"--user=ann:{S}"],
        [f"ann:{S}@host"],
        [f"ann@example.com:{S}@smtp.example.com:25"],
        [f"ann:{S}@tcp(db:3306)/x"],
        [f"--proxy=ann:{S}@proxy:8080"],
        [f"redis://:{S}@host:6379/0"],
        [f"Server=db;User Id=sa;Password={S};"],
        [f"Data Source=db; Password = {S} ;x=1"],
        [f"--connection-string=Server=tcp:db,1433;Uid=sa;Pwd={S};Encrypt=yes"],
        [f"Driver={{ODBC}};PWD={{{S};x}};UID=a"],
        [f"AccountName=x;AccountKey={S}==;EndpointSuffix=core"],
        [f"host=db user=x password={S} dbname=y"],
        [f"redis:6379,password={S},ssl=True"],
        [f"jdbc:sqlserver://db:1433;user=sa;password={S};"],
        [f"--data=user=a&password={S}"],
        [f"--password=a;b={S}"],
        [f"--//registry.example/:_authToken={S}"],
        ["-H", f"X-Anything: {S}"],
        [f"-HX-Anything: {S}"],
        ["--header", f"X-Anything:{S}"],
        [f"--header=X-Anything: {S}"],
        ["--header", f"Cookie: a={S}; b={S}"],
        ["-b", f"sid={S}"],
        ["-e", f"ANYTHING={S}"],
        [f"-eANYTHING={S}"],
        [f"--env=ANYTHING={S}"],
        ["docker", "run", "--env", f"ANYTHING={S}", "image"],
        [f'{{"auth": {{"x": ["{S}"]}}}}'],
        [f'{{"headers":{{"X-Anything":"{S}"}}}}'],
        [f'{{"args":["--token","{S}"]}}'],
        [f'{{"url":"https://a:{S}@x/"}}'],
        [f'--config={{"token":"{S}"}}'],
        [f'{{token: "{S}"}}'],
        [f'{{"token": "{S}'],
        ["set", "api_key", S],
        [f"-k={S}"],
        [f"-K={S}"],
        [f"-k:{S}"],
        [f"-t={S}"],
        [f"-p={S}"],
        [f"-s={S}"],
        [f'-k="{S}"'],
        ["-k", S],
        ["-t", S],
        ["-P", S],
        [f" --token={S}"],
        ["--token ", S],
        ["-c", f"server -k={S} --verbose"],
        ["-c", f"export API_KEY={S} && run"],
        ["-c", f"mysql -u root -p{S} db"],
        ["-c", f"curl -H 'X-Anything: {S}' https://x"],
        [KEY],
        ["--anything", KEY],
        [f"--anything={KEY}"],
        ["0123456789abcdef0123456789abcdef"[:31] + "f", KEY],
        ["YW5uOmh1bnQzcloh", f"YW5uOg=={S}"[:8]],
    ],
    ids=" ".join,
)
def test_a_secret_in_an_argument_is_found_in_every_usual_spelling(args: list[str]) -> None:
    shown = " ".join(mask_args(args))
    assert S not in shown
    assert KEY not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "url",
    [
        f"https://example.com/s/{KEY}/sse",
        f"https://example.com/{KEY}",
        f"https://example.com/s/{S}9kQ/sse",
        f"https://example.com/token/{S}/sse",
        f"https://example.com/api/key/{S}",
        f"https://example.com/mcp;token={S}",
        f"https://example.com/token={S}/sse",
        f"https://example.com/apikey-{S}/sse",
        f"https://example.com/s/Zm9v-{KEY}_x%3D%3D/mcp",
        f"https://example.com/${{A:-{KEY}}}/sse",
        "https://example.com/hunt3rZ4kQ.hunt3rZ9kQv/mcp",
        "https://example.com/k/deadbeefcafebabe?hunt3rZ",
        f"example.com/s/{KEY}/sse",
    ],
)
def test_a_secret_in_the_path_of_a_url_is_masked(url: str) -> None:
    shown = mask_url(url)
    assert S not in shown
    assert KEY not in shown
    assert MASK in shown
    assert "example.com" in shown


def test_a_uuid_is_masked_in_a_url_and_nowhere_else() -> None:
    uuid = "550e8400-e29b-41d4-a716-446655440000"
    assert mask_url(f"https://example.com/{uuid}/sse") == f"https://example.com/{MASK}/sse"
    assert mask_args(["--project-id", uuid]) == ["--project-id", uuid]


@pytest.mark.parametrize(
    "args",
    [
        ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/projects/2024-a-very-long-folder-name"],
        ["run", "-i", "--rm", "ghcr.io/org/server:1.2.3", "-v"],
        ["node:20@sha256:" + "ab12" * 16],
        ["-p", "8080:80"],
        ["-p8080:80"],
        ["-p=8080"],
        ["-p=tsconfig.json"],
        ["-t=stdio"],
        ["-t=30"],
        ["-s=user"],
        ["-t", "30s"],
        ["-t", "FactoryOfTools"],
        ["-t", "mcp/fetch:1.2.3"],
        ["-s", "us-east-1"],
        ["-k", "https://example.com/mcp"],
        ["-k=/etc/ssl/key.pem"],
        ["-p", "tsconfig.json"],
        ["-p", "127.0.0.1:80:80"],
        ["-print", "-project", "foo"],
        ["--from", "git+https://github.com/org/repo@0123456789abcdef0123456789abcdef01234567", "x"],
        ["git+https://github.com/org/repo#0123456789abcdef0123456789abcdef01234567"],
        ["--commit", "0123456789abcdef0123456789abcdef01234567"],
        ["foo@npm:bar@2.0.0"],
        ["git@github.com:org/repo.git"],
        ["user@example.com"],
        ["mcp-server-time@2025.8.4", "--local-timezone=Europe/Berlin"],
        ["-H", "0.0.0.0"],
        ["-H", "localhost:3000"],
        ["-H", "tcp://1.2.3.4:2375"],
        ["-H", "Accept: application/json"],
        ["-u", "1000:1000"],
        ["--model", "claude-sonnet-4-20250514"],
        ["AdventureWorksDatabaseConnectionFactory"],
        ["arn:aws:lambda:us-east-1:123456789012:function:my-function"],
        ["--directory", "/a/b/9f8e7d6c5b4a39281706f5e4d3c2b1a0"],
        ["sqlite:///data/x.db"],
        ["import sys; sys.exit(0)"],
        ["--filter", "name=foo,kind=bar"],
        ["--key-file", "/etc/x.pem"],
        ["--api-key-env", "OPENAI_API_KEY"],
        ['{"a": [1, "b"], "c":null}'],
    ],
    ids=" ".join,
)
def test_an_ordinary_argument_stays_as_it_is(args: list[str]) -> None:
    assert mask_args(args) == args


@pytest.mark.parametrize(
    "url",
    [
        "https://mcp.example.com/sse",
        "https://mcp.example.com/v1/mcp",
        "https://example.com/2025-06-18/mcp",
        "https://docs.example.com/api/v2/model-context-protocol-server",
        "https://server.example.com/@org-name/github/mcp",
        "https://example.com/auth/callback",
        "https://example.com/oauth/token",
        "https://example.com/projects/12345/mcp",
        "https://example.com/.well-known/oauth-protected-resource",
        "https://example.com/getCurrentWeatherForecast2",
        "https://example.com/u/ann/mcp",
        "https://example.com/meta-llama/Llama-3.1-8B-Instruct/resolve/main",
        "https://github.com/org/repo/archive/refs/tags/v1.2.3.tar.gz",
    ],
)
def test_an_ordinary_address_stays_as_it_is(url: str) -> None:
    assert mask_url(url) == url


@pytest.mark.parametrize("value", ["SECRET", "swordfish", "Swordfish", "a.b", "x/y", "pa.ss-wd", "ключ-1"])
def test_the_value_of_the_short_option_for_a_key_is_masked_even_if_it_is_a_word(value: str) -> None:
    assert mask_args([f"-k={value}"]) == [f"-k={MASK}"]


@pytest.mark.parametrize("word", ["limit", "tools/call", "logging/setLevel", "resources/templates/list"])
def test_a_word_after_token_is_no_token(word: str) -> None:
    assert mask_text(f"token {word} is ok") == f"token {word} is ok"
    assert mask_text(f"token {word}1 is ok") == f"token {MASK} is ok"
