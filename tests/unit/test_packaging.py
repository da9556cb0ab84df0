"""What is shipped: the built wheel holds the package, its data and its promises, and nothing else."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import dragoman
from dragoman.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "dragoman"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without the network, as `pip install .` would."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel: a folder from which it can be imported, far from the sources."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def shipped(installed: Path) -> set[str]:
    return {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}


def metadata(installed: Path) -> dict[str, list[str]]:
    (file,) = installed.glob("*.dist-info/METADATA")
    message = Parser().parsestr(file.read_text("utf-8"))
    return {name: message.get_all(name, []) for name in message}


def run_installed(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the unpacked wheel, whose modules come before the sources of the working tree."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.requirement("excel-6.2")
def test_the_official_sdk_is_declared_in_pyproject_and_in_the_wheel(installed: Path) -> None:
    assert [line for line in PROJECT["dependencies"] if re.match(r"mcp\b", line)] == ["mcp>=2.0,<3"]
    required = [line.replace(" ", "") for line in metadata(installed)["Requires-Dist"]]
    assert [line for line in required if re.match(r"mcp\b", line)] == ["mcp<3,>=2.0"]


@pytest.mark.requirement("excel-6.1")
def test_the_protocol_is_spoken_through_the_official_package_and_no_other() -> None:
    imported = set[str]()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert "mcp" in imported
    assert not imported & {"fastmcp", "mcp_use", "langchain_mcp_adapters", "mcpadapt"}


def test_the_wheel_has_every_module_and_the_data_that_they_read(installed: Path) -> None:
    files = shipped(installed)
    kept = {".py", ".typed", ".toml", ".json"}
    sources = {
        f"dragoman/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.suffix in kept or path.name == "py.typed"
    }
    assert sources <= files
    assert {
        "dragoman/py.typed",
        "dragoman/config/catalog.toml",
        "dragoman/demo/data/statutes.json",
        "dragoman/demo/data/cases.json",
        "dragoman/demo/data/templates.json",
    } <= files


def test_the_wheel_has_nothing_but_the_package_and_its_metadata(installed: Path) -> None:
    tops = {name.partition("/")[0] for name in shipped(installed)}
    assert tops == {"dragoman", f"dragoman-{VERSION}.dist-info"}
    assert [name for name in shipped(installed) if "test" in Path(name).name or "__pycache__" in name] == []


def test_the_metadata_says_who_may_use_it_and_how(installed: Path) -> None:
    fields = metadata(installed)
    assert fields["Name"] == ["dragoman"]
    assert fields["Version"] == [VERSION]
    assert fields["Requires-Python"] == [">=3.11"]
    assert fields["License-Expression"] == ["MIT"]
    assert "Typing :: Typed" in fields["Classifier"]
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "dragoman = dragoman.cli.entry:main" in entry_points.read_text("utf-8")
    assert list(installed.glob("*.dist-info/licenses/LICENSE"))


def test_the_wheel_works_without_the_sources(installed: Path) -> None:
    where = run_installed(installed, "-c", "import dragoman; print(dragoman.__file__)")
    assert where.stdout.strip() == str(installed / "dragoman" / "__init__.py")
    version = run_installed(installed, "-m", "dragoman", "--version")
    assert (version.returncode, version.stdout) == (0, f"dragoman {VERSION}\n")
    script = (
        "from dragoman.config.write import catalog\n"
        "from dragoman.demo.legal import load_templates\n"
        "print(len(catalog()), len(load_templates()))"
    )
    counted = run_installed(installed, "-c", script)
    assert counted.returncode == 0, counted.stderr
    assert all(int(number) > 0 for number in counted.stdout.split())


def test_the_program_that_the_type_checker_reads_uses_every_public_name() -> None:
    tree = ast.parse((ROOT / "tests" / "typing" / "api.py").read_text("utf-8"))
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "dragoman"
    ]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = {name.name for node in imports for name in node.names}
    assert names == {name for name in dragoman.__all__ if not name.startswith("_")}
    assert names <= used
