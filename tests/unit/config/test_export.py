from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.config.specs import TEMPLATES, WRITABLE, specs

from dragoman.config.dialects import dialect
from dragoman.config.export import as_written, entry, from_template, read_back
from dragoman.config.merge import TemplateReference, differences, loosely, pieces
from dragoman.config.templates import NATIVE, NONE, ExpansionContext, VariableSyntax, expand, to_template
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Auth, Http, Note, Origin, ServerSpec, Sse, Stdio

STYLES = {name: dialect(name).style for name in WRITABLE}
PLAIN = st.text("abc /._-", min_size=1, max_size=8).filter(lambda text: bool(text.strip()))


def lost(spec: ServerSpec, name: str, **options: object) -> dict[str, str]:
    return {loss.key: loss.why for loss in entry(spec, dialect(name), **options)[1]}  # type: ignore[arg-type]


# ── templates


@given(TEMPLATES)
def test_the_pieces_of_a_template_expand_to_what_the_template_expands_to(template: str) -> None:
    env = {"TOKEN": "t", "HOME": "", "_A1": "$x"}
    expansion = ExpansionContext(env=env, root="/r", home="/h", inputs={"key": "k"})

    def value(piece: str | TemplateReference) -> str:
        if isinstance(piece, str):
            return piece
        spelled = f"input:{piece.name}" if piece.kind == "input" else piece.name
        return expand(
            f"${{{spelled}{piece.operator}{piece.default}}}", expansion, lambda name, _: f"<{name}>"
        )

    whole = expand(template, expansion, lambda name, _: f"<{name}>")
    assert "".join(value(piece) for piece in pieces(template)) == whole


@given(TEMPLATES, st.sampled_from(WRITABLE))
def test_a_template_is_written_so_that_the_dialect_reads_the_same_or_not_at_all(
    template: str, name: str
) -> None:
    style = STYLES[name]
    with contextlib.suppress(ValueError):
        written = from_template(template, style)
        assert loosely(pieces(to_template(written, style))) == loosely(pieces(template))


@given(TEMPLATES)
def test_the_native_style_writes_every_template_as_it_is(template: str) -> None:
    assert from_template(template, NATIVE) == template


@given(st.text("ab${}:-", max_size=8), st.sampled_from(WRITABLE))
def test_whatever_a_dialect_reads_it_can_write_again(text: str, name: str) -> None:
    template = to_template(text, STYLES[name])
    written = from_template(template, STYLES[name])
    assert pieces(to_template(written, STYLES[name])) == pieces(template)


@pytest.mark.parametrize(
    ("template", "style", "written"),
    [
        ("Bearer ${TOKEN}", VariableSyntax(env_prefix=True), "Bearer ${env:TOKEN}"),
        ("${env:TOKEN}", VariableSyntax(braces=True), "${TOKEN}"),
        ("${A:-b c}", VariableSyntax(braces=True, defaults=True), "${A:-b c}"),
        (
            "${workspaceFolder}/x",
            VariableSyntax(braces=True, renamed={"ROOT": "${workspaceFolder}"}),
            "${ROOT}/x",
        ),
        ("${/}", VariableSyntax(places=True), "${pathSeparator}"),
        ("$${X} costs $5", NONE, "${X} costs $5"),
        ("${input:key}", VariableSyntax(inputs=True), "${input:key}"),
    ],
)
def test_a_variable_is_spelled_as_the_host_spells_it(
    template: str, style: VariableSyntax, written: str
) -> None:
    assert from_template(template, style) == written


