from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.waiting import PATIENCE

from dragoman.errors import ApprovalError, CallDeniedError
from dragoman.events import ApprovalAnswered, ApprovalRequested
from dragoman.model import AlwaysRule, ApprovalCaller, CallRequest, Layers, Settings, Statement, ToolDef
from dragoman.storage.inbox import InboxStore
from dragoman.trust import inbox as inbox_module
from dragoman.trust.gate import Gate
from dragoman.trust.inbox import Inbox
from dragoman.trust.layers import as_read, effective
from dragoman.trust.masking import MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman.events import Event
    from dragoman.model import PendingApproval

TOOL = ToolDef(name="mcp_fs_rm", description="", input_schema={}, server="fs", original_name="rm")
ASK = [{"action": "ask", "tool": "rm", "reason": "it cannot be undone"}]


class Bench:
    """A gate with an inbox, and the inbox as others see it."""

    def __init__(self) -> None:
        self.store = InboxStore()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.caller = ApprovalCaller(client="editor")

    def gate(self, policy: Any = ASK, *, settings: Settings | None = None, **more: Any) -> Gate:
        return Gate(settings, policy=policy, inbox=self.opened, **{"uses_inbox": True, **more})

    async def opened(self) -> Inbox:
        return Inbox(publish=self.events.put_nowait, caller=lambda: self.caller)

    async def requested(self) -> PendingApproval:
        event = await asyncio.wait_for(self.events.get(), PATIENCE)
        assert isinstance(event, ApprovalRequested)
        return event.approval

    async def ended(self) -> PendingApproval:
        event = await asyncio.wait_for(self.events.get(), PATIENCE)
        assert isinstance(event, ApprovalAnswered)
        return event.approval


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.store.close()


async def permit(gate: Gate, arguments: dict[str, Any] | None = None, **more: Any) -> bool:
    return await gate.permit(TOOL, arguments or {"path": "/srv"}, trusts_hints=False, **more)


async def refused(call: asyncio.Task[bool]) -> CallDeniedError:
    with pytest.raises(CallDeniedError) as caught:
        await call
    return caught.value


def never(cancelled: list[str]) -> Callable[[CallRequest], Any]:
    async def ask(_: CallRequest) -> bool:
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as exc:
            cancelled.append(str(exc))
            raise

    return ask


async def test_a_call_waits_until_another_program_says_yes_and_is_sent_once(bench: Bench) -> None:
    call = asyncio.create_task(permit(bench.gate(), {"path": "/srv", "token": "hunter2-and-more"}))
    asked = await bench.requested()
    assert bench.store.pending() == [asked]
    assert asked.arguments == {"path": "/srv", "token": MASK}
    assert (asked.rule, asked.reason, asked.caller.client) == ("ask rm", "it cannot be undone", "editor")
    bench.store.answer(asked.id, allow=True, by="ann")
    assert await call is True
    ended = await bench.ended()
    assert (ended.state, ended.answered_by) == ("approved", "ann")
    assert bench.store.get(asked.id).state == "sent"


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"command": "rm -rf /"}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        {"sk-ant-api03-" + "a" * 40: "harmful", "sk-ant-api03-" + "b" * 40: "harmless"},
        {"number": 2**5000},
    ],
    ids=["names that are masked", "a very large number"],
)
async def test_what_a_person_cannot_be_shown_does_not_wait(
    bench: Bench, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CallDeniedError, match="no one can be asked"):
        await permit(bench.gate(), arguments)
    assert "cannot be shown as they are sent" in caplog.text
    assert bench.store.pending(decided=True) == []


async def test_nested_arguments_are_shown_whole(bench: Bench) -> None:
    call = asyncio.create_task(permit(bench.gate(), nested(99)))
    asked = await bench.requested()
    assert asked.arguments == nested(99)
    bench.store.answer(asked.id, allow=False, by="ann")
    await refused(call)


