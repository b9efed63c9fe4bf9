"""The port between the REST routes and schema languages. Pure: a serde is made of one schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from headwater.errors import HeadwaterError


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry, with the texts that it refers to: (name, text), inner ones first."""

    schema_id: int
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SerdeError(HeadwaterError):
    """A value that does not fit the schema, or a schema that cannot be used; says why."""


class Serde(Protocol):
    """One schema."""

    def encode(self, value: Any) -> bytes:
        """The payload after the schema's id. Raises SerdeError."""
        ...

    def decode(self, payload: bytes) -> Any:
        """The JSON of a payload. Raises SerdeError."""
        ...
