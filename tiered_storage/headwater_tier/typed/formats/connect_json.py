"""Kafka Connect's JSON (JsonConverter): {"schema": ..., "payload": ...}, or a payload alone.

The schema comes with each record and types the payload, Connect's and Debezium's logical types too.
A payload alone is inferred.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    NESTING_MAX,
    STRING,
    TIMESTAMP,
    VALUE_COLUMN,
    column_name,
    list_of,
    lookup_key,
    widened_schema,
)
from headwater_tier.typed.formats.json_fit import Fit, fit_of
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.json_values import cache_key
from headwater_tier.typed.formats.logical_types import (
    CONNECT_DECIMAL,
    ZONED,
    Logical,
    connect_logical,
    decimal_logical,
)
from headwater_tier.typed.formats.misfit import (
    NotFittingError,
    UnsupportedSchemaError,
    does_not_fit,
    shown,
)
from headwater_tier.typed.formats.source_columns import crossing, refusal
from headwater_tier.typed.quarantine_reasons import Reason

ENVELOPE = {"schema", "payload"}
SCHEMAS_MAX = 1000
"""Kept with their functions; the oldest goes first."""
DEPTH_MAX = NESTING_MAX - 2
_SCALARS = {
    "int8": BIGINT,
    "int16": BIGINT,
    "int32": BIGINT,
    "int64": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
    "bytes": BINARY,
}
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""As JsonConverter writes them: texts."""
Node = Mapping[str, Any]


class ConnectRows(JsonRows):
    """Reads rows (`headwater_tier.typed.formats.rows.RowReader`)."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, grows=True)
        self._fits: dict[bytes, Fit] = {}

    def row_of(self, value: Any) -> dict[str, Any]:
        """The row of a parsed text. Raises NotFittingError, NeedsExactError."""
        if type(value) is not dict or set(value) != ENVELOPE:
            return super().row_of(value)
        node, payload = value["schema"], value["payload"]
        if payload is None:
            return {}
        if type(node) is not dict:
            return super().row_of(payload)
        row: dict[str, Any] | None = self._payload_fit(node)(payload)
        return row or {}

    def _payload_fit(self, node: Node) -> Fit:
        """The function from a payload to a row; the schema's columns are there then."""
        key = cache_key(node)
        found = self._fits.pop(key, None)
        if found is None:
            try:
                found = self._new_fit(node)
            except (UnsupportedSchemaError, TypeError, ValueError) as error:
                detail = f"schema: {error}"
                raise NotFittingError(Reason.DOES_NOT_FIT, detail) from None
        self._fits[key] = found
        if len(self._fits) > SCHEMAS_MAX:
            del self._fits[next(iter(self._fits))]
        return found

    def _new_fit(self, node: Node) -> Fit:
        kind = connect_type(node, "")
        if kind is None:
            return lambda _payload: {}
        is_record = pa.types.is_struct(kind)
        wanted = list(kind) if is_record else [pa.field(VALUE_COLUMN, kind)]
        schema = widened_schema(self.schema, wanted)
        if not schema.equals(self.schema):
            self.adopt(schema)
            self._fits.clear()
        if is_record:
            return _struct_fit(node, pa.struct(list(self.schema)), "")
        fit = connect_fit(node, self.schema.field(VALUE_COLUMN).type, VALUE_COLUMN)
        return lambda payload: {VALUE_COLUMN: fit(payload)}


def connect_type(node: Node, path: str, depth: int = 0) -> pa.DataType | None:
    """The column of a schema; None for a struct without fields. Raises UnsupportedSchemaError."""
    kind = node.get("type")
    if depth > DEPTH_MAX:
        raise UnsupportedSchemaError(f"{path}: it nests more than {DEPTH_MAX} levels")
    if kind == "struct":
        fields: dict[str, pa.Field] = {}
        for name, field in _fields(node, path):
            column = connect_type(field, f"{path}.{name}", depth + 1)
            if column is not None:
                fields.setdefault(lookup_key(name), pa.field(column_name(name), column))
        return pa.struct(list(fields.values())) if fields else None
    if kind == "array":
        item = connect_type(_part(node, "items", path), f"{path}[]", depth + 1)
        return None if item is None else list_of(item)
    if kind == "map":
        key = connect_type(_part(node, "keys", path), path, depth + 1)
        item = connect_type(_part(node, "values", path), f"{path}.*", depth + 1)
        return None if key is None or item is None else pa.map_(key, item)
    if kind not in _SCALARS:
        raise UnsupportedSchemaError(f"{path or 'the value'}: {shown(kind)} is no type of Connect")
    return _source(node, path).column