async def test_a_caller_that_goes_at_the_moment_of_the_yes_leaves_nothing_approved(bench: Bench) -> None:
    ending, ended = asyncio.Event(), asyncio.Event()

    async def notify(_: PendingApproval, __: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ending.set()
            await ended.wait()
            raise

    async def opened() -> Inbox:
        return Inbox(publish=bench.events.put_nowait, notify=lambda: notify)

    call = asyncio.create_task(permit(Gate(policy=ASK, inbox=opened, uses_inbox=True)))
    asked = await bench.requested()
    bench.store.answer(asked.id, allow=True, by="ann")
    async with asyncio.timeout(PATIENCE):
        await ending.wait()
    call.cancel()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bench.store.get(asked.id).state == "abandoned"
    assert (await bench.ended()).state == "abandoned"


async def test_a_no_of_another_program_denies_and_withdraws_the_question(bench: Bench) -> None:
    cancelled: list[str] = []
    call = asyncio.create_task(permit(bench.gate(approval=never(cancelled))))
    asked = await bench.requested()
    bench.store.answer(asked.id, allow=False, by="ann")
    assert "the user declined `mcp_fs_rm`" in str(await refused(call))
    assert cancelled == ["already denied by ann"]


@pytest.mark.parametrize(
    ("says", "state"), [(True, "sent"), (False, "denied"), ("yes", "denied"), (1, "denied")]
)
async def test_the_person_at_the_caller_may_be_first(bench: Bench, says: object, state: str) -> None:
    async def ask(_: CallRequest) -> Any:
        return says

    call = asyncio.create_task(permit(bench.gate(approval=ask)))
    asked = await bench.requested()
    if state == "sent":
        assert await call
    else:
        await refused(call)
    assert bench.store.get(asked.id).state == state
    with pytest.raises(ApprovalError, match="by the caller"):
        bench.store.answer(asked.id, allow=True, by="ann")


async def test_a_handler_that_fails_denies(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def ask(_: CallRequest) -> bool:
        raise RuntimeError("no screen")

    await refused(asyncio.create_task(permit(bench.gate(approval=ask))))
    asked = await bench.requested()
    assert bench.store.get(asked.id).state == "denied"
    assert "no screen" in caplog.text


async def test_where_no_one_can_be_asked_the_call_waits(bench: Bench) -> None:
    call = asyncio.create_task(permit(bench.gate(approval=lambda _: None)))
    asked = await bench.requested()
    bench.store.answer(asked.id, allow=True, by="ann")
    assert await call


async def test_without_an_inbox_it_is_denied_as_before(bench: Bench) -> None:
    for gate in (bench.gate(uses_inbox=False, approval=lambda _: None), bench.gate(uses_inbox=None)):
        error = await refused(asyncio.create_task(permit(gate)))
        assert "no one can be asked here" in str(error)
    assert bench.store.pending(decided=True) == []
    assert bench.events.empty()


async def test_nobody_answers(bench: Bench) -> None:
    cancelled: list[str] = []
    gate = bench.gate(settings=Settings(approval_timeout=0.05), approval=never(cancelled))
    error = await refused(asyncio.create_task(permit(gate)))
    assert "nobody answered within 0.05 s" in str(error)
    asked = await bench.requested()
    assert bench.store.get(asked.id).state == "expired"
    assert (await bench.ended()).state == "expired"
    assert cancelled == ["already expired by no one"]


async def test_a_caller_that_gives_up_leaves_nothing_that_runs(bench: Bench) -> None:
    cancelled: list[str] = []
    call = asyncio.create_task(permit(bench.gate(approval=never(cancelled))))
    asked = await bench.requested()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await bench.ended()).state == "abandoned"
    assert cancelled == [""]
    # Another call comes after it, in the one thread that writes.
    again = asyncio.create_task(permit(bench.gate()))
    await bench.requested()
    with pytest.raises(ApprovalError, match="its caller has ended"):
        bench.store.answer(asked.id, allow=True, by="ann")
    again.cancel()
    await asyncio.wait({again})


async def test_a_rule_that_denies_meanwhile_wins_over_the_yes(bench: Bench) -> None:
    gate = bench.gate()
    call = asyncio.create_task(permit(gate))
    asked = await bench.requested()
    gate.set_policy([{"action": "deny", "tool": "rm"}])
    bench.store.answer(asked.id, allow=True, by="ann")
    assert "Blocked by rule `deny rm`" in str(await refused(call))
    assert bench.store.get(asked.id).state == "denied"


async def test_the_caller_is_told_that_its_call_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "PROGRESS_SECONDS", 0.01)
    told: asyncio.Queue[tuple[float, str | None]] = asyncio.Queue()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        told.put_nowait((progress, message))

    call = asyncio.create_task(permit(bench.gate(), report=report))
    asked = await bench.requested()
    first, second = [await asyncio.wait_for(told.get(), PATIENCE) for _ in range(2)]
    assert first[0] < second[0] < 0.001
    assert asked.id in str(second[1])
    bench.store.answer(asked.id, allow=True, by="ann")
    assert await call


