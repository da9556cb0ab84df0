from __future__ import annotations

import codecs
import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.config.specs import WRITABLE, specs

from dragoman.config import write
from dragoman.config.dialects import dialect
from dragoman.config.export import as_written
from dragoman.config.load import load
from dragoman.config.merge import differences
from dragoman.config.profiles import BUILT_IN, Place, Profile, profile_named
from dragoman.config.templates import ExpansionContext
from dragoman.config.write import Target, change_text
from dragoman.errors import ConfigError, ConfigSyntaxError, InvalidSpecError
from dragoman.model import Http, ServerSpec, Stdio

SERVER = ServerSpec("x", Stdio("npx", ["-y", "x"]))


def target(path: Path, name: str = "dragoman") -> Target:
    format_ = "toml" if path.suffix == ".toml" else "json"
    return Target(path=path, dialect=dialect(name), root=str(path.parent), format=format_)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def beside(path: Path) -> list[str]:
    return sorted(item.name for item in path.parent.iterdir())


# ── what is written is read again

FILES = {name: "toml" if name in ("codex", "otter", "rrclaw") else "json" for name in WRITABLE}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(specs(), max_size=3, unique_by=lambda spec: spec.name), st.sampled_from(WRITABLE), st.data())
def test_servers_that_are_written_are_loaded_again_but_for_the_named_losses(
    servers: list[ServerSpec], name: str, data: st.DataObject
) -> None:
    suffix = data.draw(st.sampled_from(["json", "toml"])) if name == "dragoman" else FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        file = target(Path(folder, f"servers.{suffix}"), name)
        losses: dict[str, set[str]] = {}
        for spec in servers:
            try:
                found = write.put(file, [spec], replaces=False)
            except InvalidSpecError:
                continue
            losses[spec.name] = {loss.key.lower() for loss in found[spec.name]}
        loaded = load(
            Profile(app="t", places=(), variable="", default_dialect=name), config=file.path, root=folder
        )
        assert [spec.name for spec in loaded.servers] == list(losses)
        for spec in servers:
            again = loaded.server(spec.name)
            if again is not None:
                unlike = differences(spec, again, name)
                assert {as_written(key).lower() for key in unlike} <= losses[spec.name]


def test_several_servers_are_written_in_one_step_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    bad = ServerSpec("bad", Http("ftp://h"))
    with pytest.raises(InvalidSpecError):
        write.put(target(file), [SERVER, bad], replaces=False)
    assert not file.exists()


def test_a_server_of_the_same_name_is_replaced_only_if_asked(tmp_path: Path) -> None:
    file = target(tmp_path / "mcp.json")
    write.put(file, [SERVER], replaces=False)
    with pytest.raises(ConfigError, match="already") as caught:
        write.put(file, [SERVER], replaces=False)
    assert caught.value.line == 3
    write.put(file, [ServerSpec("x", Stdio("other"))], replaces=True)
    assert json.loads(file.path.read_text())["mcpServers"] == {
        "x": {"transport": "stdio", "command": "other"}
    }


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"servers": {"a": {"command": "a"}}}', ("servers", "x")),
        ('{"mcp": {"servers": {}}}', ("mcp", "servers", "x")),
        ('{"a": {"command": "a"}}', ("x",)),
        ("{}", ("mcpServers", "x")),
        ('{"mcpServers": [{"name": "a", "command": "a"}]}', ("mcpServers", 1)),
        ('[{"name": "a", "command": "a"}]', (1,)),
    ],
)
def test_a_new_server_stands_with_the_others_of_its_file(
    tmp_path: Path, text: str, where: tuple[str | int, ...]
) -> None:
    file = tmp_path / "some.json"
    file.write_text(text)
    write.put(target(file), [SERVER], replaces=False)
    found = json.loads(file.read_text())
    for part in where:
        found = found[part]
    assert found["command"] == "npx"


