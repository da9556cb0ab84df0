"""What may lie in the repository: locks without addresses, no machine's paths, a CI that is `make test`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from scripts.environment import InstallError, complete

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
UNTRACKED = {".git", ".venv", ".cache", "node_modules", "__pycache__", "build", "dist"}
UNTRACKED |= {".hypothesis", ".pytest_cache", ".ruff_cache"}
HASHES = ROOT / "requirements/hashes.txt"
LOCKS = sorted(path for path in (ROOT / "requirements").rglob("*.txt") if path != HASHES)
NPM_LOCKS = [
    ROOT / folder / "package-lock.json"
    for folder in ("tests/real/npm", "tests/prove/clients", "requirements/pyright")
]

# Put together from pieces, so that this file holds none of them.
HOSTS = [
    name + end
    for name, end in (
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("yarnpkg", ".com"),
        ("debian", ".org"),
    )
]
MACHINE_PATHS = re.compile(
    r"(?<![\w.~}-])/(?:" + "|".join(["wor" + "k", "roo" + "t", "opt/py" + "pi"]) + r")[/\"'\s]"
)


def our_files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in UNTRACKED or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from our_files(path)
        elif path.is_file():
            yield path


def locked_versions(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([a-z0-9._-]+)==([^ ;\n]+)", lock.read_text("utf-8"), re.MULTILINE)
    return dict(found)


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    offences: list[str] = []
    for path in our_files():
        text = path.read_bytes().decode("utf-8", "replace")
        offences += [f"{path.relative_to(ROOT)}: {host}" for host in HOSTS if host in text]
        offences += [f"{path.relative_to(ROOT)}: {found}" for found in MACHINE_PATHS.findall(text)]
    assert offences == []


def test_nothing_that_a_run_leaves_lies_among_our_files() -> None:
    left = {".log", ".sqlite3", ".db", ".tmp", ".orig", ".rej", ".bak", ".prof"}
    assert [str(path.relative_to(ROOT)) for path in our_files() if path.suffix in left] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_pins_every_package_with_hashes_and_no_address(lock: Path) -> None:
    text = complete(lock)
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(lock.read_text("utf-8").splitlines())
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+( ; .+)? \\\n    --hash=sha256:[0-9a-f]{64}", entry), (
            entry.splitlines()[0]
        )


def test_every_hash_is_there_once_and_is_of_a_package_that_a_lock_has() -> None:
    known = [line.split() for line in HASHES.read_text("utf-8").splitlines()]
    pinned = {line.partition(" ")[0] for lock in LOCKS for line in lock.read_text("utf-8").splitlines()}
    assert {row[0] for row in known} == pinned
    assert len(known) == len(pinned)
    assert all(len(row) == len(set(row)) > 1 for row in known)


def test_a_package_without_hashes_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no-such-package==1.0\n", "utf-8")
    with pytest.raises(InstallError, match=r"a\.txt: `no-such-package==1\.0` has no hashes"):
        complete(tmp_path / "a.txt")


def test_the_development_lock_contains_the_run_lock() -> None:
    run, dev = (locked_versions(ROOT / "requirements" / f"{name}.txt") for name in ("run", "dev"))
    assert run.items() <= dev.items()


@pytest.mark.requirement("excel-6.1", "excel-6.2")
def test_the_official_sdk_is_a_dependency_and_is_locked() -> None:
    assert '"mcp>=2.0,<3"' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert locked_versions(ROOT / "requirements" / "run.txt")["mcp"].startswith("2.3.")


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda lock: lock.parent.name)
def test_an_npm_lock_has_integrity_and_no_resolved_address(lock: Path) -> None:
    packages = json.loads(lock.read_text("utf-8"))["packages"]
    for name, entry in packages.items():
        assert "resolved" not in entry, name
        assert name == "" or "integrity" in entry, name


def test_ci_calls_make_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]


def workflow_steps() -> Iterator[tuple[str, dict[str, object]]]:
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            for step in job["steps"]:
                yield path.name, step


def test_workflows_run_targets_of_the_makefile_and_nothing_else() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    commands = [(name, str(step["run"])) for name, step in workflow_steps() if "run" in step]
    assert {"make test", "make dist"} <= {command for _, command in commands}
    for name, command in commands:
        words = command.split()
        assert words[:2] == ["rm", "dist/sbom.json"] or (words[0] == "make" and words[1] in targets), name


def test_workflows_have_few_rights_and_pin_what_they_use() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {"contents": "read"}
    for _, step in workflow_steps():
        assert re.fullmatch(r"[\w./-]+@(v\d+|release/v1)", str(step.get("uses", "a@v1")))


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md"])
def test_no_page_for_contributors_invents_a_contact(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"\S@\S+\.\w|https?://(?!localhost|127)", text)
    assert all((ROOT / link).exists() for link in re.findall(r"\]\(([\w./-]+)\)", text))


def test_the_bill_of_materials_has_every_package_of_the_lock(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/sbom.py", tmp_path / "sbom.json"], check=True)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    listed = {one["name"]: one["version"] for one in bill["components"]}
    assert listed == locked_versions(ROOT / "requirements/run.txt")
    assert all(one["hashes"] for one in bill["components"])
