"""`dragoman stubs` for TypeScript, Go and Rust compiles for 900 real tools; the TypeScript program of the pages runs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import blocks
from tests.prove.test_gateway import install
from tests.real.test_conformance import node
from tests.unit.tools.test_stubs import FIND, NODE, made, takes

from dragoman.model import ToolDef
from dragoman.tools.definition import define
from dragoman.tools.stubs import Language, stubs_of

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "real-tools.json"
CRATES = Path("/usr/share/cargo/registry")
"""Where Debian's packages of Rust crates are; `librust-serde-json-dev` and `librust-serde-derive-dev` are needed."""
ODD = takes(
    "self",
    "中",
    **{
        "type": {"type": "string", "description": "ends */ here\nand goes on"},
        "self": {"$ref": "#/$defs/Node"},
        "a-b": {"enum": ["x", "X", "", "中文", 'q"uote\\']},
        "a_b": {"enum": [1, True, None]},
        "中": {"type": ["integer", "null"]},
        "back`tick": {},
        'q"': {"type": "number"},
        "l": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/Node"}]}},
    },
) | {"$defs": {"Node": NODE}}
MODEL = """
import { MockLanguageModelV4 } from "ai/test";
const count = { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined };
const turn = (content, reason) => ({
  content: [content],
  finishReason: { unified: reason, raw: undefined },
  usage: { inputTokens: count, outputTokens: { total: 1, text: 1, reasoning: undefined } },
  warnings: [],
});
const input = JSON.stringify({ query: "deposit", limit: 1 });
const call = { type: "tool-call", toolCallId: "1", toolName: "mcp_desk_search_statutes", input };
export const model = new MockLanguageModelV4({
  doGenerate: [turn(call, "tool-calls"), turn({ type: "text", text: "Two months' rent." }, "stop")],
});
"""
USE = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { call } from "./s.js";
const client = new Client({ name: "x", version: "1" });
const { hits } = await call(client, "mcp_s_find_page", { query: "x", order: "best match" });
const first: boolean = hits["a"];
// @ts-expect-error: the argument is missing
await call(client, "mcp_s_find_page", {});
// @ts-expect-error: not one of the choices
await call(client, "mcp_s_find_page", { query: "x", order: "oldest" });
"""


def written(folder: Path, language: Language) -> int:
    """Write the stubs of all tools; return how many tools they have."""
    listing = json.loads(DATA.read_text("utf-8"))
    tools = [
        define(raw, server=name, template="mcp_{server}_{tool}") for name in listing for raw in listing[name]
    ]
    known = [tool for tool in tools if isinstance(tool, ToolDef)]
    odd = ("查询", "echo", "Echo", "echo_arguments", "type", "func", "1")
    known += [FIND, *(made(name, ODD, server="中 国", output_schema={"type": "array"}) for name in odd)]
    known.append(made("x", {"type": "object"}, server="type"))
    stubs = stubs_of(known, language)
    for one in stubs:
        file = folder / one.file.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(one.file.text, "utf-8")
    if language == "rust":
        modules = (f"pub mod {'r#' if one.module == 'type' else ''}{one.module};\n" for one in stubs)
        (folder / "lib.rs").write_text("".join(modules))
    return sum(len(one.tools) for one in stubs)


def run(*command: str, cwd: Path) -> None:
    # Toolchains such as rustup's are in the user's real home.
    env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: unused" not in done.stderr


def tool_named(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs `{name}`")
    return found


def test_typescript_compiles_in_strict_mode_and_refuses_wrong_arguments(tmp_path: Path, proof: Proof) -> None:
    install("install_servers.py", "foreign-clients")
    modules = ROOT / ".cache" / "foreign-clients" / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    proof.record(typescript_tools=written(tmp_path, "typescript"))
    (tmp_path / "use.ts").write_text(USE)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    run(str(modules / ".bin" / "tsc"), *options, *(path.name for path in tmp_path.glob("*.ts")), cwd=tmp_path)


@pytest.mark.parametrize("page", ["legal.md", "legal.zh-CN.md"])
def test_the_program_of_the_legal_pages_shows_sources_and_dates(page: str, tmp_path: Path) -> None:
    install("install_servers.py", "foreign-clients")
    (program,) = blocks("typescript", (ROOT / "docs" / "how-to" / page).read_text("utf-8"))
    (tmp_path / "node_modules").symlink_to(ROOT / ".cache" / "foreign-clients" / "node_modules")
    (tmp_path / "main.mjs").write_text(program, "utf-8")
    (tmp_path / "model.mjs").write_text(MODEL, "utf-8")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LEGAL_MCP_DESK_SERVER_URL": f"{sys.executable} -m dragoman.demo.legal",
        "LEGAL_MCP_DESK_TRANSPORT": "stdio",
    }
    command = [node(), "main.mjs"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Two months' rent."
    assert "Sample Residential Tenancy Act" in done.stdout
    assert "(updated 2026-01-30)" in done.stdout


def test_go_compiles(tmp_path: Path, proof: Proof) -> None:
    go = tool_named("go")
    proof.record(go_tools=written(tmp_path, "go"))
    (tmp_path / "go.mod").write_text("module example.com/stubs\n\ngo 1.18\n")
    run(go, "vet", "./...", cwd=tmp_path)


def test_rust_compiles(tmp_path: Path, proof: Proof) -> None:
    cargo = tool_named("cargo")
    if not list(CRATES.glob("serde_json-*")) or not list(CRATES.glob("serde_derive-*")):
        pytest.skip("needs the crates serde_json and serde_derive of Debian")
    proof.record(rust_tools=written(tmp_path, "rust"))
    manifest = '[package]\nname = "stubs"\nversion = "0.1.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
    crates = 'serde = { version = "1", features = ["derive"] }\nserde_json = "1"\n'
    (tmp_path / "Cargo.toml").write_text(f"{manifest}[dependencies]\n{crates}")
    (tmp_path / ".cargo").mkdir()
    source = f'[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "{CRATES}"\n'
    (tmp_path / ".cargo" / "config.toml").write_text(source)
    run(cargo, "check", "--offline", cwd=tmp_path)
