"""Protobuf: .proto texts, and descriptors in base64 as Confluent's Python client sends them.

The only module here that imports `google.protobuf`; the tier's compiler runs protoc.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.message import DecodeError

from headwater_gateway.registry.formats.port import (
    NamedText,
    ParsedSchema,
    Problem,
    SchemaSyntaxError,
)
from headwater_gateway.registry.formats.protobuf_rules import SchemaTypes, reading_problems
from headwater_gateway.registry.formats.protobuf_text import ProtoText, UnprintableError
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.protobuf_compiler import SCHEMA_FILE, compiled_proto

SERIALIZED = "serialized"
_UNINTERPRETED = "uninterpreted_option"
_HIDDEN = frozenset({"map_entry", _UNINTERPRETED})
_ENUM, _STRING, _BYTES, _BOOL, _MESSAGE = 14, 9, 12, 8, 11


class ProtobufFormat:
    """Protobuf."""

    def parse(self, text: str, references: Sequence[NamedText]) -> ParsedSchema:
        """Raises SchemaSyntaxError."""
        named = {r.name: _proto_text(r.text) for r in references}
        source = _proto_text(text)
        try:
            compiled = compiled_proto(source, tuple(named.items()))
        except UnsupportedSchemaError as error:
            raise SchemaSyntaxError(str(error)) from error
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled).file
        return ProtobufSchema(source, _types(files))


class ProtobufSchema:
    """A parsed .proto file."""

    def __init__(self, text: str, types: SchemaTypes) -> None:
        self._text = text
        self._types = types

    @property
    def text(self) -> str:
        """The text as it was given, or as it was written from a descriptor."""
        return self._text

    def normalized(self) -> ParsedSchema:
        """Written from the descriptor: no comments, fields by number, imports by name."""
        return ProtobufSchema(_written(self._types.file, sort=True), self._types)

    def is_same(self, other: ParsedSchema) -> bool:
        """True for equal descriptors: comments and white space do not matter."""
        return isinstance(other, ProtobufSchema) and other._types.file == self._types.file

    def problems_reading(self, writer: ParsedSchema) -> list[Problem]:
        """By Confluent's rules."""
        assert isinstance(writer, ProtobufSchema)
        return reading_problems(self._types, writer._types)

    def formatted(self, form: str) -> str:
        """`serialized`: the descriptor in base64."""
        if form != SERIALIZED:
            return self._text
        blob: bytes = self._types.file.SerializeToString()
        return base64.b64encode(blob).decode()


def _proto_text(text: str) -> str:
    """The .proto text; written from the descriptor if the text is one in base64."""
    try:
        blob = base64.b64decode(text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(blob)
    except (binascii.Error, ValueError, DecodeError):
        return text
    return _written(file, sort=False)


def _written(file: Any, *, sort: bool) -> str:
    try:
        return ProtoText(_options_text, sort=sort).file(file)
    except (UnprintableError, KeyError, IndexError, ValueError) as error:
        raise SchemaSyntaxError(f"the descriptor cannot be written as text: {error}") from error


def _types(files: Sequence[Any]) -> SchemaTypes:
    types: dict[str, tuple[Any, Any]] = {}
    own = None
    for file in files:
        if file.name == SCHEMA_FILE:
            own = file
        prefix = f".{file.package}" if file.package else ""
        for enum in file.enum_type:
            types[f"{prefix}.{enum.name}"] = (enum, file)
        for message in file.message_type:
            _add(types, f"{prefix}.{message.name}", message, file)
    assert own is not None, "protoc writes the file that it was given"
    return SchemaTypes(own, types)


def _add(types: dict[str, tuple[Any, Any]], name: str, message: Any, file: Any) -> None:
    types[name] = (message, file)
    for nested in message.nested_type:
        _add(types, f"{name}.{nested.name}", nested, file)
    for enum in message.enum_type:
        types[f"{name}.{enum.name}"] = (enum, file)


def _options_text(options: Any) -> list[str]:
    """`name = value` of each option that is set."""
    lines = []
    for field, value in options.ListFields():
        if field.name in _HIDDEN:
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        values = value if _is_repeated(value) else [value]
        lines += [f"{name} = {_option_value(field, v)}" for v in values]
    return lines


def _is_repeated(value: Any) -> bool:
    return not isinstance(value, str | bytes | int | float) and hasattr(value, "append")


def _option_value(field: Any, value: Any) -> str:
    if field.type == _ENUM:
        return str(field.enum_type.values_by_number[value].name)
    if field.type == _STRING:
        return json.dumps(value)
    if field.type == _BYTES:
        return json.dumps(value.decode("latin-1"))
    if field.type == _BOOL:
        return "true" if value else "false"
    if field.type == _MESSAGE:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    return str(value)
