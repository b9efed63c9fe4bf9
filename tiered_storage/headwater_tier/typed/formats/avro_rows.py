"""Rows of Avro data, one at a time: a raw datum, or Avro's single-object encoding."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from headwater_tier.typed.formats.avro_check import AvroCheck
from headwater_tier.typed.formats.avro_fast import AvroFast
from headwater_tier.typed.formats.avro_schema import (
    AvroSchema,
    check_size,
    column_fit,
    column_type,
    kind_of,
    record_fit,
)
from headwater_tier.typed.formats.column_types import EMPTY, VALUE_COLUMN
from headwater_tier.typed.formats.misfit import malformed
from headwater_tier.typed.formats.source_columns import Read

UNREADABLE = (EOFError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError,
              MemoryError, StopIteration)  # fmt: skip
"""What fastavro raises within bytes that are no datum."""
SINGLE_OBJECT_MARK = b"\xc3\x01"
"""Then the fingerprint of the schema in 8 bytes."""


class AvroSource:
    """A writer's Avro schema (`headwater_tier.typed.formats.source_columns.Source`)."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """Raises UnsupportedSchemaError."""
        self.schema = AvroSchema(text, references)
        check_size(self.schema)
        kind = column_type(self.schema, self.schema.parsed, "")
        self.is_record = kind_of(self.schema.resolved(self.schema.parsed)) == "record"
        if kind is None:
            self.columns = EMPTY
        elif self.is_record:
            self.columns = pa.schema(list(kind))
        else:
            self.columns = pa.schema([pa.field(VALUE_COLUMN, kind)])
        self._check = AvroCheck(self.schema)
        self._mark = SINGLE_OBJECT_MARK + self.schema.fingerprint

    def fast(self) -> AvroFast | None:
        """See the port."""
        return AvroFast(self.schema) if self.is_record else None

    def reader(self, schema: pa.Schema) -> Read:
        """See the port."""
        root = self.schema.resolved(self.schema.parsed)
        if self.is_record:
            columns = {field.name: field.type for field in schema}
            fit = record_fit(self.schema, root, columns, "")
            return lambda blob: fit(self.datum(blob))
        if not len(self.columns):
            return lambda blob: dict.fromkeys((), self.datum(blob))
        kind = schema.field(VALUE_COLUMN).type
        fit_value = column_fit(self.schema, root, kind, VALUE_COLUMN)
        return lambda blob: {VALUE_COLUMN: fit_value(self.datum(blob))}

    def datum(self, blob: bytes) -> Any:
        """The value as fastavro has it. Raises NotFittingError."""
        if not self._check.is_datum(blob):
            if not (blob.startswith(self._mark) and self._check.is_datum(blob[len(self._mark) :])):
                raise malformed(f"{len(blob)} bytes are no datum of the Avro schema")
            blob = blob[len(self._mark) :]
        return fastavro.schemaless_reader(
            io.BytesIO(blob), self.schema.parsed, None, return_named_type=True
        )

    def fault_at(self, blob: bytes) -> int | None:
        """Where reading a blob that is no datum ends: the byte that does not fit, or the first one
        that is left over; None for a datum."""
        if self._check.is_datum(blob):
            return None
        source = io.BytesIO(blob)
        try:
            fastavro.schemaless_reader(source, self.schema.parsed, None, return_named_type=True)
        except UNREADABLE:
            return min(source.tell(), len(blob))
        return source.tell()
