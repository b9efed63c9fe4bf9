"""`decoder_for`: the decoder that a topic declares (Kafka's `Serde` configs, for tables)."""

from __future__ import annotations

import pyarrow as pa

from headwater_tier.typed.decoding import (
    BlobDecoder,
    DeclarationError,
    DeclaredFormat,
    RegisteredSchema,
    SchemaSource,
)
from headwater_tier.typed.formats.column_types import (
    NESTING_MAX,
    TOO_DEEP,
    nesting,
    normal_schema,
    widened_schema,
)
from headwater_tier.typed.formats.confluent import ConfluentDecoder, ConfluentRows
from headwater_tier.typed.formats.connect_json import ConnectRows
from headwater_tier.typed.formats.json_fast import JsonFast
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.source_columns import Source, SourceRows
from headwater_tier.typed.formats.sources import declared_source, registered_source
from headwater_tier.typed.formats.strings import StringRows
from headwater_tier.typed.formats.variant import VariantRows

INFER = "infer"
REGISTRY = "registry"
SCHEMA_TYPES = {"json": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}


def decoder_for(declared: DeclaredFormat, known: pa.Schema, schemas: SchemaSource) -> BlobDecoder:
    """A decoder whose columns are those of `known`, the table's, and what it adds to them.

    Raises DeclarationError when the declaration cannot work, SchemaUnavailableError.
    """
    known = normal_schema(known)
    if declared.variant:
        return _variant(declared)
    if declared.format == "string":
        return RowsDecoder(StringRows())
    if declared.format == "confluent":
        return _confluent(declared, known, schemas)
    if declared.format == "json" and declared.schema in ("", INFER):
        if declared.envelope:
            return RowsDecoder(ConnectRows(known))
        return RowsDecoder(JsonRows(known, grows=True), JsonFast())
    if declared.format not in SCHEMA_TYPES:
        named = ", ".join([*SCHEMA_TYPES, "confluent"])
        raise DeclarationError(f"headwater.value.format is {declared.format!r}: use {named}")
    source = _source(declared, schemas)
    schema = widened_schema(known, source.columns)
    if nesting(schema) > NESTING_MAX:
        raise DeclarationError(f"headwater.value.schema: {TOO_DEEP}")
    rows = SourceRows(source, schema)
    return RowsDecoder(rows, source.fast())


def _variant(declared: DeclaredFormat) -> BlobDecoder:
    if declared.format != "json" or declared.schema not in ("", INFER) or declared.envelope:
        raise DeclarationError(
            "headwater.typed.variant is true: it takes json without schema and envelope; set "
            "headwater.value.format=json, or headwater.typed.variant=false"
        )
    return RowsDecoder(VariantRows())


def _confluent(declared: DeclaredFormat, known: pa.Schema, schemas: SchemaSource) -> BlobDecoder:
    if declared.schema not in ("", REGISTRY) and _subject(declared) is None:
        raise DeclarationError(
            f"headwater.value.schema is {declared.schema[:60]!r}: confluent values name their "
            "schemas themselves: leave it empty, or set registry"
        )
    return ConfluentDecoder(ConfluentRows(known, schemas, registered_source))


def _source(declared: DeclaredFormat, schemas: SchemaSource) -> Source:
    schema_type, subject = SCHEMA_TYPES[declared.format], _subject(declared)
    if declared.schema == REGISTRY:
        raise DeclarationError(
            f"headwater.value.schema is registry: {declared.format} values have no schema id, so "
            "name the subject as registry:SUBJECT; values with one are of format confluent"
        )
    if declared.schema in ("", INFER):
        raise DeclarationError(
            f"headwater.value.schema is {declared.schema!r}: only json is inferred; set it to a "
            "schema, or to registry:SUBJECT"
        )
    try:
        if subject is None:
            inline = RegisteredSchema(0, schema_type, declared.schema)
            return declared_source(inline, declared.message)
        registered = schemas.latest(subject)
        if registered is None:
            raise DeclarationError(f"headwater.value.schema: the registry has no subject {subject}")
        if registered.schema_type != schema_type:
            raise DeclarationError(
                f"headwater.value.format is {declared.format}, but subject {subject} is of type "
                f"{registered.schema_type}"
            )
        return declared_source(registered, declared.message)
    except UnsupportedSchemaError as error:
        raise DeclarationError(f"headwater.value.schema: {error}") from None


def _subject(declared: DeclaredFormat) -> str | None:
    prefix = f"{REGISTRY}:"
    return declared.schema.removeprefix(prefix) if declared.schema.startswith(prefix) else None
