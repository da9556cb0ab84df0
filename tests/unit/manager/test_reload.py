from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman.errors import ConfigError, ConfigSyntaxError, DragomanError, InvalidSpecError
from dragoman.manager import reload
from dragoman.manager.reload import Plan, Watcher, diff, hold, unapproved
from dragoman.model import (
    Http,
    Input,
    Layers,
    Note,
    Origin,
    ServerSpec,
    Settings,
    Source,
    Statement,
    Stdio,
    Tls,
)
from dragoman.trust.layers import as_read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.requirement("otter-p2.reload")

FILE = Origin(source="/etc/mcp.json", line=3, scope="user", pointer="mcpServers.a")
A = ServerSpec("a", Stdio("npx", ["-y", "a"], env={"TOKEN": "${env:TOKEN}"}), origin=FILE)
B = ServerSpec("b", Http("https://b.example/mcp"), origin=FILE.replace(pointer="mcpServers.b"))


def settings(*servers: ServerSpec, **more: Any) -> Settings:
    return Settings(servers=servers, **more)


def read(
    *servers: ServerSpec,
    said: Sequence[tuple[str, Any]] = (),
    problems: Sequence[DragomanError] = (),
    file: str = FILE.source,
    scope: Any = "user",
    first_only: bool = False,
) -> Settings:
    """Make settings as one file gives them."""
    layers = Layers(
        servers=list(servers),
        own=[spec for spec in servers if spec.origin.scope != "project"],
        statements=[Statement(key=key, data=data, source=file, scope=scope) for key, data in said],
        problems=list(problems),
        first_only=first_only,
    )
    spoilt = [problem.source for problem in problems if isinstance(problem, ConfigError) and problem.source]
    sources = [Source(path=path, dialect="x", scope=scope, status="broken") for path in spoilt]
    sources.append(Source(path=file, dialect="x", scope=scope, status="loaded"))
    return as_read(Settings(layers=layers, sources=sources))


def test_unapproved_rules_do_not_take_effect() -> None:
    plan = Plan(keep=("k",), adjust=("a", "b"), restart=("r",))
    assert unapproved(plan, {"b", "k", "r"}) == Plan(keep=("k",), adjust=("a",), restart=("r", "b"))
    assert unapproved(plan, {}) == plan


def test_same_settings_keep_everything() -> None:
    assert diff(settings(A, B), settings(B, A)) == Plan(keep=("b", "a"))


@pytest.mark.parametrize(
    "moved",
    [
        A.replace(origin=FILE.replace(line=99), lines={"command": 100}, shadowed=[FILE]),
        A.replace(origin=FILE.replace(source="/other")),
        A.replace(notes=[Note(code="unknown", key="x", message="y")], extras={"x": 1}),
        A.replace(transport=Stdio("npx", ["-y", "a"], env={"TOKEN": "${TOKEN}"})),
    ],
)
def test_entry_that_is_merely_moved_or_spelled_otherwise_is_kept(moved: ServerSpec) -> None:
    assert diff(settings(A), settings(moved)) == Plan(keep=("a",))


@pytest.mark.parametrize(
    "changes",
    [
        {"transport": Stdio("npx", ["-y", "a", "b"], env={"TOKEN": "${TOKEN}"})},
        {"transport": Stdio("npx", ["-y", "a"], env={"TOKEN": "${OTHER}"})},
        {"transport": Http("https://a.example/mcp")},
        {"protocol": "legacy"},
        {"lazy": True},
        {"max_concurrency": 2},
        {"max_message_bytes": 2},
        {"transport": A.transport.replace(log_file="a.log")},
        {"timeouts": {"idle": 5}},
    ],
)
def test_server_that_means_something_else_is_replaced(changes: dict[str, Any]) -> None:
    assert diff(settings(A, B), settings(A.replace(**changes), B)) == Plan(keep=("b",), restart=("a",))


@pytest.mark.parametrize(
    "changes",
    [
        {"denied_tools": ["x"]},
        {"allowed_tools": ["x"], "title": "A"},
        {"naming": "{tool}"},
        {"timeouts": {"call": 5, "connect": 6}},
        {"fallback": ["b"], "required": True, "replacement": "stop-first"},
        {"parallel": True, "coerce_arguments": False, "attribution": {"title": "/t"}},
    ],
)
def test_rules_that_are_read_at_each_use_change_without_touching_the_server(changes: dict[str, Any]) -> None:
    assert diff(settings(A), settings(A.replace(**changes))) == Plan(adjust=("a",))


def test_server_with_other_certificates_is_replaced() -> None:
    one = A.replace(transport=Http("https://a.example/mcp", tls=Tls(ca="a.pem")))
    for tls in (None, Tls(ca="b.pem"), Tls(ca="a.pem", verify=False)):
        other = one.replace(transport=Http("https://a.example/mcp", tls=tls))
        assert diff(settings(one), settings(other)) == Plan(restart=("a",))


