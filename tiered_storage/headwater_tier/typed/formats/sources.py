"""The parser of a writer's schema by its type: AVRO, JSON or PROTOBUF, as in Confluent's REST."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headwater.extras import install_hint
from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.formats.avro_rows import AvroSource
from headwater_tier.typed.formats.confluent import FileSource
from headwater_tier.typed.formats.json_schema import JsonSchemaSource
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.source_columns import Source

if TYPE_CHECKING:
    from headwater_tier.typed.formats.protobuf_schema import ProtobufFile

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_PROTOBUF_MODULE = "headwater_tier.typed.formats.protobuf_schema"
"""Loaded for Protobuf only: its libraries are an extra of their own."""


def registered_source(schema: RegisteredSchema) -> Source | FileSource:
    """The schema of framed records. Raises UnsupportedSchemaError."""
    if schema.schema_type == PROTOBUF:
        return _protobuf_file(schema)
    return declared_source(schema, "")


def declared_source(schema: RegisteredSchema, message: str) -> Source:
    """The schema of records without a frame; `message` is Protobuf's. Raises
    UnsupportedSchemaError."""
    try:
        return _parsed(schema, message)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        detail = f"the schema is not understood: {type(error).__name__}: {error}"
        raise UnsupportedSchemaError(detail) from None


def _parsed(schema: RegisteredSchema, message: str) -> Source:
    if schema.schema_type == AVRO:
        return AvroSource(schema.text, schema.references)
    if schema.schema_type == JSON:
        return JsonSchemaSource(schema.text, schema.references)
    if schema.schema_type == PROTOBUF:
        return _protobuf_file(schema).message(message)
    raise UnsupportedSchemaError(f"schema type {schema.schema_type!r} is not known")


def _protobuf_file(schema: RegisteredSchema) -> ProtobufFile:
    try:
        module = importlib.import_module(_PROTOBUF_MODULE)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "google":
            raise
        raise UnsupportedSchemaError(f"Protobuf: {install_hint('schemas')}") from None
    file: ProtobufFile = module.ProtobufFile(schema.text, schema.references)
    return file
