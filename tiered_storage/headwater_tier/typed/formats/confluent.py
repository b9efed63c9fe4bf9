"""Values framed with a schema id (Confluent's AbstractKafkaSchemaSerDe): a magic byte 0, the id in
4 bytes, for Protobuf the index of the message, then the payload.

The columns of a schema are added when its first record comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headwater_tier.typed.decoding import Decoded, RegisteredSchema, SchemaSource
from headwater_tier.typed.formats.column_types import NESTING_MAX, TOO_DEEP, nesting, widened_schema
from headwater_tier.typed.formats.misfit import NotFittingError, UnsupportedSchemaError, malformed
from headwater_tier.typed.formats.rows import FastRows, RowsDecoder
from headwater_tier.typed.formats.slots import Blobs, Slots
from headwater_tier.typed.formats.source_columns import Read, Source
from headwater_tier.typed.quarantine_reasons import Reason

MAGIC = 0
HEADER_BYTES = 5
INDEXES_MAX = 32
"""Levels of messages within messages that a frame may name."""
Key = tuple[int, tuple[int, ...]]
"""Schema id, and the indexes of a Protobuf message."""


@runtime_checkable
class FileSource(Protocol):
    """A schema of several messages: frames say which."""

    def at(self, indexes: tuple[int, ...]) -> Source:
        """The message. Raises UnsupportedSchemaError."""


SourceOf = Callable[[RegisteredSchema], Source | FileSource]


class ConfluentRows:
    """Reads framed rows (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, schema: pa.Schema, schemas: SchemaSource, source_of: SourceOf) -> None:
        """`source_of` parses a schema; it raises UnsupportedSchemaError."""
        self.schema = schema
        self._schemas = schemas
        self._source_of = source_of
        self._sources: dict[int, Source | FileSource | UnsupportedSchemaError] = {}
        self._readers: dict[Key, Read] = {}

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row. Raises NotFittingError, SchemaUnavailableError."""
        key, payload = self._split(blob)
        read = self._readers.get(key) or self._new_reader(key)
        return read(payload)

    def _split(self, blob: bytes) -> tuple[Key, bytes]:
        schema_id = id_of(blob)
        if schema_id is None:
            raise malformed(f"{len(blob)} bytes begin with no magic byte 0 and schema id")
        if isinstance(self._source(schema_id), FileSource):
            indexes, at = message_indexes(blob, HEADER_BYTES)
            return (schema_id, indexes), blob[at:]
        return (schema_id, ()), blob[HEADER_BYTES:]

    def _new_reader(self, key: Key) -> Read:
        schema_id, indexes = key
        source = self._source(schema_id)
        if isinstance(source, FileSource):
            try:
                source = source.at(indexes)
            except UnsupportedSchemaError as error:
                raise malformed(f"schema {schema_id}: {error}") from None
        schema = widened_schema(self.schema, source.columns)
        if nesting(schema) > NESTING_MAX:
            raise NotFittingError(Reason.DOES_NOT_FIT, f"schema {schema_id}: {TOO_DEEP}")
        if not schema.equals(self.schema):
            self.schema = schema
            self._readers.clear()
        read = source.reader(self.schema)
        self._readers[key] = read
        return read

    def source_met(self, schema_id: int) -> Source | None:
        """The source of a schema whose columns are there; None before its first record, and for a
        schema of several messages."""
        source = self._sources.get(schema_id)
        if (schema_id, ()) not in self._readers or isinstance(source, FileSource | Exception):
            return None
        return source

    def _source(self, schema_id: int) -> Source | FileSource:
        found = self._sources.get(schema_id)
        if found is None:
            # No registry gives out a negative id; some answer it as a path that is not there.
            registered = self._schemas.by_id(schema_id) if schema_id >= 0 else None
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


def message_indexes(blob: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """(the path of a Protobuf message, position behind it): a count and indexes as zigzag varints;
    one byte 0 stands for the first message. Raises NotFittingError."""
    count, at = _zigzag(blob, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise malformed(f"the frame names a message at {count} levels")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(blob, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(blob: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(blob) and shift < 35:
        byte = blob[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise malformed("the frame ends within the indexes of its message")


class ConfluentFast:
    """The kernel's way for frames whose schema has been met (`rows.FastRows`)."""

    def __init__(self, rows: ConfluentRows) -> None:
        self._rows = rows
        self._fasts: dict[int, FastRows | None] = {}

    def fill(self, blobs: Blobs, rows: Any, slots: Slots, schema: pa.Schema) -> None:
        """See the port."""
        begins = blobs.begins[rows]
        is_frame = blobs.ends[rows] - begins >= HEADER_BYTES
        rows, begins = rows[is_frame], begins[is_frame]
        is_frame = blobs.data[begins] == MAGIC
        rows, begins = rows[is_frame], begins[is_frame]
        ids = np.zeros(len(rows), np.int64)
        for at in range(1, HEADER_BYTES):
            ids = (ids << 8) | blobs.data[begins + at]
        payloads = Blobs(blobs.data, blobs.begins + HEADER_BYTES, blobs.ends, blobs.is_null)
        for schema_id in np.unique(ids):
            fast = self._fast(int(schema_id))
            if fast is not None:
                fast.fill(payloads, rows[ids == schema_id], slots, schema)

    def _fast(self, schema_id: int) -> FastRows | None:
        if schema_id not in self._fasts:
            source = self._rows.source_met(schema_id)
            if source is None:
                return None
            self._fasts[schema_id] = source.fast()
        return self._fasts[schema_id]


class ConfluentDecoder:
    """A decoder of framed values, which also tells their schema ids."""

    def __init__(self, rows: ConfluentRows) -> None:
        self._decoder = RowsDecoder(rows, ConfluentFast(rows))

    @property
    def schema(self) -> pa.Schema:
        """See the port."""
        return self._decoder.schema

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """See the port."""
        decoded = self._decoder.decode(blobs)
        ids = [id_of(blob.as_py()) for chunk in blobs.chunks for blob in chunk]
        return replace(decoded, schema_ids=pa.array(ids, pa.int32()))
