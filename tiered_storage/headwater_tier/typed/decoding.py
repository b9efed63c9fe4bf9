"""The port between formats and tables: blobs of a chunk of records in, columns and misfits out.

A decoder is what Kafka calls a Deserializer, for a column of blobs at once. Integers become bigint,
floats double, unsigned 64-bit integers decimal(20, 0), timestamps UTC: a wider writer's schema is
then no change of the table. Decoding is deterministic: the same blobs with the same schemas give
the same columns and the same misfits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

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


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` has a row per blob, in order: nulls in each column for a null blob or a misfit.

    Its schema is the decoder's after this chunk: columns may have been added at the end, at the
    top or in a struct, never changed or removed. `schema_ids` are those of confluent frames
    (int32, null without); None for other formats.
    """

    columns: pa.Table
    misfits: tuple[Misfit, ...]
    schema_ids: pa.Array | None = None


class BlobDecoder(Protocol):
    """Decodes keys or values of one topic. Not thread-safe."""

    @property
    def schema(self) -> pa.Schema:
        """The columns by now, in the table's (wide) types; empty before the first inferred one."""

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """Decode a binary column. Raises SchemaUnavailableError, and nothing for bad blobs."""


@dataclass(frozen=True, slots=True)
class DeclaredFormat:
    """What a topic's configs declare of its values, or of its keys.

    `format`: json, avro, protobuf, confluent, string. `schema`: an inline schema, `registry`,
    `registry:SUBJECT` or `infer`. `variant` keeps a JSON value whole, in one VARIANT column.
    """

    format: str
    schema: str = ""
    message: str = ""
    """The name of a Protobuf message; empty: the first one of the schema."""
    variant: bool = False
    envelope: str = ""
    """`debezium`, or empty."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry. `schema_type`: AVRO, JSON or PROTOBUF, as in Confluent's REST."""

    schema_id: int
    schema_type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """(name, text) of each schema that it refers to, referred ones first."""


class SchemaSource(Protocol):
    """Where a decoder finds schemas by id: the registry, or a double of it."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """The schema; None if there is none. Raises SchemaUnavailableError."""

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The subject's latest schema; None if there is none. Raises SchemaUnavailableError."""


DecoderFor = Callable[[DeclaredFormat, pa.Schema, SchemaSource], BlobDecoder]
"""A factory of decoders: (declared format, known columns, registry)."""


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


class DeclarationError(HeadwaterError):
    """A topic's declaration cannot work, as of a schema that does not parse. Names key, remedy."""