def test_a_file_that_does_not_parse_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{ broken")
    with pytest.raises(ConfigSyntaxError):
        write.put(target(file), [SERVER], replaces=False)
    assert file.read_text() == "{ broken"
    assert beside(file) == ["mcp.json"]


def test_servers_of_another_project_in_the_same_file_are_not_touched(tmp_path: Path) -> None:
    file = tmp_path / ".claude.json"
    root = str(tmp_path)
    projects = {
        root: {"mcpServers": {"x": {"command": "mine"}}},
        "/else": {"mcpServers": {"x": {"command": "e"}}},
    }
    file.write_text(json.dumps({"numStartups": 3, "projects": projects}, indent=2))
    write.put(target(file, "claude-code"), [SERVER], replaces=False)
    data = json.loads(file.read_text())
    assert data["projects"] == projects
    assert data["mcpServers"]["x"]["command"] == "npx"
    write.remove(target(file, "claude-code"), "x", f"projects.{root}.mcpServers.x")
    data = json.loads(file.read_text())
    assert data["projects"][root] == {"mcpServers": {}}
    assert data["projects"]["/else"] == projects["/else"]


# ── switches


@pytest.mark.parametrize(
    ("name", "entry", "off"),
    [
        ("dragoman", {"command": "a"}, {"command": "a", "enabled": False}),
        ("dragoman", {"command": "a", "disabled": False}, {"command": "a", "disabled": True}),
        (
            "dragoman",
            {"enabled": True, "disabled": False, "command": "a"},
            {"enabled": False, "disabled": True, "command": "a"},
        ),
        ("kode", {"command": "a"}, {"command": "a", "enabled": False}),
    ],
)
def test_the_switch_that_the_entry_has_is_turned(
    tmp_path: Path, name: str, entry: object, off: object
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    write.switch(target(file, name), "a", "mcpServers.a", on=False)
    assert json.loads(file.read_text()) == {"mcpServers": {"a": off}}


def test_a_host_without_a_switch_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "a"}}}')
    with pytest.raises(ConfigError, match="Cursor has no key that switches a server off"):
        write.switch(target(file, "cursor"), "a", on=False)


def test_an_entry_that_has_gone_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`a` is not there"):
        write.remove(target(tmp_path / "mcp.json"), "a")


# ── files


def test_a_new_file_with_a_literal_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        secret = ServerSpec("s", Http("http://h/", headers={"Authorization": "Bearer abc"}))
        named = ServerSpec("n", Http("http://h/", headers={"Authorization": "Bearer ${TOKEN}"}))
        write.put(target(tmp_path / "secret.json"), [secret], replaces=False)
        write.put(target(tmp_path / "named.json"), [named], replaces=False)
    finally:
        os.umask(old)
    assert mode(tmp_path / "secret.json") == 0o600
    assert mode(tmp_path / "named.json") == 0o644


def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    file.chmod(0o640)
    write.put(target(file), [SERVER], replaces=False)
    assert mode(file) == 0o640


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    link = tmp_path / "mcp.json"
    link.symlink_to(real)
    write.put(target(link), [SERVER], replaces=False)
    assert link.is_symlink()
    assert "npx" in real.read_text()
    assert beside(real) == ["mcp.json"]


def test_missing_folders_are_made_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "mcp.json"
    write.put(target(file), [SERVER], replaces=False)
    assert beside(file) == ["mcp.json"]


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_the_encoding_and_the_line_ends_stay(tmp_path: Path, mark: bytes) -> None:
    file = tmp_path / "mcp.json"
    encoding = {b"": "utf-8", codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le"}.get(
        mark, "utf-16-be"
    )
    file.write_bytes(mark + '{\r\n  "é": 1\r\n}\r\n'.encode(encoding))
    write.put(target(file), [SERVER], replaces=False)
    data = file.read_bytes()
    text = data.removeprefix(mark).decode(encoding)
    assert data.startswith(mark)
    assert text.startswith('{\r\n  "é": 1,\r\n  "mcpServers": {\r\n')
    assert text.count("\n") == text.count("\r\n")


def test_a_file_that_belongs_to_another_program_is_kept_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "a"}}}')
    place = Target(path=file, dialect=dialect("cursor"), root=str(tmp_path), backup=True)
    write.remove(place, "a")
    assert json.loads(file.read_text()) == {"mcpServers": {}}
    assert (tmp_path / "mcp.json.bak").read_text() == '{"mcpServers": {"a": {"command": "a"}}}'