async def test_a_rule_chosen_with_the_yes_holds_at_once(bench: Bench) -> None:
    rule = {"action": "allow", "server": "fs", "tool": "rm"}
    offered = [AlwaysRule(covers="tool", rule=rule, text="…", file="/home/me/dragoman.toml")]
    said = Statement(source="u.toml", scope="user", data={"default": "ask"})
    gate = bench.gate(None, settings=Settings(policy=[said]), offers=lambda *_: offered)
    call = asyncio.create_task(permit(gate))
    asked = await bench.requested()
    assert asked.always == offered
    bench.store.answer(asked.id, allow=True, by="ann", always="tool")
    assert await call
    assert not await permit(gate, {"path": "/etc"})
    other = TOOL.replace(name="mcp_fs_mv", original_name="mv")
    waiting = asyncio.create_task(gate.permit(other, {}, trusts_hints=False))
    await bench.ended()
    await bench.requested()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_a_paused_call_is_resumed_by_its_caller_alone(bench: Bench) -> None:
    def pause(call: CallRequest) -> bool:
        raise CallDeniedError("later", tool=call.tool, server=call.server, pending=True)

    gate = bench.gate(approval=pause)
    assert (await refused(asyncio.create_task(permit(gate)))).pending
    asked = await bench.requested()
    assert bench.store.get(asked.id).state == "pending"
    bench.store.answer(asked.id, allow=True, by="ann")
    bench.caller = ApprovalCaller(client="another editor")
    assert (await refused(asyncio.create_task(permit(gate)))).pending
    bench.caller = ApprovalCaller(client="editor")
    assert (await refused(asyncio.create_task(permit(gate, {"path": "/etc"})))).pending
    assert await permit(bench.gate(approval=pause))
    assert bench.store.get(asked.id).state == "sent"
    assert (await refused(asyncio.create_task(permit(gate)))).pending


async def test_a_paused_call_whose_rule_was_chosen_goes_on(bench: Bench) -> None:
    def pause(call: CallRequest) -> bool:
        raise CallDeniedError("later", tool=call.tool, server=call.server, pending=True)

    offered = [AlwaysRule(covers="tool", rule={"action": "allow", "tool": "rm"}, text="…", file="f")]
    await refused(asyncio.create_task(permit(bench.gate(approval=pause, offers=lambda *_: offered))))
    bench.store.answer((await bench.requested()).id, allow=True, by="ann", always="tool")
    assert await permit(bench.gate(approval=pause))


async def test_what_cannot_be_stored_is_asked_as_without_an_inbox(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.folder.mkdir(parents=True)
    bench.store.path.write_text("no database, but a text that is long enough to be read as one" * 20)
    assert await permit(bench.gate(approval=lambda _: True))
    assert "no one can be asked here" in str(await refused(asyncio.create_task(permit(bench.gate()))))
    assert "cannot wait in the inbox" in caplog.text


async def test_a_hundred_calls_wait_at_once(bench: Bench) -> None:
    gate = bench.gate()
    calls = [asyncio.create_task(permit(gate, {"n": number})) for number in range(100)]
    for number in range(100):
        asked = await bench.requested()
        assert asked.arguments == {"n": number}
    for number, one in enumerate(bench.store.pending()):
        bench.store.answer(one.id, allow=number % 2 == 0, by="ann")
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [one is True for one in found] == [number % 2 == 0 for number in range(100)]


WEBHOOK = {"address": "https://h.test/hook", "secret": "0123456789abcdef"}


def files(**scopes: dict[str, Any]) -> Settings:
    """Return the settings of files that say this."""
    said = [
        Statement(source=scope, scope=cast("Any", scope), key=key, data=data)
        for scope, table in scopes.items()
        for key, data in table.items()
    ]
    return as_read(Settings(layers=Layers(statements=said)))


@pytest.mark.parametrize("is_approved", [False, True])
def test_a_project_cannot_turn_it_on_or_name_a_webhook(is_approved: bool) -> None:
    theirs = {"approvals": "inbox", "approval_timeout": 86_400.0, "approval_webhook": WEBHOOK}
    mine = {"approvals": "off", "approval_timeout": 60.0}
    for own in ({}, mine):
        read = files(project=theirs, user=own)
        found = effective(read, refused=(), trusts_settings=is_approved)
        assert found.approval_webhook is None
        if not is_approved:
            assert (found.approvals, found.approval_timeout) == (
                own.get("approvals"),
                own.get("approval_timeout", 600.0),
            )
    both = effective(
        files(project=theirs, user={"approval_webhook": WEBHOOK}), refused=(), trusts_settings=True
    )
    assert both.approval_webhook == WEBHOOK


@pytest.mark.parametrize("said", [None, "inbox", "off"])
@pytest.mark.parametrize("wanted", [None, True, False])
def test_the_program_chooses_and_the_configuration_can_turn_it_off(said: Any, wanted: bool | None) -> None:
    gate = Gate(Settings(approvals=said), inbox=Bench().opened, uses_inbox=wanted)
    assert gate.has_inbox == (said != "off" and wanted is not False and (said == "inbox" or wanted is True))
