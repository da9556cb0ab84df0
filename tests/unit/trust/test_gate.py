from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.config.load import approvals
from dragoman.errors import CallDeniedError, ConfigError, ProtocolError, ToolFailedError
from dragoman.model import Auth, CallRequest, Http, Origin, ServerSpec, Settings, Statement, Stdio, ToolDef
from dragoman.server.process.environment import env_file_values
from dragoman.trust.gate import Gate, secrets_of
from dragoman.trust.masking import MASK
from dragoman.trust.policy import Policy, Rule

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("rrclaw-policy")

PROJECT = Origin(source="/p/mcp.json", scope="project")
SPEC = ServerSpec("fs", Stdio("npx", ["-y", "fs"]), origin=PROJECT)
READ = ToolDef(name="mcp_fs_read", description="", input_schema={}, server="fs", original_name="read")


def said(data: Any, scope: Any = "user") -> Statement:
    return Statement(source=f"{scope}.toml", scope=scope, data=data)


def test_only_what_a_project_has_a_say_in_is_bound(tmp_path: Path) -> None:
    gate = Gate(root=str(tmp_path), trust_project=False, approvals=approvals)
    refusal = gate.refusal(SPEC)
    assert refusal is not None
    assert (refusal.stage, refusal.server) == ("approval", "fs")
    assert gate.refusal(ServerSpec("fs", SPEC.transport)) is None
    assert set(gate.refused([SPEC, ServerSpec("own", SPEC.transport)])) == {"fs"}
    assert Gate(root=str(tmp_path)).refusal(SPEC) is None
    hidden = ServerSpec("fs", SPEC.transport, origin=Origin(source="u", scope="user"), shadowed=[PROJECT])
    assert gate.refusal(hidden) is None
    gate.update(Settings(by_field=True))
    assert gate.refusal(hidden) is not None
    approvals().approve(SPEC, tmp_path)
    assert gate.refusal(SPEC) is None


def test_what_an_application_vouches_for_is_its_own_as_it_is(tmp_path: Path) -> None:
    gate = Gate(root=str(tmp_path), trust_project=False, approvals=approvals)
    gate.trust(SPEC)
    assert gate.refusal(SPEC) is None
    assert gate.refusal(ServerSpec("fs", Stdio("evil"), origin=PROJECT)) is not None


def test_limits_come_from_the_strongest_file_and_a_project_only_narrows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(
        limits=[
            said({"tools": 50, "pages": 9}, "project"),
            said({"tools": 20, "burst": 7}, "local"),
            said({"tools": 30, "burst": 3, "name_chars": 99}),
        ]
    )
    gate = Gate(settings, trust_project=False, approvals=approvals)
    limits = gate.limits_of(ServerSpec("s", Stdio("x"), origin=PROJECT))
    assert (limits.tools, limits.pages, limits.burst, limits.name_chars) == (20, 9, 7, 99)
    assert "a project can only lower limits" in caplog.text
    users = gate.limits_of(ServerSpec("s", Stdio("x")))
    assert (users.tools, users.pages, users.burst) == (20, 500, 7)
    gate.update(settings.replace(trusts_project=True))
    assert gate.limits_of(ServerSpec("s", Stdio("x"))).tools == 50
    assert Gate(settings).limits_of(ServerSpec("s", Stdio("x"))).tools == 50


def test_limits_of_a_server_come_after_those_of_all() -> None:
    gate = Gate(Settings(limits=[said({"tools": 20})]), trust_project=False, approvals=approvals)
    assert gate.limits_of(ServerSpec("s", Stdio("x"), limits={"tools": 99})).tools == 99
    assert gate.limits_of(ServerSpec("s", Stdio("x"), limits={"tools": 99}, origin=PROJECT)).tools == 20
    large = gate.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=2**26))
    assert (large.message_bytes, large.result_bytes) == (2**26, 2**26)
    bound = gate.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=2**26, origin=PROJECT))
    assert bound.message_bytes == 2**24
    small = gate.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=5))
    assert (small.message_bytes, small.result_bytes) == (5, 2**24)