@pytest.mark.parametrize(
    ("template", "style", "named"),
    [
        ("${input:key}", VariableSyntax(braces=True), "`${input:key}`"),
        ("${userHome}", VariableSyntax(braces=True), "`${userHome}`"),
        ("${TOKEN}", NONE, "`${TOKEN}`"),
        ("${A:-b}", VariableSyntax(env_prefix=True), "a default for `${A}`"),
        ("$${X}", VariableSyntax(braces=True), "taken for a variable"),
        ("costs $X", VariableSyntax(braces=True, bare=True), "taken for a variable"),
    ],
)
def test_what_cannot_be_spelled_is_named(template: str, style: VariableSyntax, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        from_template(template, style)


# ── entries


@given(specs(), st.sampled_from(WRITABLE), st.booleans())
def test_an_entry_reads_back_as_the_same_server_but_for_the_named_losses(
    spec: ServerSpec, name: str, listed: bool
) -> None:
    target = dialect(name)
    try:
        fields, losses = entry(spec, target, listed=listed)
    except InvalidSpecError:
        return
    unlike = differences(spec, read_back(spec.name, fields, target, listed=listed), target.title)
    assert {as_written(key).lower() for key in unlike} <= {loss.key.lower() for loss in losses}


@given(specs(), st.sampled_from(["dragoman", "mcp-json"]))
def test_our_own_dialects_lose_nothing_that_a_server_has_a_use_for(spec: ServerSpec, name: str) -> None:
    _, losses = entry(spec, dialect(name))
    allowed = {"auth"} if isinstance(spec.transport, Stdio) else set[str]()
    assert {loss.key for loss in losses} <= allowed


@given(
    st.sampled_from(WRITABLE),
    st.builds(Stdio, PLAIN, st.lists(PLAIN, max_size=3), env=st.dictionaries(st.just("A"), PLAIN)),
)
def test_a_plain_command_is_written_without_loss_in_every_dialect(name: str, transport: Stdio) -> None:
    assert entry(ServerSpec("s", transport), dialect(name))[1] == []


def test_durations_have_the_unit_of_the_dialect() -> None:
    spec = ServerSpec("s", Stdio("x"), timeouts={"call": 2.5})
    assert entry(spec, dialect("gemini"))[0]["timeout"] == 2500
    assert entry(spec, dialect("otter"))[0]["timeout"] == "2.5s"
    assert entry(spec, dialect("codex"))[0]["tool_timeout_sec"] == 2.5
    assert (
        entry(ServerSpec("s", Stdio("x"), timeouts={"call": 30.0}), dialect("otter"))[0]["timeout"] == "30s"
    )
    assert entry(spec, dialect("dragoman"))[0]["timeouts"] == {"call": 2.5}


def test_the_type_is_spelled_as_the_dialect_spells_it() -> None:
    spec = ServerSpec("s", Http("http://h/mcp"))
    assert entry(spec, dialect("excelmanus"))[0]["transport"] == "streamable_http"
    assert entry(spec, dialect("claude-code"))[0]["type"] == "http"
    assert "type" not in entry(spec, dialect("codex"))[0]


def test_a_url_that_may_be_either_kind_is_written_without_a_type() -> None:
    assert entry(ServerSpec("s", Http("http://h/mcp", alternate=True)), dialect("dragoman")) == (
        {"url": "http://h/mcp"},
        [],
    )
    assert entry(ServerSpec("s", Http("http://h/mcp", alternate=True)), dialect("rrclaw"))[1] == []


def test_a_kind_that_reads_back_otherwise_is_a_loss_that_says_how() -> None:
    spec = ServerSpec("s", Sse("http://h/mcp"))
    assert lost(spec, "cursor")["transport"] == "Cursor tries Streamable HTTP first, then legacy SSE"


def test_an_item_of_a_list_has_its_name_and_its_type() -> None:
    fields, losses = entry(ServerSpec("s", Http("http://h/mcp")), dialect("excelmanus"), listed=True)
    assert fields == {"name": "s", "transport": "streamable_http", "url": "http://h/mcp"}
    assert losses == []


def test_codex_names_variables_in_keys_of_their_own() -> None:
    spec = ServerSpec("s", Http("http://h/", headers={"Authorization": "Bearer ${T}", "X": "${X}", "Y": "y"}))
    fields, losses = entry(spec, dialect("codex"))
    assert fields["bearer_token_env_var"] == "T"
    assert fields["env_http_headers"] == {"X": "X"}
    assert fields["http_headers"] == {"Y": "y"}
    assert losses == []
    assert lost(ServerSpec("s", Stdio("x", inherit_env="all")), "codex")["inherit_env"]
    assert entry(ServerSpec("s", Stdio("x", inherit_env=["A"])), dialect("codex"))[0]["env_vars"] == ["A"]


def test_a_server_that_a_host_has_no_word_for_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="Claude Desktop: it has no servers of the type `http`"):
        entry(ServerSpec("s", Http("http://h/")), dialect("claude-desktop"))
    with pytest.raises(InvalidSpecError, match="type `sse`"):
        entry(ServerSpec("s", Sse("http://h/")), dialect("codex"))
    with pytest.raises(InvalidSpecError, match=r"`args.1`: `\$\{A\}` cannot be written"):
        entry(ServerSpec("s", Stdio("x", ["a", "${A}"])), dialect("claude-desktop"))
    with pytest.raises(InvalidSpecError, match="http://"):
        entry(ServerSpec("s", Http("ftp://h/")), dialect("dragoman"))


