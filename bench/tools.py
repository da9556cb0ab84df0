"""Measure tools: the first export of 943 real tools, a repeated export, and the validation of arguments.

Goals: register and export to OpenAI's format in at most 60 ms of CPU, export again without changes in 0.5 ms,
and validate arguments in at most 0.05 times the CPU of a reused `jsonschema` validator.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema

from dragoman import ToolDef, ToolRegistry
from dragoman.tools.definition import define
from dragoman.tools.export.apis import APIS
from dragoman.tools.schema.validate import Validators

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[1] / "tests" / "data" / "real-tools.json"
ROUNDS, CHECKS = 15, 300
GOALS = {"first": 60.0, "again": 0.5, "checked": 0.05}
SAMPLES = {"string": "some text", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}


def main() -> None:
    """Measure and print."""
    listing: dict[str, list[dict[str, Any]]] = json.loads(DATA.read_text("utf-8"))
    tools = [
        tool
        for server, raws in listing.items()
        for raw in raws
        if isinstance(tool := define(raw, server=server, template="mcp_{server}_{tool}"), ToolDef)
    ]
    _exported(tools)
    _checked(tools)


def _exported(tools: list[ToolDef]) -> None:
    first: list[float] = []
    again: list[float] = []
    for _ in range(ROUNDS):
        registry = ToolRegistry()

        def fill(registry: ToolRegistry = registry) -> None:
            registry.register_all(tools)
            registry.to_openai_schema()

        first.append(_cpu(fill))
        again.append(_cpu(registry.to_openai_schema))
    # The very first export also imports the formats and the schema validator.
    print(f"{len(tools)} tools to OpenAI: the very first {first[0]:6.1f} ms")
    for name, taken in (("first", first), ("again", again)):
        best = min(taken)
        verdict = "met" if best <= GOALS[name] else "MISSED"
        middle = statistics.median(taken)
        print(f"  {name}: best {best:7.3f} ms, median {middle:7.3f} ms  (goal {GOALS[name]} ms: {verdict})")
    for api in APIS:
        registry = ToolRegistry()
        registry.register_all(tools)
        taken_ms = _cpu(lambda api=api, registry=registry: registry.export(api))
        export = registry.export(api)
        changed = len(export.changes)
        print(f"  {api:<15} {taken_ms:6.1f} ms, {len(export.tools)} tools, {changed} of them changed")


def _checked(tools: list[ToolDef]) -> None:
    ratios: list[float] = []
    validators = Validators()
    for tool in tools[:: len(tools) // 30]:
        arguments = _arguments(tool.input_schema)
        ours, theirs = validators.of(tool.input_schema), jsonschema.Draft202012Validator(tool.input_schema)
        if not theirs.is_valid(arguments):
            continue
        cost = {"ours": float("inf"), "theirs": float("inf")}
        for _ in range(5):
            for name, check in (("ours", ours.problems), ("theirs", theirs.is_valid)):
                cost[name] = min(cost[name], _cpu(lambda c=check, a=arguments: [c(a) for _ in range(CHECKS)]))
        ratios.append(cost["ours"] / cost["theirs"])
    ratios.sort()
    middle = statistics.median(ratios)
    verdict = "met" if middle <= GOALS["checked"] else "MISSED"
    print(
        f"arguments of {len(ratios)} tools: median {middle:.3f} × a kept `jsonschema` validator, "
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}  (goal {GOALS['checked']}: {verdict})"
    )


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return typical arguments: a value for every parameter with a simple type."""
    arguments: dict[str, Any] = {}
    for name, member in schema.get("properties", {}).items():
        if "enum" in member:
            arguments[name] = member["enum"][0]
        elif isinstance(kind := member.get("type"), str) and kind in SAMPLES:
            arguments[name] = member.get("minimum", SAMPLES[kind]) if kind == "integer" else SAMPLES[kind]
    return arguments


def _cpu(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000


if __name__ == "__main__":
    main()
