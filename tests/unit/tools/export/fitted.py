"""One schema through one format, for the tests beside this."""

from __future__ import annotations

from typing import Any

from tests.model_api_rules import problems, schema_of

from dragoman.model import ToolDef
from dragoman.tools.export.export import Export, Exporter


def export(api: Any, schema: Any, *, strict: bool = False, description: str = "Does it.") -> Export:
    """Export one tool, which has to be legal if it is there."""
    tool = ToolDef(name="t", description=description, input_schema=schema, server="s", original_name="t")
    made = Exporter(api, strict=strict).export([tool])
    assert [told for one in made.tools for told in problems(api, one)] == []
    return made


def fitted(api: Any, schema: Any, *, strict: bool = False) -> Any:
    """Return the schema as it goes out."""
    made = export(api, schema, strict=strict)
    assert dict(made.left_out) == {}
    return schema_of(api, made.tools[0])


def reason(api: Any, schema: Any) -> str:
    """Return why a tool with this schema is left out."""
    made = export(api, schema)
    assert made.tools == []
    return made.left_out["t"]


def whys(api: Any, schema: Any, *, strict: bool = False) -> list[tuple[str, str]]:
    """Return the changes that are recorded."""
    return [(change.where, change.why) for change in export(api, schema, strict=strict).changes.get("t", ())]


def parameter(schema: Any, **more: Any) -> dict[str, Any]:
    """Return a root with one parameter, `p`."""
    return {"type": "object", "properties": {"p": schema}, **more}
