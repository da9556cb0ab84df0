"""Random specs and templates, for the tests of everything that writes configuration."""

from __future__ import annotations

from hypothesis import strategies as st

from dragoman.config.dialects import NAMES, dialect
from dragoman.model import (
    ATTRIBUTION_KEYS,
    ArgumentTransform,
    Auth,
    Http,
    ServerSpec,
    Sse,
    Stdio,
    Tls,
    ToolTransform,
)

WRITABLE = [name for name in NAMES if dialect(name).writes]

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_WORD = st.text("abcXYZ09_-./ äß¥$", min_size=1, max_size=10).filter(lambda text: bool(text.strip()))
_VARIABLE = st.sampled_from(["TOKEN", "_A1", "HOME", "CLAUDE_PROJECT_DIR", "input"])
_DEFAULT = st.text("abc $:-{", max_size=5)


def _with_default(name: str, operator: str, text: str) -> str:
    return f"${{{name}{operator}{text}}}"


def _tls(ca: str | None, own: tuple[str | None, str | None], verify: bool) -> Tls:
    return Tls(ca=ca, cert=own[0], key=own[1], verify=verify)


_REFERENCE = st.one_of(
    _VARIABLE.map(lambda name: f"${{{name}}}"),
    _VARIABLE.map(lambda name: f"${{env:{name}}}"),
    st.builds(
        _with_default,
        _VARIABLE,
        st.sampled_from([":-", "-"]),
        _DEFAULT,
    ),
    st.sampled_from(["${input:key}", "${workspaceFolder}", "${userHome}", "${/}", "${pathSeparator}"]),
)
_LITERAL = st.one_of(
    _WORD, st.sampled_from(["$", "$$", "{", "}", "$NAME", "$${X}", "$$${X}", "${", "${not a name}"])
)
TEMPLATES = (
    st.lists(st.one_of(_LITERAL, _REFERENCE), min_size=1, max_size=4)
    .map("".join)
    .filter(lambda text: bool(text.strip()))
)
NAMES_OF_SERVERS = st.text("abcXYZ09_-. é@/'\"\\", min_size=1, max_size=12).filter(
    lambda text: bool(text.strip())
)
_HEADER = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12)
_ENV_NAME = st.text("ABC_9", min_size=1, max_size=6)
_DURATION = st.one_of(
    st.integers(1, 100_000).map(float), st.floats(0.001, 100_000, allow_nan=False).map(lambda x: round(x, 3))
)


_VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-9, 9),
        st.just(0.5),
        st.sampled_from(["", "a", "${TOKEN:-x}", "$${X}", "${claim:sub}", "$"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b c"]), inner, max_size=2)
    ),
    max_leaves=3,
)
_ARGUMENTS = st.one_of(
    st.builds(ArgumentTransform, name=st.sampled_from(["new", "名"]), description=st.none() | st.just("D.")),
    st.builds(ArgumentTransform, value=_VALUES),
    st.builds(ArgumentTransform, default=_VALUES, hidden=st.booleans()),
    st.just(ArgumentTransform(required=True)),
)
_TRANSFORMS = st.builds(
    ToolTransform,
    title=st.none() | st.just("T"),
    description=st.just("About."),
    hidden=st.booleans(),
    arguments=st.dictionaries(st.sampled_from(["path", "a.b"]), _ARGUMENTS, max_size=2),
)


