"""Keys and values in JSON: as base64, as JSON, as text, or by a schema (`schemas`).

`v2_produce` and `v3_records` report the error of each record, which `sending` collects.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import (
    encoded,
    from_base64,
    is_utf8,
    parsed,
    shown,
    to_base64,
    unprocessable,
)
from headwater_gateway.rest.kafka_errors import INVALID_PAYLOAD, JSON_CONVERSION

KIND_PREFIX, KIND_SUFFIX = "application/vnd.kafka.", ".v2+json"


class Format(Enum):
    """The embedded formats of Kafka's REST proxy; names as in requests."""

    BINARY = "binary"
    JSON = "json"
    STRING = "string"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def has_schema(self) -> bool:
        """True where a registry keeps the schema."""
        return self in (Format.AVRO, Format.JSONSCHEMA, Format.PROTOBUF)

    @property
    def media_type(self) -> str:
        """Of v2's records in this format."""
        return f"{KIND_PREFIX}{self.value}{KIND_SUFFIX}"

    @property
    def schema_type(self) -> str:
        """The registry's name of the schema language."""
        return {Format.JSONSCHEMA: "JSON"}.get(self, self.value.upper())


V2_FORMATS = tuple(f for f in Format if f is not Format.STRING)


def format_of_kind(kind: str, default: Format | None = None) -> Format | None:
    """The format of a v2 media type; `default` for a kind that names no format."""
    name = kind.partition(";")[0].strip().lower()
    found = next((f for f in V2_FORMATS if f.media_type == name), None)
    return default if found is None else found


def format_named(text: str) -> Format:
    """A format by its name. Raises GatewayError (422)."""
    try:
        return Format(text.lower())
    except ValueError:
        names = ", ".join(f.value for f in Format)
        raise unprocessable(f"format {shown(text)}: give one of {names}") from None


def encode_plain(kind: Format, value: Any, where: str) -> bytes | None:
    """A key or value without a schema; null stands for none. Raises GatewayError (422)."""
    if value is None:
        return None
    if kind is Format.BINARY:
        return from_base64(value, where)
    if kind is Format.STRING:
        if not isinstance(value, str) or not is_utf8(value):
            raise unprocessable(f"{where} is {shown(value)}: give a string", INVALID_PAYLOAD)
        return value.encode()
    return encoded(value)


def decode_plain(kind: Format, blob: bytes | None, where: str) -> Any:
    """A key or value for a client. Raises GatewayError (422) that says where it stands."""
    if blob is None:
        return None
    if kind is Format.BINARY:
        return to_base64(blob)
    try:
        return parsed(blob)
    except GatewayError as error:
        raise unprocessable(
            f"Conversion of JSON to Object failed: {where}: {error}", JSON_CONVERSION
        ) from error


def size_in_json(value: Any) -> int:
    """How long a key or value is in a reply, about."""
    if isinstance(value, str):
        return len(value)
    return 0 if value is None else len(json.dumps(value))
