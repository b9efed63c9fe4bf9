"""The port between the REST routes and schema languages. Pure: a serde is made of one schema."""

from __future__ import annotations

from typing import Any, Protocol

from headwater.errors import HeadwaterError


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
