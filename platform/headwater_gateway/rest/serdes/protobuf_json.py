"""Protobuf: JSON in Protobuf's own mapping; the payload names the message by its indexes."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from headwater_gateway.rest.serdes.port import SerdeError
from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.formats.confluent import message_indexes
from headwater_tier.typed.formats.misfit import NotFittingError, UnsupportedSchemaError
from headwater_tier.typed.formats.protobuf_compiler import SCHEMA_FILE
from headwater_tier.typed.formats.protobuf_files import descriptor_files

SHOWN_CHARS = 200
FIRST_MESSAGE = b"\x00"
"""Confluent's short form of the indexes [0]."""


class ProtobufSerde:
    """One .proto file; JSON is written as its first message."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_files(schema.text, schema.references):
                self._pool.Add(file)
            self._file = self._pool.FindFileByName(SCHEMA_FILE)
        except (UnsupportedSchemaError, TypeError, KeyError) as error:
            raise SerdeError(f"no Protobuf schema: {str(error)[:SHOWN_CHARS]}") from error

    def encode(self, value: Any) -> bytes:
        """See the port."""
        message = self._message((0,))
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
        except (json_format.ParseError, TypeError, AttributeError, ValueError) as error:
            raise SerdeError(str(error)[:SHOWN_CHARS]) from error
        blob: bytes = message.SerializeToString()
        return FIRST_MESSAGE + blob

    def decode(self, payload: bytes) -> Any:
        """See the port."""
        try:
            indexes, at = message_indexes(payload, 0)
            message = self._message(indexes)
            message.ParseFromString(payload[at:])
            return json_format.MessageToDict(
                message, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except (DecodeError, NotFittingError, json_format.Error, TypeError, ValueError) as error:
            raise SerdeError(str(error)[:SHOWN_CHARS]) from error

    def _message(self, indexes: tuple[int, ...]) -> Any:
        kinds = list(self._file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(kinds):
                raise SerdeError(f"the schema has no message {list(indexes)}")
            found = kinds[index]
            kinds = list(found.nested_types)
        if found is None:
            raise SerdeError("the schema has no message")
        return message_factory.GetMessageClass(found)()
