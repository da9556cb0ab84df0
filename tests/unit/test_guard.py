from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import CallDeniedError, ConfigError, ProtocolError, ToolFailedError
from dragoman.guard import LOGGERS, Guard, secrets_of
from dragoman.model import Auth, CallRequest, Http, Origin, ServerSpec, Settings, Statement, Stdio, ToolDef
from dragoman.trust.policy import Policy, Rule
from dragoman.trust.redact import MASK
from dragoman.trust_store import Approvals

if TYPE_CHECKING:
    from pathlib import Path


PROJECT = Origin(source="/p/mcp.json", scope="project")
SPEC = ServerSpec("fs", Stdio("npx", ["-y", "fs"]), origin=PROJECT)
READ = ToolDef(name="mcp_fs_read", description="", input_schema={}, server="fs", original_name="read")


def said(data: Any, scope: Any = "user") -> Statement:
    return Statement(source=f"{scope}.toml", scope=scope, data=data)


def test_only_what_a_project_has_a_say_in_is_bound(tmp_path: Path) -> None:
    guard = Guard(root=str(tmp_path), trust_project=False)
    refusal = guard.refusal(SPEC)
    assert refusal is not None
    assert (refusal.stage, refusal.server) == ("approval", "fs")
    assert guard.refusal(ServerSpec("fs", SPEC.transport)) is None
    assert set(guard.refused([SPEC, ServerSpec("own", SPEC.transport)])) == {"fs"}
    assert Guard(root=str(tmp_path)).refusal(SPEC) is None
    hidden = ServerSpec("fs", SPEC.transport, origin=Origin(source="u", scope="user"), shadowed=[PROJECT])
    assert guard.refusal(hidden) is None
    guard.adopt(Settings(by_field=True))
    assert guard.refusal(hidden) is not None
    Approvals().approve(SPEC, tmp_path)
    assert guard.refusal(SPEC) is None


def test_what_an_application_vouches_for_is_its_own_as_it_is(tmp_path: Path) -> None:
    guard = Guard(root=str(tmp_path), trust_project=False)
    guard.vouch(SPEC)
    assert guard.refusal(SPEC) is None
    assert guard.refusal(ServerSpec("fs", Stdio("evil"), origin=PROJECT)) is not None


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
    guard = Guard(settings, trust_project=False)
    limits = guard.limits_of(ServerSpec("s", Stdio("x"), origin=PROJECT))
    assert (limits.tools, limits.pages, limits.burst, limits.name_chars) == (20, 9, 7, 99)
    assert "a project can only narrow" in caplog.text
    users = guard.limits_of(ServerSpec("s", Stdio("x")))
    assert (users.tools, users.pages, users.burst) == (20, 500, 7)
    guard.adopt(replace(settings, trusts_project=True))
    assert guard.limits_of(ServerSpec("s", Stdio("x"))).tools == 50
    assert Guard(settings).limits_of(ServerSpec("s", Stdio("x"))).tools == 50


def test_limits_of_a_server_come_after_those_of_all() -> None:
    guard = Guard(Settings(limits=[said({"tools": 20})]), trust_project=False)
    assert guard.limits_of(ServerSpec("s", Stdio("x"), limits={"tools": 99})).tools == 99
    assert guard.limits_of(ServerSpec("s", Stdio("x"), limits={"tools": 99}, origin=PROJECT)).tools == 20
    large = guard.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=2**26))
    assert (large.message_bytes, large.result_bytes) == (2**26, 2**26)
    bound = guard.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=2**26, origin=PROJECT))
    assert bound.message_bytes == 2**24
    small = guard.limits_of(ServerSpec("s", Stdio("x"), max_message_bytes=5))
    assert (small.message_bytes, small.result_bytes) == (5, 2**24)


