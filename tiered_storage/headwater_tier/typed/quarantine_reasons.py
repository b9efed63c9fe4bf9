"""Why a record goes to the quarantine table, and when typing waits instead. Pure.

What is wrong with a record is a `Misfit`. A registry that does not answer is not: the record may
be right, so typing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headwater.errors import HeadwaterError

DETAIL_BYTES_MAX = 1024


class Reason(Enum):
    """Why a record is in the quarantine table, by the words of its column `reason`."""

    MALFORMED = "malformed"
    """The bytes are not of the declared format; also invalid UTF-8."""
    UNKNOWN_SCHEMA = "unknown schema"
    """The frame names a schema id that the registry does not have."""
    DOES_NOT_FIT = "does not fit"
    """A field's type is not the column's, and no widening holds both."""
    OUT_OF_RANGE = "out of range"
    """A number that the column's type cannot hold exactly."""
    DUPLICATE_KEY = "duplicate key"
    """A JSON object names a key twice."""
    NO_KEY = "no key"
    """A record without a key, or whose key has no equality, where the table has a row per key."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A blob that does not fit. `row` counts from 0 in the given column; `detail` is <= 1 KiB."""

    row: int
    reason: Reason
    detail: str


class SchemaUnavailableError(HeadwaterError):
    """The registry does not answer: typing waits, nothing goes to quarantine. Names its URL."""


class LookupsSpentError(SchemaUnavailableError):
    """So many ids without a schema were asked for in one call that the rest waits.

    `row` is the first one that waits, counted as in `Misfit`; the rows before it are decoded.
    """

    def __init__(self, schema_id: int, row: int | None = None) -> None:
        self.schema_id = schema_id
        self.row = row
        super().__init__(f"schema {schema_id} is not asked for in this turn: too many are unknown")
