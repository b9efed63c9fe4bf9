"""Values framed with a schema id (Confluent's AbstractKafkaSchemaSerDe): a magic byte 0, the id in
4 bytes, for Protobuf the index of the message, then the payload.

The columns of a schema are added when its first record comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater_tier.typed.decoding import Decoded, Reason, RegisteredSchema, SchemaSource
from headwater_tier.typed.formats.columns import widened_schema
from headwater_tier.typed.formats.misfit import NotFittingError, UnsupportedSchemaError, malformed
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.source_columns import Read, Source

MAGIC = 0
HEADER_BYTES = 5
SourceOf = Callable[[RegisteredSchema], Source]


class ConfluentRows:
    """Reads framed rows (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, schema: pa.Schema, schemas: SchemaSource, source_of: SourceOf) -> None:
        """`source_of` parses a schema; it raises UnsupportedSchemaError."""
        self.schema = schema
        self._schemas = schemas
        self._source_of = source_of
        self._sources: dict[int, Source | UnsupportedSchemaError] = {}
        self._readers: dict[int, Read] = {}

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row. Raises NotFittingError, SchemaUnavailableError."""
        schema_id = id_of(blob)
        if schema_id is None:
            raise malformed(f"{len(blob)} bytes begin with no magic byte 0 and schema id")
        read = self._readers.get(schema_id) or self._new_reader(schema_id)
        return read(blob[HEADER_BYTES:])

    def add_columns(self, schema_id: int) -> Source:
        """The schema's source; the columns that it asks for are there then.

        Raises NotFittingError, SchemaUnavailableError.
        """
        source = self._source(schema_id)
        schema = widened_schema(self.schema, source.columns)
        if not schema.equals(self.schema):
            self.schema = schema
            self._readers.clear()
        return source

    def _new_reader(self, schema_id: int) -> Read:
        read = self.add_columns(schema_id).reader(self.schema)
        self._readers[schema_id] = read
        return read

    def _source(self, schema_id: int) -> Source:
        found = self._sources.get(schema_id)
        if found is None:
            registered = self._schemas.by_id(schema_id)
            if registered is None:
                detail = f"the registry has no schema {schema_id}"
                raise NotFittingError(Reason.UNKNOWN_SCHEMA, detail)
            try:
                found = self._source_of(registered)
            except UnsupportedSchemaError as error:
                found = error
            self._sources[schema_id] = found
        if isinstance(found, UnsupportedSchemaError):
            raise NotFittingError(Reason.DOES_NOT_FIT, f"schema {schema_id}: {found}")
        return found


def id_of(blob: bytes | None) -> int | None:
    """The schema id of a frame; None if it is no frame."""
    if blob is None or len(blob) < HEADER_BYTES or blob[0] != MAGIC:
        return None
    return int.from_bytes(blob[1:HEADER_BYTES], "big", signed=True)


class ConfluentDecoder:
    """A decoder of framed values, which also tells their schema ids."""

    def __init__(self, rows: ConfluentRows) -> None:
        self._decoder = RowsDecoder(rows)

    @property
    def schema(self) -> pa.Schema:
        """See the port."""
        return self._decoder.schema

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """See the port."""
        decoded = self._decoder.decode(blobs)
        ids = [id_of(blob.as_py()) for chunk in blobs.chunks for blob in chunk]
        return replace(decoded, schema_ids=pa.array(ids, pa.int32()))
