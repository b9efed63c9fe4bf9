"""Avro: JSON in Avro's JSON encoding, where a union's value names its branch."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from headwater_gateway.rest.serdes.port import SerdeError
from headwater_tier.serializers.avro_bounds import AvroBounds
from headwater_tier.typed.decoding import RegisteredSchema

SHOWN_CHARS = 200


class AvroSerde:
    """One Avro schema."""

    def __init__(self, schema: RegisteredSchema) -> None:
        try:
            named: dict[str, Any] = {}
            for _name, text in schema.references:
                fastavro.parse_schema(json.loads(text), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
            self._bounds = AvroBounds(self._schema, named)
        except (SchemaParseException, UnknownType, ValueError, RecursionError) as error:
            raise SerdeError(f"no Avro schema: {str(error)[:SHOWN_CHARS]}") from error

    def encode(self, value: Any) -> bytes:
        """See the port."""
        try:
            text = io.StringIO(json.dumps(value))
            datum = next(iter(fastavro.json_reader(text, self._schema)))
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._schema, datum, strict=False)
            return out.getvalue()
        except Exception as error:
            raise SerdeError(_told(error)) from error

    def decode(self, payload: bytes) -> Any:
        """See the port."""
        blob = io.BytesIO(payload)
        try:
            self._bounds.check(payload)
            datum = fastavro.schemaless_reader(blob, self._schema, None, return_named_type=True)
            if blob.read(1):
                raise ValueError("bytes are left over")
            out = io.StringIO()
            fastavro.json_writer(out, self._schema, [datum])
            return json.loads(out.getvalue())
        except Exception as error:
            raise SerdeError(_told(error)) from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:SHOWN_CHARS]}"
