"""The port between formats and tables: blobs of a chunk of records in, columns and misfits out.

A decoder is what Kafka calls a Deserializer, for a column of blobs at once. Integers become bigint,
floats double, unsigned 64-bit integers decimal(20, 0), timestamps UTC: a wider writer's schema is
then no change of the table. Decoding is deterministic: the same blobs with the same schemas give
the same columns and the same misfits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater_tier.typed.quarantine_reasons import Misfit


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


class DeclarationError(HeadwaterError):
    """A topic's declaration cannot work, as of a schema that does not parse. Names key, remedy."""