def test_a_dialect_of_environment_variables_is_not_written() -> None:
    with pytest.raises(ConfigError, match="not written to a file"):
        entry(ServerSpec("s", Stdio("x")), dialect("legal"))


def test_a_value_that_cannot_be_written_is_left_out_and_named() -> None:
    spec = ServerSpec("s", Stdio("x", env={"A": "${A}", "B": "b"}, cwd="/d", env_file=["${A}", "f"]))
    fields, _ = entry(spec, dialect("claude-desktop"))
    assert fields["env"] == {"B": "b"}
    assert lost(spec, "claude-desktop") == {
        "env.A": "`${A}` cannot be written in Claude Desktop",
        "cwd": "Claude Desktop has no key for it",
        "env_file": "Claude Desktop has no key for it",
    }


def test_fields_without_a_key_are_losses_by_name() -> None:
    spec = ServerSpec(
        "s", Stdio("x"), enabled=False, timeouts={"idle": 9}, naming="{tool}", allowed_tools=["a"]
    )
    assert set(lost(spec, "cursor")) == {"enabled", "timeouts.idle", "naming", "allowed_tools"}


def test_a_host_that_writes_little_loses_the_rest_or_refuses() -> None:
    few = dialect("dragoman").replace(writes={"command": "command", "disabled": "disabled"})
    fields, losses = entry(ServerSpec("s", Stdio("x", env={"A": "a"}), enabled=False), few)
    assert fields == {"command": "x", "disabled": True}
    assert [loss.key for loss in losses] == ["env.A"]
    with pytest.raises(InvalidSpecError, match="no key for `args`"):
        entry(ServerSpec("s", Stdio("x", ["y"])), few)


def test_a_time_that_the_host_ignores_or_rounds_is_a_loss() -> None:
    assert (
        "does not keep"
        in lost(ServerSpec("s", Stdio("x"), timeouts={"call": 0.5}), "claude-code")["timeouts.call"]
    )
    rounded = lost(ServerSpec("s", Stdio("x"), timeouts={"call": 1.0004}), "gemini")
    assert rounded == {"timeouts.call": "Gemini CLI makes it 1 s"}


def test_a_default_that_treats_an_empty_variable_otherwise_is_a_loss_not_a_refusal() -> None:
    assert "empty variable" in lost(ServerSpec("s", Stdio("x", ["${A:-b}"])), "claude-code")["args"]


def test_toml_has_no_null() -> None:
    spec = ServerSpec(
        "s", Stdio("x", env={"A": None}), origin=Origin(source="f"), extras={"n": {"k": [None]}}
    )
    assert entry(spec, dialect("dragoman"))[0]["env"] == {"A": None}
    assert set(lost(spec, "dragoman", format="toml")) == {"env.A", "n"}


def test_keys_that_only_their_own_host_knows_stay_with_it() -> None:
    spec = ServerSpec(
        "s",
        Stdio("x"),
        origin=Origin(source="f", dialect="vscode"),
        extras={"dev": {"watch": "x"}, "mine": 1, "url": "u"},
        notes=[
            Note(code="conflict", key="url", message="no use for it"),
            Note(code="unknown", key="mine", message="?"),
        ],
    )
    assert entry(spec, dialect("vscode"))[0]["dev"] == {"watch": "x"}
    assert lost(spec, "dragoman") == {
        "dev": "watching a server's sources is for its developers",
        "mine": "dragoman has no such key",
        "url": "no use for it",
    }


def test_an_extra_key_never_overwrites_what_is_written() -> None:
    spec = ServerSpec("s", Stdio("x"), origin=Origin(source="f"), extras={"command": "other"})
    fields, losses = entry(spec, dialect("dragoman"))
    assert fields["command"] == "x"
    assert [loss.key for loss in losses] == ["command"]


