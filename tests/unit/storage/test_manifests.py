from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.model import Http, ServerSpec, Sse, Stdio
from dragoman.storage import manifests as cache
from dragoman.storage.manifests import ManifestCache
from dragoman.trust.masking import spec_key
from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("legal-discovery.cache")

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
LISTING: list[dict[str, Any]] = [
    {"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA, "_meta": {"a": [1, None]}},
    {"name": "ünï\ud800", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA},
]
STDIO = ServerSpec("law", Stdio("npx", ["-y", "law"], env={"TOKEN": "one"}, cwd="work"))
HTTP = ServerSpec("law", Http("https://me:pass@law.example/mcp?key=one", headers={"Authorization": "a"}))


@pytest.fixture
def manifests(tmp_path: Path) -> ManifestCache:
    return ManifestCache(tmp_path / "manifests")


def the_file(manifests: ManifestCache) -> Path:
    (file,) = manifests.folder.iterdir()
    return file


@pytest.mark.requirement("kode-discovery.metadata", "excel-3.2")
def test_what_is_written_is_read_and_schemas_stay_text(manifests: ManifestCache) -> None:
    assert manifests.read("key") is None
    assert manifests.write("key", LISTING)
    entries = manifests.read("key")
    assert entries is not None
    heads = [{key: value for key, value in raw.items() if "Schema" not in key} for raw in LISTING]
    assert [head for head, _ in entries] == heads
    assert [json.loads(schemas) for _, schemas in entries] == [[SCHEMA, None], [{"type": "object"}, SCHEMA]]


def test_listing_that_is_kept_already_is_not_written_again(manifests: ManifestCache) -> None:
    manifests.write("key", LISTING)
    before = the_file(manifests).stat()
    assert not manifests.write("key", LISTING)
    assert the_file(manifests).stat().st_ino == before.st_ino
    assert manifests.write("key", LISTING[:1])
    assert len(manifests.read("key") or ()) == 1


def test_hashes_of_listing_and_handshake_are_kept_with_it(manifests: ManifestCache) -> None:
    for digest, handshake in [("ab", "cd"), ("", "cd"), ("ab", ""), ("", "")]:
        assert manifests.write("key", LISTING, digest=digest, handshake=handshake)
        found = manifests.recall("key")
        assert found is not None
        assert (found.digest, found.handshake) == (digest, handshake)


def test_server_without_tools_is_known_to_have_none(manifests: ManifestCache) -> None:
    manifests.write("key", [])
    assert manifests.read("key") == []


def test_only_the_owner_can_read_it_and_nothing_half_written_is_left(manifests: ManifestCache) -> None:
    manifests.write("key", LISTING)
    assert stat.S_IMODE(the_file(manifests).stat().st_mode) == 0o600
    assert stat.S_IMODE(manifests.folder.stat().st_mode) == 0o700


def damage(content: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "cut":
            return content[:-10]
        case "flipped":
            return content.replace(b"echo", b"ecko")
        case "another file":
            return b'{"mcpServers": {}}'
        case _:
            return content.replace(b"manifest 3 ", b"manifest 4 ", 1)


@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "another file", "another version"])
def test_manifest_that_cannot_be_used_is_passed_over_with_one_warning(
    manifests: ManifestCache, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    manifests.write("key", LISTING)
    file = the_file(manifests)
    file.write_bytes(damage(file.read_bytes(), how))
    assert manifests.read("key") is None
    assert manifests.read("key") is None
    (record,) = caplog.records
    reason = "another version" if how == "another version" else "is damaged"
    assert reason in record.getMessage()
    assert str(file) in record.getMessage()
    assert manifests.write("key", LISTING)
    assert manifests.read("key")


@pytest.mark.parametrize("line", [b"[1]", b'[{"name":1}]', b"{}", b"[", b"[" * 100_000, b'[{"name":"a"}]'])
def test_right_checksum_over_wrong_content_does_no_harm(
    manifests: ManifestCache, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manifests.write("key", LISTING)
    the_file(manifests).write_bytes(cache._head_line(line, "") + line)
    assert manifests.read("key") is None
    assert len(caplog.records) == 1


def test_pipe_or_folder_in_a_manifests_place_is_passed_over(
    manifests: ManifestCache, caplog: pytest.LogCaptureFixture
) -> None:
    manifests.folder.mkdir()
    os.mkfifo(manifests.folder / "pipe.manifest")
    (manifests.folder / "folder.manifest").mkdir()
    assert manifests.read("pipe") is None
    assert manifests.read("folder") is None
    assert len(caplog.records) == 2


def test_folder_that_cannot_be_used_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    manifests = ManifestCache(tmp_path / "file" / "manifests")
    assert not manifests.write("key", LISTING)
    assert not manifests.write("key", LISTING)
    assert manifests.read("key") is None
    assert ["cannot be written" in record.getMessage() for record in caplog.records] == [True]


def test_listing_that_is_too_large_is_not_kept(
    manifests: ManifestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests.write("key", LISTING)
    monkeypatch.setattr(cache, "MAX_BYTES", 100)
    assert manifests.read("key") is None
    assert not manifests.write("key", LISTING)
    assert not list(manifests.folder.iterdir())


def test_manifests_that_were_unused_longest_make_room(
    manifests: ManifestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_MANIFESTS", 3)
    for name in ("new", "unused", "used"):
        manifests.write(name, LISTING)
    (manifests.folder / ".left.new").write_text("what a crash left")
    for age, file in enumerate(("new.manifest", "unused.manifest", "used.manifest", ".left.new"), 1):
        past = time.time() - age * 2 * cache.DAY
        os.utime(manifests.folder / file, (past, past))
    assert manifests.read("used")
    manifests.write("latest", LISTING)
    assert {file.stem for file in manifests.folder.iterdir()} == {"new", "used", "latest"}


def test_definition_that_cannot_be_encoded_is_left_out(manifests: ManifestCache) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    odd = [{"name": "nan", "inputSchema": {"const": float("nan")}}, {"name": "deep", "inputSchema": deep}]
    manifests.write("key", [*odd, *LISTING])
    assert [head["name"] for head, _ in manifests.read("key") or ()] == [raw["name"] for raw in LISTING]


@pytest.mark.parametrize(
    "leaky",
    [
        {"name": "a", "description": 'Uses p"ä/55word.', "inputSchema": {}},
        {"name": "b", "inputSchema": {"properties": {"token": {"default": 'p"ä/55word'}}}},
    ],
)
def test_listing_that_shows_a_secret_is_not_kept_not_even_in_part(
    manifests: ManifestCache, leaky: dict[str, Any]
) -> None:
    manifests.write("key", LISTING)
    manifests.write("key", [leaky, *LISTING], hides=Redactor(['p"ä/55word']).holds)
    assert manifests.read("key") is None
    assert list(manifests.folder.iterdir()) == []


@pytest.mark.parametrize(
    "other",
    [
        STDIO.replace(name="other"),
        STDIO.replace(protocol="legacy"),
        STDIO.replace(transport=Stdio("npx", ["-y", "other"], env={"TOKEN": "one"}, cwd="work")),
        STDIO.replace(transport=Stdio("uvx", ["-y", "law"], env={"TOKEN": "one"}, cwd="work")),
        STDIO.replace(transport=Stdio("npx", ["-y", "law"], env={"KEY": "one"}, cwd="work")),
        STDIO.replace(transport=Stdio("npx", ["-y", "law"], env={"TOKEN": "one"})),
        HTTP,
        HTTP.replace(transport=Sse("https://law.example/mcp", headers={"Authorization": "a"})),
        HTTP.replace(transport=Http("https://law.example/other", headers={"Authorization": "a"})),
        HTTP.replace(transport=Http("https://law.example/mcp")),
    ],
)
def test_what_decides_the_listing_decides_the_fingerprint(other: ServerSpec) -> None:
    assert spec_key(other, "/project") != spec_key(STDIO, "/project")
    assert spec_key(other, "/project") == spec_key(other, "/project")


def test_secrets_and_rules_of_ours_do_not_change_the_fingerprint() -> None:
    stdio = Stdio("npx", ["-y", "law"], env={"TOKEN": "two"}, cwd="work")
    same = STDIO.replace(transport=stdio, lazy=True, denied_tools=["x"], timeouts={"call": 1})
    assert spec_key(same, "/project") == spec_key(STDIO, "/project")
    assert spec_key(STDIO, "/elsewhere") != spec_key(STDIO, "/project")
    http = Http("https://you:word@law.example/mcp?key=two", headers={"authorization": "b"})
    assert spec_key(HTTP.replace(transport=http), "/a") == spec_key(HTTP, "/b")


def test_known_tools_are_there_without_the_sdk_and_without_a_validator(tmp_path: Path) -> None:
    spec = ServerSpec("law", Stdio("no-such-command"))
    listing = [LISTING[0], {**LISTING[1], "name": "ünï"}]
    ManifestCache(tmp_path / "c").write(spec_key(spec, str(tmp_path)), listing)
    program = """
import asyncio, sys
from pathlib import Path
from dragoman import McpManager, ServerSpec, Stdio
async def main():
    async with McpManager([ServerSpec("law", Stdio("no-such-command"))], cache=Path("c")) as mcp:
        assert len(mcp.tools()) == 2 == mcp.status()["law"].tools
        print([name for name in ("mcp", "pydantic", "jsonschema_rs", "anyio") if name in sys.modules])
        assert mcp.tools()[0].input_schema["properties"] == {"text": {"type": "string"}}
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
