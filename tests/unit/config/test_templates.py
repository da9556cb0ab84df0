from __future__ import annotations

import os

import pytest

from dragoman.config.templates import (
    NATIVE,
    NONE,
    ExpansionContext,
    Spelling,
    VariableSyntax,
    escape,
    escape_before,
    expand,
    expand_home,
    expand_transport,
    secret_references,
    to_template,
    variables,
)
from dragoman.errors import MissingVariableError
from dragoman.model import Auth, Http, Origin, ServerSpec, Sse, Stdio, Tls

pytestmark = pytest.mark.requirement("otter-p1.env")

AROUND = ExpansionContext(
    env={"USER": "ana", "EMPTY": "", "NESTED": "${USER}", "input": "a variable"},
    root="/home/ana/shop",
    home="/home/ana",
    inputs={"pin": "1234"},
)


def text_for_missing(name: str, whole: str) -> str:
    return f"<{name}|{whole}>"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("${USER}", "ana"),
        ("${env:USER}", "ana"),
        ("a-${USER}-b-${USER}", "a-ana-b-ana"),
        ("${UNSET}", "<UNSET|${UNSET}>"),
        ("${UNSET:-text}", "text"),
        ("${EMPTY:-text}", "text"),
        ("${EMPTY-text}", ""),
        ("${UNSET-text}", "text"),
        ("${env:UNSET:-a:-b-c}", "a:-b-c"),
        ("${UNSET:-}", ""),
        ("${input:pin}", "1234"),
        ("${input:other}", "<input:other|${input:other}>"),
        ("${input:-text}", "a variable"),
        ("${workspaceFolder}", "/home/ana/shop"),
        ("${workspaceFolderBasename}", "shop"),
        ("${userHome}", "/home/ana"),
        ("a${/}b${pathSeparator}c", f"a{os.sep}b{os.sep}c"),
        ("${CLAUDE_PROJECT_DIR}/x ${CLAUDE_PROJECT_DIR:-.}", "/home/ana/shop/x /home/ana/shop"),
    ],
)
def test_a_reference_becomes_its_value(template: str, expected: str) -> None:
    assert expand(template, AROUND, text_for_missing) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("$", "$"),
        ("$USER", "$USER"),
        ("5$ or $5", "5$ or $5"),
        ("$$", "$$"),
        ("${", "${"),
        ("${USER", "${USER"),
        ("${}", "${}"),
        ("${not a name}", "${not a name}"),
        ("${9}", "${9}"),
        ("${config:x}", "${config:x}"),
        ("$${USER}", "${USER}"),
        ("$${", "${"),
        ("$$$${USER}", "$${USER}"),
        ("$$${USER}", "$ana"),
        ("$$${", "$$${"),
    ],
)
def test_everything_else_is_itself(template: str, expected: str) -> None:
    assert expand(template, AROUND, text_for_missing) == expected


def test_what_was_put_in_is_not_looked_at_again() -> None:
    assert expand("${NESTED}", AROUND, text_for_missing) == "${USER}"


def test_the_first_brace_ends_a_reference() -> None:
    assert expand("${UNSET:-${USER}}", AROUND, text_for_missing) == "${USER}"


def test_what_is_set_wins_over_what_a_host_would_set() -> None:
    around = AROUND.replace(env={"CLAUDE_PROJECT_DIR": "/elsewhere"})
    assert expand("${CLAUDE_PROJECT_DIR}", around, text_for_missing) == "/elsewhere"


@pytest.mark.parametrize("text", ["", "$", "${", "${A}", "$${A}", "a$$${b}c${", "${A:-${B}}", "$A${B}$"])
def test_escaped_text_expands_to_itself(text: str) -> None:
    assert expand(escape(text), AROUND, text_for_missing) == text


CLAUDE = VariableSyntax(
    braces=True, defaults=True, default_if_empty=False, renamed={"PROJECT": "${workspaceFolder}"}
)
EDITOR = VariableSyntax(env_prefix=True, inputs=True, places=True)
SHELL = VariableSyntax(braces=True, bare=True, defaults=True, renamed={"PROJECT": "${workspaceFolder}"})