def test_auth_is_written_in_our_own_dialect_only() -> None:
    auth = Auth(mode="oauth", client_id="${ID}", scopes=["a"], callback_port=7)
    spec = ServerSpec("s", Http("http://h/"), auth=auth)
    assert entry(spec, dialect("dragoman"))[0]["auth"] == {
        "mode": "oauth",
        "client_id": "${ID}",
        "scopes": ["a"],
        "callback_port": 7,
    }
    assert lost(spec, "gemini") == {"auth": "Gemini CLI has no key for it"}


def test_a_variable_has_the_spelling_of_the_dialect() -> None:
    spec = ServerSpec("s", Stdio("x", ["a", "{env:B}"], env={"T": "${T}"}))
    with pytest.raises(InvalidSpecError, match=r"`args.1`: a `\$` in it would be taken for a variable"):
        entry(spec, dialect("opencode"))
    spec = spec.replace(
        transport=Stdio("x", ["a"], env={"T": "${T}", "D": "${T:-d}", "F": "${input:file:f}"})
    )
    assert entry(spec, dialect("opencode"))[0] == {
        "type": "local",
        "command": ["x", "a"],
        "environment": {"T": "{env:T}", "F": "{file:f}"},
    }
    assert lost(spec, "opencode") == {"env.D": "a default for `${T}` cannot be written in opencode"}


def test_variables_are_written_only_where_the_host_expands_them() -> None:
    spec = ServerSpec("s", Stdio("x", env={"T": "${T}"}, cwd="${D}"))
    assert entry(spec, dialect("copilot-cli"))[0]["env"] == {"T": "${T}"}
    assert lost(spec, "copilot-cli") == {"cwd": "`${D}` cannot be written in GitHub Copilot CLI"}
    with pytest.raises(InvalidSpecError, match=r"`args.0`: `\$\{A\}` cannot be written"):
        entry(ServerSpec("s", Stdio("x", ["${A}"])), dialect("kiro"))


def test_a_key_that_the_host_demands_is_always_there() -> None:
    assert entry(ServerSpec("s", Stdio("x")), dialect("copilot-cli"))[0]["tools"] == ["*"]
    few = ServerSpec("s", Stdio("x"), allowed_tools=["a"])
    assert entry(few, dialect("copilot-cli"))[0]["tools"] == ["a"]


def test_a_key_may_stand_in_a_table_of_its_own() -> None:
    spec = ServerSpec("s", Http("http://h/", headers={"A": "${A}"}))
    assert entry(spec, dialect("continue"))[0] == {
        "name": "s",
        "type": "streamable-http",
        "url": "http://h/",
        "requestOptions": {"headers": {"A": "${{ secrets.A }}"}},
    }


def test_a_place_that_the_host_lacks_cannot_be_written() -> None:
    assert entry(ServerSpec("s", Stdio("x", ["${workspaceFolder}"])), dialect("roo"))[1] == []
    with pytest.raises(InvalidSpecError, match="userHome"):
        entry(ServerSpec("s", Stdio("x", ["${userHome}"])), dialect("roo"))


def test_a_loss_reads_as_key_and_reason() -> None:
    assert str(entry(ServerSpec("s", Stdio("x"), lazy=True), dialect("gemini"))[1][0]) == (
        "lazy: Gemini CLI has no key for it"
    )


def test_a_source_of_secrets_is_a_named_loss_elsewhere_and_none_at_home() -> None:
    spec = ServerSpec("s", Stdio("x", env={"A": "${command:get it}", "B": "${keyring:a/b}"}))
    assert lost(spec, "cursor") == {
        "env.A": "`${command:get it}` cannot be written in Cursor",
        "env.B": "`${keyring:a/b}` cannot be written in Cursor",
    }
    assert lost(spec, "dragoman") == {}


def test_a_key_has_its_name_of_files_also_where_the_field_has_another() -> None:
    spec = ServerSpec("s", Stdio("x"), replacement="stop-first")
    assert entry(spec, dialect("dragoman"))[0]["replace"] == "stop-first"
    assert "replacement" not in entry(spec, dialect("dragoman"))[0]
    assert [loss.key for loss in entry(spec, dialect("codex"))[1]] == ["replace"]