def connect_fit(node: Node, column: pa.DataType, path: str) -> Fit:
    """The function from a payload's value to the column's. It raises NotFittingError,
    NeedsExactError."""
    kind, types = node.get("type"), pa.types
    if kind == "struct" and types.is_struct(column):
        return _struct_fit(node, column, path)
    if kind == "array" and types.is_list(column):
        return _list_fit(connect_fit(_part(node, "items", path), column.value_type, path), path)
    if kind == "map" and types.is_map(column):
        return _map_fit(node, column, path)
    if kind in ("struct", "array", "map"):
        return refusal(column, path)
    return _scalar_fit(node, column, path)


def _struct_fit(node: Node, column: pa.DataType, path: str) -> Fit:
    columns = {lookup_key(field.name): field for field in column}
    dot = f"{path}." if path else ""
    fits = [
        (name, columns[lookup_key(name)].name, columns[lookup_key(name)].type, field)
        for name, field in _fields(node, path)
        if lookup_key(name) in columns
    ]
    compiled = [
        (key, name, connect_fit(field, kind, f"{dot}{name}")) for key, name, kind, field in fits
    ]

    def fit(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if type(value) is not dict:
            raise does_not_fit(path or "the payload", value, "struct")
        return {name: convert(value.get(key)) for key, name, convert in compiled}

    return fit


def _list_fit(item: Fit, path: str) -> Fit:
    def fit(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if type(value) is not list:
            raise does_not_fit(path, value, "array")
        return [item(one) for one in value]

    return fit


def _map_fit(node: Node, column: pa.DataType, path: str) -> Fit:
    """Maps of texts are objects; others are lists of [key, value]."""
    key = connect_fit(_part(node, "keys", path), column.key_type, path)
    item = connect_fit(_part(node, "values", path), column.item_type, f"{path}.*")

    def fit(value: Any) -> list[tuple[Any, Any]] | None:
        if value is None:
            return None
        pairs = list(value.items()) if type(value) is dict else value
        if type(pairs) is not list or not all(map(_is_pair, pairs)):
            raise does_not_fit(path, value, "map")
        return [(key(name), item(one)) for name, one in pairs]

    return fit


def _is_pair(pair: Any) -> bool:
    """True for [key, value]: no key of a map is null."""
    return type(pair) in (list, tuple) and len(pair) == 2 and pair[0] is not None


def _scalar_fit(node: Node, column: pa.DataType, path: str) -> Fit:
    source = _source(node, path)
    physical = _physical(node, source, path)
    convert, crosses = source.convert, crossing(source.column, column, path)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        found = physical(value)
        if convert is not None:
            found = convert(found)
        return found if crosses is None else crosses(found)

    return fit


def _source(node: Node, path: str) -> Logical:
    """The column of a scalar, and the function from its number."""
    kind, name = str(node.get("type")), str(node.get("name", ""))
    if name == CONNECT_DECIMAL and kind == "bytes":
        given = node.get("parameters")
        parameters = given if isinstance(given, dict) else {}
        places = str(parameters.get("scale", "0"))
        digits = str(parameters.get("connect.decimal.precision", "38"))
        if places.isdecimal() and digits.isdecimal():
            return Logical(decimal_logical(int(digits), int(places), path).column)
    if name == ZONED and kind == "string":
        return Logical(TIMESTAMP)
    return connect_logical(name, kind, path) or Logical(_SCALARS[kind])


def _physical(node: Node, source: Logical, path: str) -> Fit:
    """The function from JSON to what Connect's type holds."""
    if pa.types.is_decimal(source.column):
        return _decimal_fit(source.column, path)
    if source.convert is not None or (source.column == TIMESTAMP and node["type"] != "string"):
        return fit_of(BIGINT, path, is_open=False)
    fit = fit_of(source.column, path, is_open=False)
    if source.column == DOUBLE:
        return lambda value: (
            _NO_NUMBERS[value] if type(value) is str and value in _NO_NUMBERS else fit(value)
        )
    return fit


def _decimal_fit(column: pa.DataType, path: str) -> Fit:
    """Base64 of the unscaled integer, or a number (decimal.format=NUMERIC)."""
    unscaled = decimal_logical(column.precision, column.scale, path).convert
    number = fit_of(column, path, is_open=False)

    def fit(value: Any) -> Decimal:
        if type(value) is not str or unscaled is None:
            found: Decimal = number(value)
            return found
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise does_not_fit(path, value, f"{column}, as base64") from None
        exact: Decimal = unscaled(data)
        return exact

    return fit


def _fields(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    fields = node.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if not isinstance(field, dict) or not isinstance(field.get("field"), str):
            raise UnsupportedSchemaError(f"{path or 'the value'}: a field has no name")
        yield field["field"], field


def _part(node: Node, key: str, path: str) -> Node:
    part = node.get(key)
    if not isinstance(part, dict):
        raise UnsupportedSchemaError(f"{path or 'the value'}: {node.get('type')} without {key}")
    return part
