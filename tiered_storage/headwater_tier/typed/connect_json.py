"""JSON of Kafka Connect's JsonConverter: `{"schema": ..., "payload": ...}` by its own schema.

The schema of each record tells its types: Connect's and Debezium's logical ones become decimals,
dates and timestamps. Records without a schema (`schemas.enable=false`) are inferred.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headwater_tier.typed.formats.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    STRING,
    VALUE_COLUMN,
    column_name,
    list_of,
    lookup_key,
    normal_schema,
    widened_schema,
)
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.json_scan import is_simple
from headwater_tier.typed.formats.json_values import exact_value, fast_value
from headwater_tier.typed.formats.logical_types import (
    CONNECT_DECIMAL,
    connect_logical,
    decimal_logical,
)
from headwater_tier.typed.formats.misfit import does_not_fit, malformed
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.source_columns import crossing, refusal

Convert = Callable[[Any], Any]
"""From a value of JSON, never None, to the column's. Raises NotFittingError."""
SCHEMAS_MAX = 64
"""Schemas whose converters are kept; a table's changes come one after the other."""
PRECISION = "connect.decimal.precision"
PRECISION_DEFAULT = 38
_INTEGERS = ("int8", "int16", "int32", "int64")
_PLAIN = {"boolean": (BOOLEAN, bool), "string": (STRING, str)}
_WRAPPED = {"schema", "payload"}


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a Connect schema: its column and the way of its values there."""

    column: pa.DataType
    convert: Convert
    fields: Mapping[str, tuple[str, Node]] | None = None
    """Of a struct: name in JSON -> (column, node)."""


def connect_decoder(known: pa.Schema) -> RowsDecoder:
    """A decoder of JsonConverter's output (`headwater_tier.typed.decoding.BlobDecoder`)."""
    return RowsDecoder(ConnectRows(normal_schema(known)))


class ConnectRows:
    """Reads rows (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._ways: dict[str, Convert] = {}
        self._inferred: JsonRows | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns by now."""
        return self._schema

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row, by column. Raises NotFittingError."""
        simple = is_simple(np.frombuffer(blob, np.uint8), 0, len(blob))
        value = fast_value(blob) if simple else exact_value(blob)
        if not isinstance(value, dict) or value.keys() != _WRAPPED or value["schema"] is None:
            return self._inferring(blob)
        payload = value["payload"]
        if payload is None:
            return {}
        row: dict[str, Any] = self._way(value["schema"])(payload)
        return row

    def _inferring(self, blob: bytes) -> dict[str, Any]:
        if self._inferred is None or not self._inferred.schema.equals(self._schema):
            self._inferred = JsonRows(self._schema, grows=True)
        row = self._inferred.read(blob)
        self._schema = self._inferred.schema
        return row

    def _way(self, schema: Any) -> Convert:
        key = str(schema)
        way = self._ways.get(key)
        if way is None:
            node = compiled(schema, "")
            is_whole = node.fields is None  # as a key that is one value
            if is_whole:
                node = _struct([(VALUE_COLUMN, VALUE_COLUMN, node)])
            grown = widened_schema(self._schema, pa.schema(list(node.column)))
            if not grown.equals(self._schema):
                self._schema, self._ways = grown, {}
            if len(self._ways) >= SCHEMAS_MAX:
                self._ways.clear()
            way = fitted(node, pa.struct(list(grown)), "")
            self._ways[key] = _wrapping(way) if is_whole else way
            way = self._ways[key]
        return way


def compiled(schema: Any, path: str) -> Node:
    """The columns of a Connect schema. Raises NotFittingError for what is none."""
    if not isinstance(schema, dict):
        raise malformed(f"{path or 'the value'}: no schema of Connect")
    kind, name = schema.get("type"), str(schema.get("name") or "")
    if kind == "struct":
        return _struct(
            [
                (
                    str(f.get("field")),
                    column_name(str(f.get("field"))),
                    compiled(f, _below(path, f)),
                )
                for f in schema.get("fields") or ()
            ]
        )
    if kind == "array":
        item = compiled(schema.get("items"), f"{path}[]")
        return Node(list_of(item.column), _each(item.convert, path))
    if kind == "map":
        return _map(schema, path)
    if kind in _INTEGERS:
        return _integer(name, kind, path)
    if kind in ("float", "double"):
        return Node(DOUBLE, _double(path))
    if kind == "bytes":
        return _bytes(schema, name, path)
    if kind in _PLAIN:
        column, type_ = _PLAIN[kind]
        return Node(column, _checked(type_, column, path))
    raise malformed(f"{path or 'the value'}: Connect has no type {kind!r}")


def fitted(node: Node, column: pa.DataType, path: str) -> Convert:
    """The way of a node's values into the column that the table has, whose type may be another."""
    if node.fields is None or not pa.types.is_struct(column):
        if node.column.equals(column):
            return node.convert
        if pa.types.is_nested(node.column) or pa.types.is_nested(column):
            return refusal(column, path)
        cross = crossing(node.column, column, path)
        if cross is None:
            return node.convert
        return lambda value: cross(node.convert(value))
    places = {lookup_key(field.name): field for field in column}
    ways = []
    for name, (own, child) in node.fields.items():
        field = places[lookup_key(own)]
        ways.append((name, field.name, fitted(child, field.type, f"{path}{name}")))
    return _object(ways, column, path)


