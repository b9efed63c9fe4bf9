"""The port between the registry and schema languages (`SchemaProvider`, `ParsedSchema`).

Pure: text in, text and problems out. Parsed schemas are immutable, and may be used by any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import HeadwaterError


class SchemaSyntaxError(HeadwaterError):
    """A text that is no schema of its language; the message says why and where."""


@dataclass(frozen=True, slots=True)
class NamedText:
    """A schema that another one refers to, by the name that it is referred to by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a reader cannot read what a writer wrote. In `text`, {reader} and {writer} stand for
    which of the two is the new schema."""

    kind: str
    text: str
    info: str = ""

    def message(self, reader: str, writer: str) -> str:
        """As Confluent's replies have it; `reader` and `writer` are `new` and `old`."""
        said = self.text.replace("{reader}", reader).replace("{writer}", writer)
        more = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.kind}', description:\"{said}\"{more}}}"


class ParsedSchema(Protocol):
    """A schema of some language."""

    @property
    def text(self) -> str:
        """The canonical text: what is stored, and given out."""
        ...

    def normalized(self) -> ParsedSchema:
        """The same schema with the parts whose order means nothing in one order."""
        ...

    def is_same(self, other: ParsedSchema) -> bool:
        """True if the two mean the same, for a lookup by schema."""
        ...

    def problems_reading(self, writer: ParsedSchema) -> list[Problem]:
        """Why this schema cannot read the data of another one; empty: it can."""
        ...

    def formatted(self, form: str) -> str:
        """The text in a form that a client asks for by `format`; unknown ones: the text itself."""
        ...


class SchemaFormat(Protocol):
    """A schema language."""

    def parse(self, text: str, references: Sequence[NamedText]) -> ParsedSchema:
        """Raises SchemaSyntaxError. `references`: those referred to first, each name once."""
        ...