def test_no_change_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    before = file.stat()
    assert change_text(file, lambda text: text, backup=True) is False
    assert file.stat().st_ino == before.st_ino
    assert beside(file) == ["mcp.json"]


@pytest.mark.parametrize("kind", ["directory", "pipe", "folder is a file", "loop", "encoding"])
def test_a_place_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "mcp.json"
    match kind:
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "folder is a file":
            file.write_text("{}")
            file = file / "mcp.json"
        case "loop":
            file.symlink_to(file)
        case _:
            file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError) as caught:
        write.put(target(file), [SERVER], replaces=False)
    assert caught.value.source == str(file)
    assert not [name for name in beside(tmp_path / "x") if name.startswith(".")]


def test_a_name_that_is_no_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with pytest.raises(ConfigError):
        write.put(target(file), [ServerSpec("x", Stdio("a", ["\udcff"]))], replaces=False)
    assert not file.exists()


ADDER = """
import sys
from pathlib import Path
from dragoman.config import write
from dragoman.config.dialects import dialect
from dragoman.model import ServerSpec, Stdio

target = write.Target(path=Path(sys.argv[1]), dialect=dialect("dragoman"), root="/")
for number in range(10):
    write.put(target, [ServerSpec(f"{sys.argv[2]}{number}", Stdio("x"))], replaces=False)
"""


def test_programs_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    source = Path(write.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(source)}
    running = [
        subprocess.Popen([sys.executable, "-c", ADDER, str(file), name], env=env, stderr=subprocess.PIPE)
        for name in "abc"
    ]
    assert [process.communicate()[1] for process in running] == [b""] * 3
    assert len(json.loads(file.read_text())["mcpServers"]) == 30
    assert beside(file) == ["mcp.json"]


def test_a_file_that_another_program_keeps_locked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mcp.json"
    monkeypatch.setattr(write, "LOCK_TIMEOUT", 0.0)
    with (tmp_path / ".mcp.json.dragoman-lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another program has been changing the file"):
            write.put(target(file), [SERVER], replaces=False)
    assert not file.exists()


# ── which file


def expansion(root: Path, home: Path, **env: str) -> ExpansionContext:
    return ExpansionContext(env=env, root=str(root), home=str(home))


@pytest.mark.parametrize(
    ("profile", "path", "name"),
    [
        ("dragoman", ".config/dragoman/mcp.json", "dragoman"),
        ("excelmanus", ".excelmanus/mcp.json", "excelmanus"),
        ("otter", ".config/otter/config.toml", "otter"),
        ("kode", ".kode.json", "kode"),
        ("rrclaw", ".rrclaw/config.toml", "rrclaw"),
        ("cursor", ".cursor/mcp.json", "cursor"),
        ("claude-code", ".claude.json", "claude-code"),
    ],
)
def test_each_profile_has_a_file_of_its_own_to_write_to(
    tmp_path: Path, home: Path, profile: str, path: str, name: str
) -> None:
    found = write.target(profile_named(profile), expansion(tmp_path, home))
    assert (found.path, found.dialect.name) == (home / path, name)
    assert found.backup is (profile in ("cursor", "claude-code"))


@pytest.mark.parametrize("profile", ["legal", "librechat"])
def test_a_profile_without_such_a_file_says_so(tmp_path: Path, home: Path, profile: str) -> None:
    with pytest.raises(ConfigError, match="no file of its own"):
        write.target(profile_named(profile), expansion(tmp_path, home))


