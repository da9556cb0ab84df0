"""Each adapter inside its framework: a real agent runs, with a scripted model and real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.write_adapters import ROWS, write
from tests.prove.frameworks import LOCKS, MODULES, ROOT, python_of

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

PROGRAMS = Path(__file__).with_name("adapters")
SERVERS = ROOT / "tests/servers"
NAMES = list(MODULES)


def run(
    python: Path, program: Path | str, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_the_matrix_holds_or_has_a_reason(name: str, proof: Proof) -> None:
    module = name.replace("-", "_")
    done = run(python_of(name), PROGRAMS / "matrix.py", module, SERVERS / "adapted.py")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout.strip().rpartition("\n")[2])
    wrong = {cell: one["error"] for cell, one in row.items() if "error" in one}
    assert not wrong, "\n".join(wrong.values())
    stale = [cell for cell, one in row.items() if one.get("works")]
    assert not stale, f"these cells have a reason why they cannot hold, but hold: {stale}"
    ROWS.mkdir(parents=True, exist_ok=True)
    (ROWS / f"{name}.json").write_text(json.dumps(row, ensure_ascii=False), "utf-8")
    proof.record(
        cells=sum(one["holds"] for one in row.values()), without=sum("why" in one for one in row.values())
    )


def test_the_page_has_the_matrix_of_this_run() -> None:
    assert sorted(file.stem for file in ROWS.glob("*.json")) == sorted(NAMES), "run all rows first"
    write()
    page = (ROOT / "docs/adapters.md").read_text("utf-8")
    assert all(f"dragoman[{name}]" in page for name in NAMES)


UNFIT = "invalid arguments for `mcp_plain_echo` (nothing was sent): `text`: expected a string, got 3"


def test_langchain_tools_work_without_await_and_keep_arguments_that_langchain_uses_itself() -> None:
    done = run(python_of("langchain"), PROGRAMS / "langchain_agent.py", SERVERS / "plain.py")
    assert done.returncode == 0, done.stderr
    offered, *answers = done.stdout.splitlines()
    assert {"mcp_plain_echo", "configure"} < set(offered.split())
    assert "mcp_plain_exit" not in offered
    assert answers == [
        "mcp_plain_echo success hello",
        f"mcp_plain_echo error {UNFIT}",
        "mcp_plain_fail error the disk is full",
        "configure success a 2 me",
        "image ['text', 'image'] image/png",
        "thread from a thread",
        "loop DragomanError",
        "blocking no loop at all",
        "blocking a loop beside",
    ]


def test_an_agent_of_openais_sdk_goes_on_whatever_becomes_of_a_call() -> None:
    done = run(python_of("openai-agents"), PROGRAMS / "openai_agents_agent.py", SERVERS / "plain.py")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()[1:]
    assert answers[:-2] == ["hello", UNFIT, "the disk is full", "['input_text', 'input_image']", "42"]
    assert answers[-2].startswith("`double` was not called: its arguments are not valid JSON")
    assert answers[-1] == "done"


def langgraph(kind: str, what: str, folder: Path) -> list[str]:
    program, server = PROGRAMS / "langgraph_interrupt.py", SERVERS / "adapted.py"
    files = (folder / "checkpoints.sqlite", server, folder / "orders")
    done = run(python_of("langchain"), program, kind, what, *files, HOME=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("kind", "at_once"), [("agent", 2), ("node", 1)])
def test_an_interrupt_of_langgraph_is_answered_in_another_process_and_the_tool_runs_once(
    kind: str, at_once: int, tmp_path: Path, proof: Proof
) -> None:
    questions = ["Which size?"] * at_once
    assert langgraph(kind, "ask", tmp_path)[:at_once] == questions
    # A process that only looks sees the same questions, and nothing runs.
    assert langgraph(kind, "show", tmp_path)[:at_once] == questions
    orders = tmp_path / "orders"
    assert orders.read_text().splitlines() == ["asked"] * at_once
    processes = 2
    while (lines := langgraph(kind, "answer", tmp_path))[-1] != "done":
        processes += 1
    assert lines == ["ordered L", "hello", "ordered S", "done"]
    assert sorted(orders.read_text().splitlines()) == ["asked", "asked", "ordered L", "ordered S"]
    proof.record(processes=processes + 1, orders=2)


def test_two_processes_that_answer_the_same_interrupt_order_once(tmp_path: Path) -> None:
    langgraph("agent", "ask", tmp_path)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(langgraph, "agent", "answer", tmp_path) for _ in range(2)]
        assert any("ordered L" in one.result() for one in ended)
    orders = (tmp_path / "orders").read_text().splitlines()
    assert sorted(line for line in orders if line != "asked") == ["ordered L", "ordered S"]


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_without_its_framework_says_what_to_install(name: str) -> None:
    done = run(Path(sys.executable), "-c", f"import dragoman.adapters.{name.replace('-', '_')}")
    assert f"install `dragoman[{name}]`" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_pins_every_package_with_hashes_and_no_address(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text("utf-8")
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")
    assert "torch==" not in text


@pytest.mark.parametrize("name", NAMES)
def test_every_example_of_the_page_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    from tests.docs.pages import blocks

    examples = blocks("python", (ROOT / "docs/adapters.md").read_text("utf-8"))
    (example,) = [one for one in examples if f"from dragoman.adapters.{name.replace('-', '_')} import" in one]
    (tmp_path / "example.py").write_text(example, "utf-8")
    done = run(python_of(name), tmp_path / "example.py")
    assert done.returncode == 0, done.stderr
    assert "Art. 4" in done.stdout