def test_servers_come_and_go() -> None:
    assert diff(settings(A), settings(B)) == Plan(start=("b",), stop=("a",))
    off = A.replace(enabled=False)
    assert diff(settings(A), settings(off)) == Plan(stop=("a",))
    assert diff(settings(off), settings(A)) == Plan(start=("a",))
    assert diff(settings(off), settings(off.replace(lazy=True))) == Plan()


def test_global_switch_stops_and_starts_all() -> None:
    assert diff(settings(A, B), settings(A, B, enabled=False)) == Plan(stop=("a", "b"))
    assert diff(settings(A, B, enabled=False), settings(A, B)) == Plan(start=("a", "b"))


def test_global_rules_change_the_servers_that_have_none_of_their_own() -> None:
    own = B.replace(naming="{tool}", health_check_interval=5)
    assert diff(settings(A, own), settings(A, own, naming="{server}.{tool}")) == Plan(
        keep=("b",), adjust=("a",)
    )
    assert diff(settings(A, own), settings(A, own, health_check_interval=1)) == Plan(
        keep=("b",), restart=("a",)
    )


def test_changed_default_of_an_input_replaces_the_servers_that_use_it() -> None:
    asks = B.replace(transport=Http("https://b.example/mcp", headers={"X": "${input:key}"}))
    before, after = [Input(id="key", default="1")], [Input(id="key", default="2"), Input(id="other")]
    assert diff(settings(A, asks, inputs=before), settings(A, asks, inputs=after)) == Plan(
        keep=("a",), restart=("b",)
    )


BROKEN = ConfigSyntaxError("it ends too early", source=FILE.source, line=7)
NOT_A_MAP = ConfigError("expected an object", source=FILE.source, line=1)


@pytest.mark.parametrize("problem", [BROKEN, NOT_A_MAP])
def test_broken_file_keeps_what_it_said(problem: DragomanError) -> None:
    weaker = A.replace(transport=Stdio("other"), origin=FILE.replace(source="/weaker"))
    more = B.replace(name="more", origin=FILE.replace(source="/weaker"))
    inputs = [Input(id="x", scope="user")]
    old = read(A, B, said=[("auto_reload", True), ("naming", "{tool}"), ("inputs", inputs)])
    held = hold(old, read(weaker, more, problems=[problem], said=[("naming", "{server}")], file="/weaker"))
    assert diff(old, held) == Plan(keep=("a", "b"), start=("more",))
    assert (held.auto_reload, held.naming, held.inputs) == (True, "{tool}", inputs)
    assert held.problems == [problem]


def test_projects_broken_file_keeps_nothing_of_the_users_from_being_taken_over() -> None:
    broken = ConfigSyntaxError("it ends too early", source="/p/x.toml", line=7)
    theirs = A.replace(name="theirs", origin=Origin(source="/p/x.toml", scope="project"))
    rules = [{"action": "deny"}]
    old = read(theirs, said=[("policy", rules), ("naming", "{tool}")], file="/p/x.toml", scope="project")
    mine = Layers(own=[A], statements=[Statement(key="policy", data=[], source=FILE.source, scope="user")])
    assert old.layers is not None
    old = old.replace(
        layers=old.layers.replace(own=[A], statements=[*old.layers.statements, *mine.statements]),
    )
    held = hold(old, read(B, problems=[broken], said=[("policy", rules), ("call_log", True)]))
    assert held.layers is not None
    assert held.layers.own == [B]
    assert [spec.name for spec in held.layers.servers] == ["b", "theirs"]
    assert [(one.scope, one.key) for one in held.layers.statements] == [
        ("project", "policy"),
        ("project", "naming"),
        ("user", "policy"),
        ("user", "call_log"),
    ]


@pytest.mark.parametrize("scope", ["user", "project"])
def test_file_that_was_hidden_stays_so_while_the_nearer_one_is_broken(scope: Any) -> None:
    far = B.replace(name="far", origin=FILE.replace(source="/far"))
    near = A.replace(origin=FILE.replace(scope=scope))
    old = read(near, first_only=True, scope=scope)
    hidden = Source(path="/far", dialect="x", scope="user", status="hidden")
    old = old.replace(sources=[*old.sources, hidden])
    held = hold(old, read(far, problems=[BROKEN], file="/far", first_only=True))
    assert held.layers is not None
    assert [spec.name for spec in held.layers.servers] == ["a"]
    assert [spec.name for spec in held.layers.own] == (["far"] if scope == "project" else ["a"])
    assert [spec.name for spec in hold(old, read(far, first_only=True)).servers] == ["far"]


