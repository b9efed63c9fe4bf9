"""Protobuf messages as columns (Confluent's ProtobufData): types, and functions from messages.

Fields without presence have their default, never null. A oneof is a nullable column per member.
The one adapter of protobuf.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError

from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    COLUMNS_MAX,
    DOUBLE,
    STRING,
    TIMESTAMP,
    UNSIGNED,
    column_name,
    list_of,
    lookup_key,
)
from headwater_tier.typed.formats.json_fit import BIGINT_MAX, BIGINT_MIN, Fit
from headwater_tier.typed.formats.misfit import (
    UnsupportedSchemaError,
    does_not_fit,
    malformed,
    out_of_range,
)
from headwater_tier.typed.formats.protobuf_files import descriptor_files
from headwater_tier.typed.formats.protobuf_wire import wire_fault
from headwater_tier.typed.formats.source_columns import Read, crossing, refusal

Descriptor = Any
"""Of a message, or of a field: protobuf's own classes have no types."""
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    _FIELD.TYPE_DOUBLE: DOUBLE,
    _FIELD.TYPE_FLOAT: DOUBLE,
    _FIELD.TYPE_UINT64: UNSIGNED,
    _FIELD.TYPE_FIXED64: UNSIGNED,
    _FIELD.TYPE_BOOL: BOOLEAN,
    _FIELD.TYPE_STRING: STRING,
    _FIELD.TYPE_BYTES: BINARY,
    _FIELD.TYPE_ENUM: STRING,
}
"""Other types but messages are integers within 64 bits."""
_INSTANT = "google.protobuf.Timestamp"
_FREE = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPERS = tuple(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufFile:
    """A compiled .proto text, whose messages are found by name or by Confluent's indexes."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """Raises UnsupportedSchemaError."""
        self.pool = descriptor_pool.DescriptorPool()
        files = descriptor_files(text, tuple(references))
        try:
            for file in files:
                self.pool.AddSerializedFile(file.SerializeToString())
            self._file = files[-1]
            self.pool.FindFileByName(self._file.name)
        except (TypeError, KeyError) as error:
            raise UnsupportedSchemaError(f"no Protobuf schema: {error}") from None
        self._by_indexes: dict[tuple[int, ...], ProtobufSource] = {}

    def message(self, name: str = "") -> ProtobufSource:
        """The message of this name, with or without its package; empty: the first.

        Raises UnsupportedSchemaError.
        """
        if not name:
            return self.at((0,))
        prefix = f"{self._file.package}." if self._file.package else ""
        for full in (name, prefix + name):
            try:
                return ProtobufSource(self.pool, self.pool.FindMessageTypeByName(full))
            except KeyError:
                continue
        named = ", ".join(message.name for message in self._file.message_type)
        raise UnsupportedSchemaError(f"no message {name!r} in the schema: it has {named[:200]}")

    def at(self, indexes: tuple[int, ...]) -> ProtobufSource:
        """The message at a path of indexes into nested messages. Raises UnsupportedSchemaError."""
        found = self._by_indexes.get(indexes)
        if found is None:
            messages, name = self._file.message_type, self._file.package
            for index in indexes:
                if not 0 <= index < len(messages):
                    raise UnsupportedSchemaError(f"the schema has no message {list(indexes)}")
                name = f"{name}.{messages[index].name}" if name else messages[index].name
                messages = messages[index].nested_type
            found = ProtobufSource(self.pool, self.pool.FindMessageTypeByName(name))
            self._by_indexes[indexes] = found
        return found


class ProtobufSource:
    """A message as a row (`headwater_tier.typed.formats.source_columns.Source`)."""

    def __init__(self, pool: Any, descriptor: Descriptor) -> None:
        """Raises UnsupportedSchemaError."""
        self._columns = _Columns(pool, math.inf)  # of any number of readers
        self._descriptor = descriptor
        self._new = message_factory.GetMessageClass(descriptor)
        kind = _Columns(pool, 10 * COLUMNS_MAX).struct(descriptor, (descriptor.full_name,))
        self.columns = pa.schema([] if kind is None else list(kind))

    def fast(self) -> None:
        """See the port."""
        return

    def fault_at(self, blob: bytes) -> int | None:
        """Where the fields of a blob that is no message end; None if all of them are whole."""
        return wire_fault(blob)

    def reader(self, schema: pa.Schema) -> Read:
        """See the port."""
        columns = {field.name: field.type for field in schema}
        name = self._descriptor.full_name
        fit = self._columns.message_fit(self._descriptor, columns, "", (name,))
        parse = self._new.FromString

        def read(blob: bytes) -> dict[str, Any]:
            try:
                row: dict[str, Any] = fit(parse(blob))
            except (DecodeError, EncodeError, UnicodeDecodeError) as error:
                raise malformed(f"no message {name}: {error}") from None
            return row

        return read


class _Columns:
    """Types and functions for the messages of one pool."""

    def __init__(self, pool: Any, fields_max: float) -> None:
        """`fields_max`: so many are looked at, or the schema is refused."""
        self._pool = pool
        self._fields_max = fields_max
        self._spent = 0

    def struct(self, message: Descriptor, above: tuple[str, ...]) -> pa.DataType | None:
        """The columns of a message; None if it has none."""
        fields: dict[str, pa.Field] = {}
        for field in message.fields:
            kind = self._field_type(field, above)
            if kind is not None:
                name = column_name(field.name)
                fields.setdefault(lookup_key(field.name), pa.field(name, kind))
        return pa.struct(list(fields.values())) if fields else None

    def message_fit(
        self,
        message: Descriptor,
        columns: Mapping[str, pa.DataType],
        path: str,
        above: tuple[str, ...],
    ) -> Fit:
        """The function from a message to a dict of columns."""
        parts = list(self._field_fits(message, columns, path, above))

        def fit(value: Any) -> dict[str, Any]:
            return {
                column: convert(getattr(value, name))
                for name, column, has_presence, convert in parts
                if not has_presence or value.HasField(name)
            }

        return fit

    def _field_fits(
        self,
        message: Descriptor,
        columns: Mapping[str, pa.DataType],
        path: str,
        above: tuple[str, ...],
    ) -> Iterator[tuple[str, str, bool, Fit]]:
        names = {lookup_key(name): name for name in columns}
        dot = f"{path}." if path else ""
        for field in message.fields:
            column = names.pop(lookup_key(field.name), None)
            if column is not None:
                fit = self._field_fit(field, columns[column], f"{dot}{field.name}", above)
                yield field.name, column, field.has_presence, fit

    def _field_type(self, field: Descriptor, above: tuple[str, ...]) -> pa.DataType | None:
        if _is_map(field):
            key, item = field.message_type.fields
            kind = self._item_type(item, above)
            return None if kind is None else pa.map_(_scalar_type(key), kind)
        kind = self._item_type(field, above)
        return list_of(kind) if kind is not None and _is_repeated(field) else kind

    def _item_type(self, field: Descriptor, above: tuple[str, ...]) -> pa.DataType | None:
        self._spent += 1
        if self._spent > self._fields_max:
            raise UnsupportedSchemaError(f"more than {COLUMNS_MAX} columns: split the message")
        message = field.message_type
        if message is None:
            return _scalar_type(field)
        name = message.full_name
        if name == _INSTANT:
            return TIMESTAMP
        if name in _WRAPPERS:
            return _scalar_type(message.fields[0])
        if name in _FREE or name in above:
            return STRING
        return self.struct(message, (*above, name))

    def _field_fit(
        self, field: Descriptor, column: pa.DataType, path: str, above: tuple[str, ...]
    ) -> Fit:
        types = pa.types
        if _is_map(field):
            key, item = field.message_type.fields
            if not types.is_map(column) or not column.key_type.equals(_scalar_type(key)):
                return lambda value: refusal(column, path)(value or None)
            fit = self._item_fit(item, column.item_type, f"{path}.*", above)
            return lambda value: [(name, fit(one)) for name, one in value.items()]
        if _is_repeated(field):
            if not types.is_list(column):
                return lambda value: refusal(column, path)(value or None)
            fit = self._item_fit(field, column.value_type, f"{path}[]", above)
            return lambda value: [fit(one) for one in value]
        return self._item_fit(field, column, path, above)

    def _item_fit(
        self, field: Descriptor, column: pa.DataType, path: str, above: tuple[str, ...]
    ) -> Fit:
        message = field.message_type
        if message is None:
            return _scalar_fit(field, column, path)
        name, source = message.full_name, self._item_type(field, above)
        if name == _INSTANT and column.equals(TIMESTAMP):
            return lambda value: _micros(value, path)
        if name in _WRAPPERS:
            fit = _scalar_fit(message.fields[0], column, path)
            return lambda value: fit(value.value)
        if source == STRING and column.equals(STRING):
            return lambda value: self._text(value, path)
        if source is not None and pa.types.is_struct(source) and pa.types.is_struct(column):
            columns = {one.name: one.type for one in column}
            return self.message_fit(message, columns, path, (*above, name))
        return refusal(column, path)

    def _text(self, value: Any, path: str) -> str:
        try:
            text: str = json_format.MessageToJson(
                value, indent=None, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except (TypeError, ValueError, json_format.SerializeToJsonError):
            raise does_not_fit(path, value.DESCRIPTOR.full_name, "string, as JSON") from None
        return text


def _scalar_type(field: Descriptor) -> pa.DataType:
    return _SCALARS.get(field.type, BIGINT)


def _scalar_fit(field: Descriptor, column: pa.DataType, path: str) -> Fit:
    crosses = crossing(_scalar_type(field), column, path)
    if field.type == _FIELD.TYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}

        def name_of(value: int) -> Any:
            """The name; of a number that this schema does not know yet, the number."""
            name = names.get(value, str(value))
            return name if crosses is None else crosses(name)

        return name_of
    if crosses is not None:
        return crosses
    return Decimal if column.equals(UNSIGNED) else lambda value: value


def _micros(value: Any, path: str) -> int:
    micros: int = value.seconds * 1_000_000 + value.nanos // 1000
    if not BIGINT_MIN <= micros <= BIGINT_MAX:
        raise out_of_range(path, f"{value.seconds} s", "timestamp")
    return micros


def _is_repeated(field: Descriptor) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == _FIELD.LABEL_REPEATED)  # protobuf before 6.31


def _is_map(field: Descriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)