def transports(text: st.SearchStrategy[str]) -> st.SearchStrategy[Stdio | Http | Sse]:
    stdio = st.builds(
        Stdio,
        text,
        st.lists(st.one_of(text, _TEXT.filter(lambda value: "$" not in value)), max_size=4),
        env=st.dictionaries(_ENV_NAME, st.one_of(st.none(), text), max_size=3),
        cwd=st.one_of(st.none(), text),
        env_file=st.lists(text, max_size=2),
        log_file=st.one_of(st.none(), text),
        inherit_env=st.one_of(st.sampled_from(["safe", "all"]), st.lists(_ENV_NAME, max_size=2)),
    )
    urls = st.sampled_from(
        ["http://h/mcp", "https://h:8/a/sse", "${URL}", "https://h/sse/?k=${TOKEN}", "http://h/?a=1#x"]
    )
    headers = st.dictionaries(
        st.sampled_from(["Authorization", "authorization", "X-Key"]),
        st.one_of(
            st.sampled_from(["Bearer ${TOKEN}", "${TOKEN}", "abc", "Bearer $$x"]),
            text.filter(lambda value: not set(value) & set("\r\n\0")),
        ),
        max_size=1,
    )
    own = st.one_of(st.just((None, None)), st.tuples(text, st.none()), st.tuples(text, text))
    tls = st.one_of(
        st.none(),
        st.builds(
            _tls,
            st.one_of(st.none(), text),
            own,
            st.booleans(),
        ),
    )
    return st.one_of(
        stdio,
        st.builds(Http, urls, headers=headers, alternate=st.booleans(), tls=tls, allow_http=st.booleans()),
        st.builds(Sse, urls, headers=headers, alternate=st.booleans(), tls=tls, allow_http=st.booleans()),
    )


def specs(text: st.SearchStrategy[str] = TEMPLATES) -> st.SearchStrategy[ServerSpec]:
    return st.builds(
        ServerSpec,
        NAMES_OF_SERVERS,
        transports(text),
        enabled=st.booleans(),
        required=st.booleans(),
        lazy=st.booleans(),
        reconnect=st.booleans(),
        replacement=st.sampled_from(["start-first", "stop-first"]),
        timeouts=st.fixed_dictionaries(
            {}, optional={"connect": _DURATION, "call": _DURATION, "idle": _DURATION}
        ),
        health_check_interval=st.one_of(st.none(), _DURATION),
        allowed_tools=st.one_of(st.none(), st.lists(st.sampled_from(["read", "w*", "*"]), max_size=2)),
        denied_tools=st.lists(st.sampled_from(["rm", "x_*"]), max_size=2),
        tools=st.dictionaries(st.sampled_from(["read", "w.x", "搜索"]), _TRANSFORMS, max_size=2),
        max_concurrency=st.one_of(st.none(), st.integers(1, 9)),
        max_message_bytes=st.one_of(st.none(), st.integers(1, 10**9)),
        parallel=st.booleans(),
        coerce_arguments=st.sampled_from([None, True, False]),
        attribution=st.dictionaries(
            st.sampled_from(ATTRIBUTION_KEYS), st.sampled_from(["", "/*", "/results/*/a~1b"]), max_size=2
        ),
        limits=st.dictionaries(st.sampled_from(["tools", "pages", "burst"]), st.integers(1, 99), max_size=2),
        naming=st.sampled_from([None, "{server}__{tool}"]),
        fallback=st.one_of(
            st.lists(st.sampled_from(["b", "c"]), max_size=2),
            st.dictionaries(
                st.sampled_from(["read", "w.x", "*"]),
                st.lists(st.sampled_from(["b", "local_read"]), max_size=2),
                max_size=2,
            ),
        ),
        auth=st.one_of(
            st.none(),
            st.builds(
                Auth,
                mode=st.sampled_from(["auto", "none", "oauth"]),
                client_id=st.one_of(st.none(), text),
                scopes=st.lists(st.sampled_from(["a", "b"]), max_size=2),
                callback_port=st.one_of(st.none(), st.integers(1, 9)),
                issuer=st.one_of(st.none(), text),
                private_key=st.one_of(st.none(), text),
                grant=st.sampled_from(["authorization_code", "client_credentials"]),
                client_auth=st.sampled_from([None, "private_key_jwt"]),
                signing_algorithm=st.sampled_from(["RS256", "ES256"]),
                hosts=st.lists(st.sampled_from(["a.example", "b.example"]), max_size=2),
                store=st.sampled_from(["file", "keyring"]),
            ),
        ),
        trust=st.sampled_from(["warn", "strict", "off"]),
        protocol=st.sampled_from(["auto", "legacy", "modern"]),
        title=st.sampled_from(["", "A title"]),
        description=st.sampled_from(["", "what it does"]),
    )