def test_the_project_has_its_own_file_or_the_one_that_is_there(tmp_path: Path, home: Path) -> None:
    around = expansion(tmp_path, home)
    assert write.target(BUILT_IN["dragoman"], around, scope="project").path == tmp_path / "mcp.json"
    (tmp_path / "dragoman.toml").write_text("")
    found = write.target(BUILT_IN["dragoman"], around, scope="project")
    assert (found.path, found.format) == (tmp_path / "dragoman.toml", "toml")
    with pytest.raises(ConfigError, match="no file in the project"):
        write.target(BUILT_IN["legal"], around, scope="project")


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("x.json", None, "mcp-json"),
        ("x.toml", None, "dragoman"),
        ("x.toml", '[mcp_servers.a]\ncommand = "a"', "codex"),
        ("x.json", '{"servers": {"a": {"command": "a"}}}', "vscode"),
    ],
)
def test_a_named_file_is_written_in_the_dialect_it_is_read_in(
    tmp_path: Path, home: Path, file: str, text: str | None, name: str
) -> None:
    if text is not None:
        (tmp_path / file).write_text(text)
    by_option = write.target(BUILT_IN["dragoman"], expansion(tmp_path, home), config=file)
    by_variable = write.target(BUILT_IN["dragoman"], expansion(tmp_path, home, DRAGOMAN_MCP_CONFIG=file))
    assert by_option.path == by_variable.path == tmp_path / file
    assert by_option.dialect.name == by_variable.dialect.name == name


# ── rules for calls

RULE = {"action": "allow", "server": "fs", "tool": "write"}
POLICIES = {
    "empty.json": ("", []),
    "servers.json": ('{"mcpServers": {}}', []),
    "list.json": ('{"mcp": {"policy": [{"action": "deny", "tool": "x"}]}}', ["deny"]),
    "empty.toml": ("", []),
    "servers.toml": ('[mcp.servers.a]\ncommand = "x"\n', []),
    "default.toml": ('[mcp.policy]\ndefault = "ask"\n', []),
    "inline.toml": ('[mcp.policy]\nrules = [\n  { action = "deny", tool = "x" }, # why\n]\n', ["deny"]),
    "tables.toml": ('[[mcp.policy.rules]]\naction = "deny"\ntool = "x"\n', ["deny"]),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_rule_comes_after_all_rules_of_the_file_and_is_read_again(tmp_path: Path, name: str) -> None:
    text, before = POLICIES[name]
    path = tmp_path / name
    path.write_text(text, "utf-8")
    for _ in range(2):
        write.add_rule(target(path), RULE)
    (found,) = load(Profile(places=[Place(str(path), "user", dialect="dragoman")])).policy
    rules = found.data["rules"] if isinstance(found.data, dict) else found.data
    assert [rule["action"] for rule in rules] == [*before, "allow", "allow"]
    assert rules[-1] == RULE
    assert all(line in path.read_text("utf-8") for line in text.splitlines() if "#" in line)


def test_a_policy_that_is_no_policy_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcp": {"policy": {"rules": "none"}}}', "utf-8")
    with pytest.raises(ConfigError):
        write.add_rule(target(path), RULE)
    assert path.read_text("utf-8") == '{"mcp": {"policy": {"rules": "none"}}}'


def test_the_file_for_a_rule_is_the_weakest_of_the_users_that_has_rules(tmp_path: Path) -> None:
    """In a stronger one, a rule that allows would decide before those of the weaker one."""
    files = [tmp_path / name for name in ("mcp.json", "dragoman.toml", "config.toml")]
    places = [Place(str(path), "user", dialect="dragoman") for path in files]
    usual = target(files[0])

    def chosen() -> Path | None:
        found = write.rules_target(load(Profile(places=places)), usual)
        return found and found.path

    assert chosen() == files[0]
    files[0].write_text('{"mcp": {"policy": [{"action": "ask", "tool": "x"}]}}', "utf-8")
    assert chosen() == files[0]
    files[1].write_text('[[mcp.policy.rules]]\naction = "deny"\ntool = "y"\n', "utf-8")
    assert chosen() == files[1]
    # A file of another app has no rules.
    empty = load(Profile(places=[]))
    assert write.rules_target(empty, target(files[0], "claude-desktop")) is None


def test_a_key_is_set_by_its_name_of_files_also_where_the_field_has_another(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text('[mcp.servers.x]\ncommand = "npx"\n', "utf-8")
    assert write.change_values(target(path), "x", "mcp.servers.x", {"replace": "stop-first"})
    assert path.read_text("utf-8").splitlines()[-1] == 'replace = "stop-first"'
    with pytest.raises(ConfigError, match="unknown key `replacement`") as caught:
        write.change_values(target(path), "x", "mcp.servers.x", {"replacement": "stop-first"})
    assert caught.value.hint == "did you mean `replace`?"