@pytest.mark.parametrize(
    ("style", "text", "template"),
    [
        (NONE, "${USER} $USER ${input:pin} ${/}", "$${USER} $USER $${input:pin} $${/}"),
        (NONE, "open ${USER", "open $${USER"),
        (NATIVE, "${USER} $${USER} ${A:-b}", "${USER} $${USER} ${A:-b}"),
        (CLAUDE, "${USER} ${A:-b} $USER", "${USER} ${A-b} $USER"),
        (
            CLAUDE,
            "${env:USER} ${input:x} ${userHome} ${A-b}",
            "$${env:USER} $${input:x} $${userHome} $${A-b}",
        ),
        (CLAUDE, "${PROJECT}/x ${PROJECT:-.}", "${workspaceFolder}/x ${workspaceFolder}"),
        (CLAUDE, "$${USER}", "$$${USER}"),
        (CLAUDE, "${A:-${B}}", "${A-${B}}"),
        (CLAUDE, "${no name}", "$${no name}"),
        (VariableSyntax(braces=True), "${A:-b}", "$${A:-b}"),
        (EDITOR, "${env:USER} ${USER} ${input:pin}", "${USER} $${USER} ${input:pin}"),
        (EDITOR, "${workspaceFolder}${/}x ${env:A:-b}", "${workspaceFolder}${/}x $${env:A:-b}"),
        (SHELL, "$USER-${A:-b}", "${USER}-${A:-b}"),
        (SHELL, "$userHome", "${env:userHome}"),
        (EDITOR, "${env:workspaceFolder}", "${env:workspaceFolder}"),
        (SHELL, "$$USER 5$ $5", "$$${USER} 5$ $5"),
        (SHELL, "$PROJECT/x", "${workspaceFolder}/x"),
        (SHELL, "${ $USER", "$${ ${USER}"),
        (VariableSyntax(bare=True, keep_bare=True), "pa$word", "pa${word-$word}"),
    ],
)
def test_a_dialects_text_becomes_a_template_of_the_same_meaning(
    style: VariableSyntax, text: str, template: str
) -> None:
    assert to_template(text, style) == template


def test_a_bare_variable_may_stay_as_it_is_written() -> None:
    template = to_template("pa$word for $USER", VariableSyntax(bare=True, keep_bare=True))
    assert expand(template, AROUND, text_for_missing) == "pa$word for ana"


def test_the_variables_of_a_template_are_told_once_and_in_order() -> None:
    text = "${B} ${env:A:-x} $${C} ${B} ${workspaceFolder} ${input:pin} ${/} ${no name} $D"
    assert variables(text) == ["B", "A"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("~", "/home/ana"),
        ("~/x", "/home/ana/x"),
        ("~\\x", "/home/ana\\x"),
        ("~bob/x", "~bob/x"),
        ("a/~/x", "a/~/x"),
    ],
)
def test_only_a_leading_tilde_is_the_home_directory(path: str, expected: str) -> None:
    assert expand_home(path, "/home/ana") == expected


def test_every_field_of_a_child_process_is_expanded() -> None:
    stdio = Stdio(
        "~/bin/${USER}",
        ["${USER}", "~"],
        env={"A": "${USER}", "B": None},
        cwd="~/${USER}",
        env_file=["~/.env", "${workspaceFolder}/.env"],
        log_file="logs/${USER}.log",
    )
    assert expand_transport(ServerSpec("s", stdio), AROUND) == Stdio(
        "/home/ana/bin/ana",
        ["ana", "~"],
        env={"A": "ana", "B": None},
        cwd="/home/ana/ana",
        env_file=["/home/ana/.env", "/home/ana/shop/.env"],
        log_file="/home/ana/shop/logs/ana.log",
    )


def test_a_child_process_without_a_directory_keeps_none() -> None:
    assert expand_transport(ServerSpec("s", Stdio("x")), AROUND) == Stdio("x")


@pytest.mark.parametrize("kind", [Http, Sse])
def test_address_and_headers_are_expanded(kind: type[Http | Sse]) -> None:
    spec = ServerSpec("s", kind("https://${USER}.example.org", headers={"X": "${input:pin}"}, alternate=True))
    expected = kind("https://ana.example.org", headers={"X": "1234"}, alternate=True)
    assert expand_transport(spec, AROUND) == expected


@pytest.mark.parametrize("kind", [Http, Sse])
def test_the_paths_of_certificates_are_expanded_and_read_from_the_project(kind: type[Http | Sse]) -> None:
    tls = Tls(ca="~/ca.pem", cert="${USER}.pem", key="/k.pem", verify=False)
    expected = Tls(ca="/home/ana/ca.pem", cert="/home/ana/shop/ana.pem", key="/k.pem", verify=False)
    assert expand_transport(ServerSpec("s", kind("https://x", tls=tls)), AROUND).tls == expected  # type: ignore[union-attr]


def spec_with(origin: Origin, lines: dict[str, int]) -> ServerSpec:
    return ServerSpec("crm", Stdio("x", ["a", "${TOKEN}"]), origin=origin, lines=lines)


@pytest.mark.parametrize(
    ("lines", "line"),
    [({"args.1": 9, "args": 7}, 9), ({"args": 7}, 7), ({}, 3)],
    ids=["item", "list", "entry"],
)
def test_a_missing_variable_names_its_field_its_file_and_its_line(lines: dict[str, int], line: int) -> None:
    origin = Origin(source="/etc/mcp.json", line=3, pointer="mcpServers.crm")
    with pytest.raises(MissingVariableError) as caught:
        expand_transport(spec_with(origin, lines), AROUND)
    error = caught.value
    assert (error.variable, error.source, error.line) == ("TOKEN", "/etc/mcp.json", line)
    assert error.pointer == "mcpServers.crm.args.1"
    assert "`args.1` of server `crm`" in str(error)
    assert error.hint == "give it a value where dragoman starts: `export TOKEN=…`"