def _wrapping(way: Convert) -> Convert:
    return lambda value: way({VALUE_COLUMN: value})


def _struct(children: list[tuple[str, str, Node]]) -> Node:
    column = pa.struct([pa.field(own, node.column) for _, own, node in children])
    convert = _object([(name, own, node.convert) for name, own, node in children], column, "")
    return Node(column, convert, {name: (own, node) for name, own, node in children})


def _object(ways: list[tuple[str, str, Convert]], column: pa.DataType, path: str) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise does_not_fit(path or "the value", value, column)
        row = {}
        for name, own, way in ways:
            found = value.get(name)
            row[own] = None if found is None else way(found)
        return row

    return convert


def _each(way: Convert, path: str) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise does_not_fit(path, value, "array")
        return [None if item is None else way(item) for item in value]

    return convert


def _map(schema: Mapping[str, Any], path: str) -> Node:
    key = compiled(schema.get("keys"), f"{path}{{}}")
    item = compiled(schema.get("values"), f"{path}{{}}")

    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, dict) else value
        return [(key.convert(k), None if v is None else item.convert(v)) for k, v in pairs]

    return Node(pa.map_(key.column, item.column), convert)


def _integer(name: str, kind: str, path: str) -> Node:
    check = _checked(int, BIGINT, path)
    logical = connect_logical(name, kind, path)
    if logical is None:
        return Node(BIGINT, check)
    way = logical.convert
    return Node(logical.column, check if way is None else lambda value: way(check(value)))


def _double(path: str) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            raise does_not_fit(path, value, DOUBLE)
        try:
            return float(value)  # Connect writes "NaN" and "Infinity"
        except ValueError:
            raise does_not_fit(path, value, DOUBLE) from None

    return convert


def _bytes(schema: Mapping[str, Any], name: str, path: str) -> Node:
    if name != CONNECT_DECIMAL:
        return Node(BINARY, _base64(path))
    given = schema.get("parameters") or {}
    digits, scale = str(given.get(PRECISION, PRECISION_DEFAULT)), str(given.get("scale", "0"))
    if not digits.isdecimal() or not scale.isdecimal():
        raise malformed(f"{path}: no decimal: precision {digits}, scale {scale}")
    logical = decimal_logical(int(digits), int(scale), path)
    unscaled, way = _base64(path), logical.convert

    def convert(value: Any) -> Any:
        if isinstance(value, int | float | Decimal):  # decimal.format=NUMERIC
            return round(Decimal(str(value)), int(scale))
        return unscaled(value) if way is None else way(unscaled(value))

    return Node(logical.column, convert)


def _base64(path: str) -> Convert:
    def convert(value: Any) -> bytes:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise does_not_fit(path, value, BINARY) from None

    return convert


def _checked(type_: type, column: pa.DataType, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not type_:
            raise does_not_fit(path, value, column)
        return value

    return convert


def _below(path: str, field: Mapping[str, Any]) -> str:
    name = str(field.get("field"))
    return f"{path}.{name}" if path else name
