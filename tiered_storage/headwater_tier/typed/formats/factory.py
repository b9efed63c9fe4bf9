"""`decoder_for`: the decoder that a topic declares (Kafka's `Serde` configs, for tables)."""

from __future__ import annotations

import pyarrow as pa

from headwater_tier.typed.decoding import (
    BlobDecoder,
    DeclarationError,
    DeclaredFormat,
    SchemaSource,
)
from headwater_tier.typed.formats.columns import normal_schema
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.strings import StringRows


def decoder_for(declared: DeclaredFormat, known: pa.Schema, schemas: SchemaSource) -> BlobDecoder:
    """A decoder whose columns are those of `known`, the table's, and what it adds to them.

    Raises DeclarationError when the declaration cannot work, SchemaUnavailableError.
    """
    known = normal_schema(known)
    if declared.format == "string":
        return RowsDecoder(StringRows())
    if declared.format == "json" and declared.schema in ("", "infer"):
        return RowsDecoder(JsonRows(known, grows=True))
    raise DeclarationError(
        f"headwater.value.format is {declared.format!r}: use json, avro, protobuf, confluent"
    )
