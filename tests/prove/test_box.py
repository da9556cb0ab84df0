"""Real servers under each level of the sandbox: they list and answer as without one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.real import servers
from tests.real.test_real_servers import make_repository, spec_of

from dragoman import ServerSpec, Stdio
from dragoman.server.process import landlock

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from try_sandbox import tried

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(landlock.abi() < landlock.TRUNCATES, reason="this kernel has no Landlock"),
]
LEVELS = ("credentials", "strict")


async def test_real_servers_work_in_a_box_as_without_one(tmp_path: Path, proof: Proof) -> None:
    make_repository(tmp_path)
    words = {"filesystem": [tmp_path], "everything": ["stdio"]}
    specs = [spec_of(name, *words.get(name, [])) for name in servers.NAMES]
    command, *args = servers.npx_command("everything")
    specs.append(ServerSpec("npx", Stdio(command, args, cwd=str(servers.NPM))))
    found = await tried(specs, LEVELS, jobs=1)
    assert {name: [told.get(level) for level in LEVELS] for name, told in found.items()} == {
        spec.name: ["same", "same"] for spec in specs
    }
    proof.record(servers=len(found), levels=len(LEVELS))
