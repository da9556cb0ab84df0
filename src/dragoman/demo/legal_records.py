"""The sample statutes, cases and document templates, as typed records read from the package's data files.

Every record is invented and says so. This module never searches and never knows of MCP.
"""

import re
from datetime import date
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class Source(BaseModel):
    """Where a record comes from."""

    model_config = ConfigDict(frozen=True)

    title: Annotated[str, Field(description="The sample law, court or collection")]
    locator: Annotated[str, Field(description="The place in the source, such as `Art. 12`")]
    url: Annotated[str, Field(description="An address of the form `sample://legal/...`")]


class Record(BaseModel):
    """What every sample record has."""

    model_config = ConfigDict(frozen=True)

    title: str
    title_zh: Annotated[str, Field(description="The title in Chinese")]
    text: str
    keywords: list[str]
    source: Source
    updated: Annotated[date, Field(description="The day on which the record was last revised")]
    sample: Annotated[Literal[True], Field(description="The record is invented; it is no real law")]

    @property
    def key(self) -> str:
        """Name the record within its kind."""
        return self.source.url

    @property
    def body(self) -> str:
        """Give the running text that a search looks through."""
        return self.text


class Statute(Record):
    """One article of a sample law."""

    law: Annotated[str, Field(description="Short name of the law, such as `labour-standards`")]
    law_title: str
    law_title_zh: str
    article: str

    @property
    def key(self) -> str:
        """Name the article within its law."""
        return f"{self.law}/{self.article}"


class Case(Record):
    """One decision of a sample court."""

    case_id: str
    court: str
    court_zh: str
    decided: date
    holding: Annotated[str, Field(description="What the court decided, in one sentence")]
    cites: Annotated[list[str], Field(description="Articles applied, as `law/article`")]

    @property
    def key(self) -> str:
        """Name the case."""
        return self.case_id

    @property
    def body(self) -> str:
        """Give the facts and the holding."""
        return f"{self.text}\n{self.holding}"


class Template(Record):
    """A sample document with named placeholders, written `{{name}}`."""

    template_id: str

    @property
    def key(self) -> str:
        """Name the template."""
        return self.template_id

    @property
    def placeholders(self) -> list[str]:
        """List the names to fill in, in the order of the document."""
        return list(dict.fromkeys(_PLACEHOLDER.findall(self.text)))

    def fill(self, values: dict[str, str]) -> str:
        """Put `values` in the place of their placeholders, in one pass: a value is never expanded itself.

        Raises:
            KeyError: If a placeholder has no value.
        """
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.text)


def load_statutes() -> list[Statute]:
    """Read the sample articles."""
    return TypeAdapter(list[Statute]).validate_json(_read("statutes.json"))


def load_cases() -> list[Case]:
    """Read the sample decisions."""
    return TypeAdapter(list[Case]).validate_json(_read("cases.json"))


def load_templates() -> list[Template]:
    """Read the sample documents."""
    return TypeAdapter(list[Template]).validate_json(_read("templates.json"))


def _read(name: str) -> bytes:
    return files("dragoman.demo").joinpath("data", name).read_bytes()
