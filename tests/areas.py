"""The tests that belong to one package of `src/dragoman`, for `make test AREA=server`.

They are those of `tests/unit/AREA`, every other test that imports something of the package, and those whose names begin as
`NAMES` says: they look at the package from outside. The rules of the whole tree, such as the direction of imports, are in
every area.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "adapters": "adapt bridge ai_sdk",
    "agent": "agent code model_reads provider faces first_tries runnable search_loading",
    "blocking": "blocking faces",
    "bulk": "map",
    "cli": "cli dashboard session running",
    "config": "approved configuration environment from_config layers profiles secret_sources seed",
    "demo": "legal web_app",
    "diagnosis": "diagnose cli_doctor broken_servers",
    "gateway": "gateway daemon users policy_roads",
    "manager": "cache calls closing coming_back fallback freshness names observe offers plain_asyncio reload subscriptions tasks upkeep users",
    "observe": "observe",
    "server": "apps auth broken_servers closing connecting conformance everything faults hostile late_imports lifecycle "
    "limits oauth other_systems protocol real_servers rpc server_cards supervision tasks transports wires",
    "storage": "cache tasks",
    "testing": "faces lifecycle",
    "tools": "aliases big_catalogs chinese exported formats names naming offers plain_schema results skills validation",
    "trust": "approved canaries limits policy rug_pulls secret security trust",
}
"""How the names of tests begin, after `test_`, that use a package without an import of it."""
ALWAYS = ("test_architecture", "test_repository", "test_requirements", "test_static_safety")


def areas() -> list[str]:
    """Return every package of the source."""
    return sorted(path.parent.name for path in (ROOT / "src/dragoman").glob("*/__init__.py"))


@cache
def files(area: str) -> list[str]:
    """Return the folders and files of the tests of a package, from the root of the tree."""
    unit = ROOT / "tests/unit" / area
    imported = re.compile(
        rf"^[ ]*(?:from|import) dragoman\.{area}\b|^[ ]*from dragoman import .*\b{area}\b", re.MULTILINE
    )
    named = re.compile(rf"test_(?:{'|'.join(NAMES.get(area, area).split())})")
    found = [unit] if unit.is_dir() else []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        inside = path.relative_to(ROOT / "tests").parts
        if inside[0] == "prove" or unit in path.parents:
            continue
        about = inside[0] != "unit" and named.match(path.name)
        if about or path.stem in ALWAYS or imported.search(text_of(path)):
            found.append(path)
    return [str(path.relative_to(ROOT)) for path in found]


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


if __name__ == "__main__":
    (wanted,) = sys.argv[1:]
    if wanted not in areas():
        sys.exit(f"Unknown area {wanted}; available: {' '.join(areas())}")
    print(" ".join(files(wanted)))