def test_secrets_of_env_files_and_logins_are_learnt(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("MODE=qX7pL0vR2m\n")
    gate = Gate()
    stdio = Stdio("x", env_file=[str(file), str(tmp_path / "none")])
    auth = Auth(client_secret="cS9-kd82mm", private_key="", assertion="aS5-ww01zz", id_token="iT4-ee77pp")
    gate.register_secrets(stdio, {}, auth, env_files=env_file_values(stdio))
    assert gate.shown("qX7pL0vR2m cS9-kd82mm \x1b[0m") == f"{MASK} {MASK} \\x1b[0m"
    assert gate.shown("aS5-ww01zz iT4-ee77pp") == f"{MASK} {MASK}"
    assert gate.shown(None) is None
    assert "qX7pL0vR2m" in secrets_of(Http("http://u:qX7pL0vR2m@h/"), {})


def test_the_words_of_a_tool_keep_their_links() -> None:
    gate = Gate()
    gate.redactor.add(["qX7pL0vR2m"])
    text = "see https://example.com/?page=2 qX7pL0vR2m"
    failed, refused = ToolFailedError(text), ProtocolError(text)
    gate.scrub(failed)
    gate.scrub(refused)
    assert str(failed) == f"see https://example.com/?page=2 {MASK}"
    assert str(refused) == f"see https://example.com/?page={MASK} {MASK}"


def test_logs_are_guarded_from_begin_to_end(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    gate.redactor.add(["qX7pL0vR2m"])
    gate.begin()
    names = ("dragoman", "dragoman.calls", "client", "mcp.client.stdio", "mcp.shared.new", "httpcore2.http11")
    for name in names:
        logging.getLogger(name).error("say %s", "qX7pL0vR2m\n")
    logging.getLogger("client.of.the.application").error("say %s", "qX7pL0vR2m\n")
    gate.end()
    gate.end()
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"say {MASK}\\n"] * len(names) + ["say qX7pL0vR2m\n"]
    logging.getLogger("mcp.client.stdio").error("free\n%s", "qX7pL0vR2m")
    assert caplog.records[-1].getMessage() == "free\nqX7pL0vR2m"
    assert not logging.getLogger("dragoman").filters


def test_a_guard_without_rules_watches_no_call() -> None:
    assert not Gate().watches_calls
    assert not Gate(policy=Policy()).watches_calls
    assert not Gate(Settings(policy=[said([])])).watches_calls
    assert Gate(policy={"default": "ask"}).watches_calls
    assert Gate(Settings(policy=[said("nonsense")])).watches_calls
    with pytest.raises(ConfigError, match="invalid policy"):
        Gate(policy=[{"action": "allow", "tol": "x"}])


async def test_the_applications_policy_and_that_of_files_both_hold() -> None:
    files = Settings(policy=[said({"default": "deny", "rules": [{"action": "allow", "tool": "read"}]})])
    gate = Gate(files, policy=Policy(rules=[Rule(action="ask", tools=["read"])]))
    with pytest.raises(CallDeniedError, match="no one can be asked") as caught:
        await gate.permit(READ, {}, trusts_hints=False)
    assert caught.value.rule == "code: ask tool=read"
    builtin = ToolDef(name="here", description="", input_schema={}, source="builtin")
    with pytest.raises(CallDeniedError, match="Blocked by the policy's default"):
        await gate.permit(builtin, {}, trusts_hints=False)
    gate.update(Settings())
    assert not await gate.permit(builtin, {}, trusts_hints=False)


async def test_a_person_gets_the_call_as_it_would_be_sent() -> None:
    asked: list[CallRequest] = []

    async def yes(request: CallRequest) -> bool:
        asked.append(request)
        return True

    gate = Gate(policy=[{"action": "ask", "name": "look", "reason": "be careful"}], approval=yes)
    assert await gate.permit(READ, {"path": "/x"}, trusts_hints=False)
    (request,) = asked
    assert (request.tool, request.rule, request.reason) == ("mcp_fs_read", "code: look", "be careful")
    assert "/x" not in repr(request)


async def test_handler_gets_a_copy_and_the_rules_count_that_hold_when_it_has_answered() -> None:
    given = {"paths": ["/x"]}

    def changes_it(request: CallRequest) -> bool:
        request.arguments["paths"].append("/etc")
        return True

    gate = Gate(policy=[{"action": "ask"}], approval=changes_it)
    assert await gate.permit(READ, given, trusts_hints=False)
    assert given == {"paths": ["/x"]}

    def yes(_: CallRequest) -> bool:
        late.update(Settings(policy=[said([{"action": "deny", "tool": "read"}])]))
        return True

    late = Gate(policy=[{"action": "ask"}], approval=yes)
    with pytest.raises(CallDeniedError, match="Blocked by rule"):
        await late.permit(READ, {}, trusts_hints=False)


async def test_resources_and_prompts_are_asked_about_as_such() -> None:
    asked: list[CallRequest] = []
    gate = Gate(policy=[{"action": "ask"}], approval=lambda request: not asked.append(request))
    await gate.permit_offer("resource", "law://1", server="law")
    await gate.permit_offer("prompt", "draft", server="law", arguments={"to": "Ada"})
    assert [(one.kind, one.tool, dict(one.arguments)) for one in asked] == [
        ("resource", "law://1", {"uri": "law://1"}),
        ("prompt", "draft", {"to": "Ada"}),
    ]
    assert not gate.forbids("resource", "law://1", server="law")
    assert Gate(policy={"default": "deny"}).forbids("resource", "law://1", server="law")


def test_headers_of_callers_and_providers_are_hidden_when_they_are_sent() -> None:
    gate = Gate()
    caller = {"Authorization": "Bearer caller-t0ken"}
    provider = gate.watch_headers(lambda server: {"X-Key": f"key-of-{server}-1"}, lambda: caller)
    assert not gate.redactor.holds("caller-t0ken")
    assert provider("far") == {"X-Key": "key-of-far-1"}
    for secret in ("caller-t0ken", "key-of-far-1"):
        assert secret not in gate.redactor.mask(f"it said {secret}!")


async def test_headers_that_take_their_time_are_hidden_too() -> None:
    async def given(_: str) -> dict[str, str]:
        return {"X-Key": "awaited-k3y-value"}

    gate = Gate()
    answer = gate.watch_headers(given, lambda: None)("far")
    assert inspect.isawaitable(answer)
    assert await answer == {"X-Key": "awaited-k3y-value"}
    assert gate.redactor.holds("awaited-k3y-value")


@pytest.mark.parametrize("odd", [None, 5, {"X-Key": 5}, {5: b"x"}, ["X-Key"]])
def test_headers_that_cannot_be_sent_are_left_for_the_transport_to_refuse(odd: Any) -> None:
    gate = Gate()
    assert gate.watch_headers(lambda _: odd, lambda: None)("far") is odd
    assert len(gate.redactor) == 0


def test_an_error_of_a_call_is_without_its_headers_however_many_others_were_made_since() -> None:
    gate = Gate()
    caller = {"X-Key": "caller-k3y-value"}
    headers = gate.watch_headers(None, lambda: caller)
    assert headers("far") == {}
    gate.redactor.add_passing(f"other-{number}-value" for number in range(1_000))
    error = ToolFailedError("you sent caller-k3y-value", tool="t", server="far")
    gate.scrub(error)
    assert "caller-k3y-value" not in str(error)


@pytest.mark.parametrize("answer", [None, 1, "yes", "no", {"approved": True}])
async def test_only_true_is_a_yes(answer: Any) -> None:
    rules = [{"tool": "read", "action": "ask"}]
    gate = Gate(policy=rules, approval=lambda _: answer)
    with pytest.raises(CallDeniedError):
        await gate.permit(READ, {}, trusts_hints=False)