def test_a_missing_answer_is_told_apart_from_a_missing_variable() -> None:
    with pytest.raises(MissingVariableError, match="the input `key`") as caught:
        expand_transport(ServerSpec("s", Http("https://x", headers={"K": "${input:key}"})), AROUND)
    assert caught.value.pointer == "headers.K"
    assert "which asks for it" in caught.value.hint


@pytest.mark.parametrize(("policy", "expected"), [("keep", "${TOKEN}"), ("empty", "")])
def test_the_spec_may_keep_or_empty_what_has_no_value(policy: str, expected: str) -> None:
    spec = ServerSpec("s", Stdio("x", ["${TOKEN}"]), unset_variables=policy)  # type: ignore[arg-type]
    assert expand_transport(spec, AROUND) == Stdio("x", [expected])


FETCHED = {"keyring:a/b": "${USER}", "command:x 'y z'": "printed"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Bearer ${keyring:a/b}!", "Bearer ${USER}!"),
        ("${command:x 'y z'}", "printed"),
        ("$${command:x 'y z'}", "${command:x 'y z'}"),
        ("$$${command:x 'y z'}", "$printed"),
        ("${keyring:-text}", "text"),
        ("${command-text}", "text"),
        ("${keyring:}", "${keyring:}"),
        ("${Command:x}", "${Command:x}"),
    ],
)
def test_what_a_source_gave_takes_the_place_of_its_reference(template: str, expected: str) -> None:
    around = AROUND.replace(fetched=FETCHED)
    assert expand(template, around, text_for_missing) == expected


def test_an_unused_source_stays_as_it_is_written() -> None:
    assert expand("a ${command:x 'y z'}", AROUND, text_for_missing) == "a ${command:x 'y z'}"


def test_a_source_without_an_answer_is_missing() -> None:
    spec = ServerSpec("s", Stdio("x", ["${command:other}"]))
    with pytest.raises(MissingVariableError, match=r"args\.0"):
        expand_transport(spec, AROUND.replace(fetched=FETCHED))


def test_the_sources_that_a_spec_refers_to_are_told_once_each_with_a_place() -> None:
    stdio = Stdio("${command:a}", ["${command:b} ${command:a}", "$${command:c}"], env={"K": "${keyring:d/e}"})
    assert secret_references(ServerSpec("s", stdio)) == {
        "command:a": "command",
        "command:b": "args.0",
        "keyring:d/e": "env.K",
    }
    http = Http("https://${command:a}/", headers={"A": "${command:b}"}, tls=Tls(key="${command:c}"))
    auth = Auth(client_secret="${keyring:d/e}")
    assert secret_references(ServerSpec("s", http, auth=auth)) == {
        "command:a": "url",
        "command:b": "headers.A",
        "command:c": "tls.key",
        "keyring:d/e": "auth.client_secret",
    }


@pytest.mark.parametrize("text", ["${command:x}", "${keyring:a/b}"])
def test_another_hosts_text_never_asks_a_source(text: str) -> None:
    style = VariableSyntax(braces=True, defaults=True, env_prefix=True, inputs=True, places=True)
    template = to_template(text, style)
    assert secret_references(ServerSpec("s", Stdio(template))) == {}
    assert expand(template, AROUND.replace(fetched={}), text_for_missing) == text


def test_the_surroundings_show_no_value() -> None:
    assert "printed" not in repr(AROUND.replace(fetched=FETCHED))
    assert "ana" not in repr(AROUND).replace("/home/ana", "")
    assert "1234" not in repr(AROUND)


SPELLED = VariableSyntax(
    braces=True,
    spellings=(
        Spelling("{env:", "}"),
        Spelling("${{ secrets.", " }}"),
        Spelling("{{", "}}", kind="input"),
        Spelling("{file:", "}", kind="input", prefix="file:"),
    ),
)


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("a{env:B}c", "a${B}c"),
        ("${env:B}", "$$${B}"),
        ("$${env:B}{env:C}", "$$$$${B}${C}"),
        ("${{ secrets.B }}${{secrets.C}}", "${B}${C}"),
        ("${B} {{ c }}", "${B} ${input:c}"),
        ("{{{c}}}", "{${input:c}}"),
        ("{file:~/x y}", "${input:file:~/x y}"),
        ("${A{{x}}}", "$${A${input:x}}"),
        ("{env:} {env:1} {{-x}} {{}}", "{env:} {env:1} {{-x}} {{}}"),
        ("{env:workspaceFolder}", "${env:workspaceFolder}"),
    ],
)
def test_a_dialects_own_spelling_becomes_a_reference(text: str, template: str) -> None:
    assert to_template(text, SPELLED) == template


@pytest.mark.parametrize("text", ["", "a", "$", "a$$", "${X}", "${X}$", "$${"])
def test_literal_text_in_front_of_a_reference_stays_literal(text: str) -> None:
    assert expand(escape_before(text) + "${USER}", AROUND, text_for_missing) == f"{text}ana"


def test_a_dialect_may_have_some_of_the_places_only() -> None:
    style = VariableSyntax(places=frozenset({"workspaceFolder"}))
    assert to_template("${workspaceFolder} ${userHome}", style) == "${workspaceFolder} $${userHome}"