def test_entry_that_is_invalid_now_keeps_what_it_said() -> None:
    wrong = InvalidSpecError("no command", source=FILE.source, pointer="mcpServers.a.command")
    near = InvalidSpecError("no command", source=FILE.source, pointer="mcpServers.ab")
    assert [spec.name for spec in hold(read(A, B), read(B, problems=[wrong])).servers] == ["b", "a"]
    assert [spec.name for spec in hold(read(A, B), read(B, problems=[near])).servers] == ["b"]
    weaker = A.replace(origin=FILE.replace(source="/weaker"))
    assert hold(read(A), read(weaker, problems=[wrong])).servers == [weaker]


def test_problem_without_a_place_breaks_no_file() -> None:
    held = hold(read(A), read(B, problems=[ConfigError("odd"), DragomanError("odd")]))
    assert [spec.name for spec in held.servers] == ["b"]


@pytest.mark.anyio
class TestWatcher:
    async def seen(self, *files: Path, change: Any) -> int:
        """Watch files, change something, and count what is noticed until the last change is."""
        noticed = asyncio.Event()
        count = 0

        async def changed() -> None:
            nonlocal count
            count += 1
            noticed.set()

        watcher = Watcher(lambda: files, changed)
        watcher.start()
        watcher.start()
        with anyio.fail_after(30):
            await asyncio.to_thread(change)
            await noticed.wait()
            for task in watcher.stop():
                await task
        return count

    async def test_file_that_is_written_is_noticed(self, tmp_path: Path) -> None:
        file = tmp_path / "mcp.json"
        file.write_text("{}")
        assert await self.seen(file, change=lambda: file.write_text('{"a": 1}'))

    async def test_file_whose_size_stays_the_same_is_noticed(self, tmp_path: Path) -> None:
        file = tmp_path / "mcp.json"
        file.write_text('{"timeout": 30}')
        assert await self.seen(file, change=lambda: file.write_text('{"timeout": 60}'))

    async def test_file_that_is_replaced_is_noticed(self, tmp_path: Path) -> None:
        file, other = tmp_path / "mcp.json", tmp_path / "mcp.json.tmp"
        file.write_text("{}")
        other.write_text("[]")
        assert await self.seen(file, change=lambda: other.replace(file))

    async def test_file_in_a_folder_that_does_not_exist_yet_is_noticed(self, tmp_path: Path) -> None:
        file = tmp_path / "a" / "b" / "mcp.json"

        def change() -> None:
            file.parent.mkdir(parents=True)
            file.write_text("{}")

        assert await self.seen(file, tmp_path / "absent.json", change=change)

    async def test_link_that_points_elsewhere_is_noticed(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "mcp.json").write_text(name)
        (tmp_path / "data").symlink_to("one")
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "mcp.json").symlink_to("data/mcp.json")
        change = (tmp_path / "new").replace
        assert await self.seen(tmp_path / "mcp.json", change=lambda: change(tmp_path / "data"))

    async def test_file_that_is_empty_counts_at_the_second_look(self, tmp_path: Path) -> None:
        file = tmp_path / "mcp.json"
        file.write_text("{}")
        seen: list[str] = []

        async def changed() -> None:
            seen.append(file.read_text())

        watcher = Watcher(lambda: [file, tmp_path / "absent"], changed)
        for text, expected in [
            ("", []),
            ("{ }", ["{ }"]),
            ("", ["{ }"]),
            (None, ["{ }", ""]),
            (None, ["{ }", ""]),
        ]:
            if text is not None:
                file.write_text(text)
            await watcher._look()
            assert seen == expected

    async def test_what_happens_to_other_files_is_not_reported(self, tmp_path: Path) -> None:
        file = tmp_path / "mcp.json"

        def change() -> None:
            for number in range(50):
                (tmp_path / f"other{number}").write_text("x")
            file.write_text("{}")

        assert await self.seen(file, change=change) == 1

    async def test_change_that_cannot_be_applied_does_not_end_the_watch(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "mcp.json"
        noticed = [asyncio.Event(), asyncio.Event()]

        async def changed() -> None:
            next(event for event in noticed if not event.is_set()).set()
            raise OSError("the disk is gone")

        watcher = Watcher(lambda: [file], changed)
        watcher.start()
        with anyio.fail_after(30):
            for number, event in enumerate(noticed):
                file.write_text("x" * number)
                await event.wait()
            for task in watcher.stop():
                await task
        assert "could not be applied" in caplog.text

    async def test_folders_that_cannot_be_watched_are_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(reload, "LOOK_MS", 20)
        real, refused = reload.Watcher._watch, []

        async def refuse(
            self: Watcher, folders: set[Path], stop: asyncio.Event, *, polling: bool | None
        ) -> None:
            if polling is None:
                refused.append(folders)
                raise OSError("no watches left")
            await real(self, folders, stop, polling=polling)

        monkeypatch.setattr(reload.Watcher, "_watch", refuse)
        file = tmp_path / "mcp.json"
        assert await self.seen(file, change=lambda: file.write_text("{}"))
        assert refused == [{tmp_path}]
        assert "polling them instead" in caplog.text