def test_secrets_of_env_files_and_logins_are_learnt(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("MODE=qX7pL0vR2m\n")
    guard = Guard()
    files = [str(file), str(tmp_path / "none")]
    guard.learn(Stdio("x", env_file=files), {}, Auth(client_secret="cS9-kd82mm", private_key=""))
    assert guard.shown("qX7pL0vR2m cS9-kd82mm \x1b[0m") == f"{MASK} {MASK} \\x1b[0m"
    assert guard.shown(None) is None
    assert "qX7pL0vR2m" in secrets_of(Http("http://u:qX7pL0vR2m@h/"), {})


def test_the_words_of_a_tool_keep_their_links() -> None:
    guard = Guard()
    guard.redactor.add(["qX7pL0vR2m"])
    text = "see https://example.com/?page=2 qX7pL0vR2m"
    failed, refused = ToolFailedError(text), ProtocolError(text)
    guard.scrub(failed)
    guard.scrub(refused)
    assert str(failed) == f"see https://example.com/?page=2 {MASK}"
    assert str(refused) == f"see https://example.com/?page={MASK} {MASK}"


def test_logs_are_guarded_from_begin_to_end(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    guard.redactor.add(["qX7pL0vR2m"])
    guard.begin()
    for name in LOGGERS:
        logging.getLogger(name).error("say %s", "qX7pL0vR2m\n")
    guard.end()
    guard.end()
    assert {record.getMessage() for record in caplog.records} == {f"say {MASK}\\n"}
    logging.getLogger("dragoman").error("free")
    assert not logging.getLogger("dragoman").filters


def test_a_guard_without_rules_watches_no_call() -> None:
    assert not Guard().watches_calls
    assert not Guard(policy=Policy()).watches_calls
    assert not Guard(Settings(policy=[said([])])).watches_calls
    assert Guard(policy={"default": "ask"}).watches_calls
    assert Guard(Settings(policy=[said("nonsense")])).watches_calls
    with pytest.raises(ConfigError, match="the policy cannot be used"):
        Guard(policy=[{"action": "allow", "tol": "x"}])


async def test_the_applications_policy_and_that_of_files_both_hold() -> None:
    files = Settings(policy=[said({"default": "deny", "rules": [{"action": "allow", "tool": "read"}]})])
    guard = Guard(files, policy=Policy(rules=[Rule(action="ask", tools=["read"])]))
    with pytest.raises(CallDeniedError, match="nobody can be asked") as caught:
        await guard.permit(READ, {}, trusts_hints=False)
    assert caught.value.rule == "code: ask tool=read"
    builtin = ToolDef(name="here", description="", input_schema={}, source="builtin")
    with pytest.raises(CallDeniedError, match="the default of the policy denies it"):
        await guard.permit(builtin, {}, trusts_hints=False)
    guard.adopt(Settings())
    assert not await guard.permit(builtin, {}, trusts_hints=False)


async def test_a_person_gets_the_call_as_it_would_be_sent() -> None:
    asked: list[CallRequest] = []

    async def yes(request: CallRequest) -> bool:
        asked.append(request)
        return True

    guard = Guard(policy=[{"action": "ask", "name": "look", "reason": "be careful"}], approval=yes)
    assert await guard.permit(READ, {"path": "/x"}, trusts_hints=False)
    (request,) = asked
    assert (request.tool, request.rule, request.reason) == ("mcp_fs_read", "code: look", "be careful")
    assert "/x" not in repr(request)


async def test_handler_gets_a_copy_and_the_rules_count_that_hold_when_it_has_answered() -> None:
    given = {"paths": ["/x"]}

    def changes_it(request: CallRequest) -> bool:
        request.arguments["paths"].append("/etc")
        return True

    guard = Guard(policy=[{"action": "ask"}], approval=changes_it)
    assert await guard.permit(READ, given, trusts_hints=False)
    assert given == {"paths": ["/x"]}

    def yes(_: CallRequest) -> bool:
        late.adopt(Settings(policy=[said([{"action": "deny", "tool": "read"}])]))
        return True

    late = Guard(policy=[{"action": "ask"}], approval=yes)
    with pytest.raises(CallDeniedError, match="denies it"):
        await late.permit(READ, {}, trusts_hints=False)


async def test_resources_and_prompts_are_asked_about_as_such() -> None:
    asked: list[CallRequest] = []
    guard = Guard(policy=[{"action": "ask"}], approval=lambda request: not asked.append(request))
    await guard.permit_offer("resource", "law://1", server="law")
    await guard.permit_offer("prompt", "draft", server="law", arguments={"to": "Ada"})
    assert [(one.kind, one.tool, dict(one.arguments)) for one in asked] == [
        ("resource", "law://1", {"uri": "law://1"}),
        ("prompt", "draft", {"to": "Ada"}),
    ]
    assert not guard.forbids("resource", "law://1", server="law")
    assert Guard(policy={"default": "deny"}).forbids("resource", "law://1", server="law")


def test_headers_of_callers_and_providers_are_hidden_when_they_are_sent() -> None:
    guard = Guard()
    caller = {"Authorization": "Bearer caller-t0ken"}
    provider = guard.watch_headers(lambda server: {"X-Key": f"key-of-{server}-1"}, lambda: caller)
    assert not guard.redactor.holds("caller-t0ken")
    assert provider("far") == {"X-Key": "key-of-far-1"}
    for secret in ("caller-t0ken", "key-of-far-1"):
        assert secret not in guard.redactor.mask(f"it said {secret}!")


async def test_headers_that_take_their_time_are_hidden_too() -> None:
    async def given(_: str) -> dict[str, str]:
        return {"X-Key": "awaited-k3y-value"}

    guard = Guard()
    answer = guard.watch_headers(given, lambda: None)("far")
    assert inspect.isawaitable(answer)
    assert await answer == {"X-Key": "awaited-k3y-value"}
    assert guard.redactor.holds("awaited-k3y-value")


@pytest.mark.parametrize("odd", [None, 5, {"X-Key": 5}, {5: b"x"}, ["X-Key"]])
def test_headers_that_cannot_be_sent_are_left_to_whoever_refuses_them(odd: Any) -> None:
    guard = Guard()
    assert guard.watch_headers(lambda _: odd, lambda: None)("far") is odd
    assert len(guard.redactor) == 0


def test_an_error_of_a_call_is_without_its_headers_however_many_others_were_made_since() -> None:
    guard = Guard()
    caller = {"X-Key": "caller-k3y-value"}
    headers = guard.watch_headers(None, lambda: caller)
    assert headers("far") == {}
    guard.redactor.add_passing(f"other-{number}-value" for number in range(1_000))
    error = ToolFailedError("you sent caller-k3y-value", tool="t", server="far")
    guard.scrub(error)
    assert "caller-k3y-value" not in str(error)
