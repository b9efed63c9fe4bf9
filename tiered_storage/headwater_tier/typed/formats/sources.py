"""The parser of a writer's schema by its type: AVRO, JSON or PROTOBUF, as in Confluent's REST."""

from __future__ import annotations

from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.formats.avro_rows import AvroSource
from headwater_tier.typed.formats.json_schema import JsonSchemaSource
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.source_columns import Source

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


def registered_source(schema: RegisteredSchema) -> Source:
    """The schema of framed records. Raises UnsupportedSchemaError."""
    return declared_source(schema, "")


def declared_source(schema: RegisteredSchema, _message: str) -> Source:
    """The schema of records without a frame. Raises UnsupportedSchemaError."""
    if schema.schema_type == AVRO:
        return AvroSource(schema.text, schema.references)
    if schema.schema_type == JSON:
        return JsonSchemaSource(schema.text, schema.references)
    raise UnsupportedSchemaError(f"schema type {schema.schema_type!r} is not known")
