"""JSON Schema as columns (Confluent's JsonSchemaData): types count, constraints do not.

Values are checked against their columns' types. `required`, `pattern` and the like are the
producers'. What has no one type becomes its JSON text. Keys without a property have no column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    COLUMNS_MAX,
    DATE,
    DOUBLE,
    EMPTY,
    STRING,
    TIMESTAMP,
    VALUE_COLUMN,
    column_name,
    decimal_type,
    list_of,
    lookup_key,
    normal_type,
    widened,
)
from headwater_tier.typed.formats.json_fast import JsonFast
from headwater_tier.typed.formats.json_fit import JSON_TEXT
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.json_values import json_fault
from headwater_tier.typed.formats.logical_types import CONNECT_DECIMAL
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.source_columns import Read

_CONNECT_PRECISION = "connect.decimal.precision"
_DECIMAL_DIGITS_MAX = 38
Node = Any


class JsonSchemaSource:
    """A writer's JSON Schema (`headwater_tier.typed.formats.source_columns.Source`)."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """Raises UnsupportedSchemaError."""
        self._documents: dict[str, Node] = {}
        self._spent = 0
        try:
            for name, referred in references:
                self._documents[name] = document = json.loads(referred)
                if isinstance(document, dict) and isinstance(document.get("$id"), str):
                    self._documents[document["$id"]] = document
            self._root = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UnsupportedSchemaError(f"no JSON Schema: {error}") from None
        if not isinstance(self._root, dict | bool):
            raise UnsupportedSchemaError("no JSON Schema: it is neither an object nor a boolean")
        kind = self._type(self._root, self._root, ())
        self._is_record = pa.types.is_struct(kind)
        if self._is_record:
            self._wanted = list(kind)
        else:
            self._wanted = [pa.field(VALUE_COLUMN, kind)]
        kinds = pa.struct(self._wanted)
        self.columns = pa.schema(list(normal_type(kinds))) if self._wanted else EMPTY

    def reader(self, schema: pa.Schema) -> Read:
        """See the port."""
        return JsonRows(self._fitted(schema), grows=False, is_record=self._is_record).read

    def fault_at(self, blob: bytes) -> int | None:
        """The byte from which a blob is no JSON; None for JSON."""
        fault = json_fault(blob)
        return None if fault is None else fault[1]

    def fast(self) -> JsonFast | None:
        """See the port."""
        return JsonFast(is_open=False, fitted=self._fitted) if self._is_record else None

    def _fitted(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema(list(_with_texts(pa.struct(list(schema)), pa.struct(self._wanted))))

    def _type(self, node: Node, document: Node, above: tuple[str, ...]) -> pa.DataType:
        self._spent += 1
        if self._spent > 10 * COLUMNS_MAX:
            raise UnsupportedSchemaError(f"more than {COLUMNS_MAX} columns: split the object")
        if not isinstance(node, dict):
            return JSON_TEXT
        if isinstance(node.get("$ref"), str):
            return self._referred(node["$ref"], document, above)
        parts = [
            self._type(one, document, above)
            for key in ("oneOf", "anyOf", "allOf")
            for one in _list(node.get(key))
            if not (isinstance(one, dict) and one.get("type") == "null")
        ]
        if "type" in node or "properties" in node:
            parts.insert(0, self._own_type(node, document, above))
        return _one_of(parts)

    def _own_type(self, node: Node, document: Node, above: tuple[str, ...]) -> pa.DataType:
        kinds = [kind for kind in _list(node.get("type", "object")) if kind != "null"]
        if set(kinds) == {"integer", "number"}:
            return DOUBLE
        if len(kinds) != 1:
            return JSON_TEXT
        if kinds[0] == "array":
            return list_of(self._type(node.get("items"), document, above))
        if kinds[0] == "object":
            return self._object(node, document, above)
        return _scalar(kinds[0], node)

    def _object(self, node: Node, document: Node, above: tuple[str, ...]) -> pa.DataType:
        properties = node.get("properties")
        if isinstance(properties, dict) and properties:
            fields: dict[str, pa.Field] = {}
            for name, child in _ordered(properties):
                kind = self._type(child, document, above)
                fields.setdefault(lookup_key(name), pa.field(column_name(name), kind))
            return pa.struct(list(fields.values()))
        items = node.get("additionalProperties")
        if isinstance(items, dict) and items:
            return pa.map_(STRING, self._type(items, document, above))
        return JSON_TEXT

    def _referred(self, reference: str, document: Node, above: tuple[str, ...]) -> pa.DataType:
        if reference in above:
            return JSON_TEXT  # a type that contains itself
        name, _, pointer = reference.partition("#")
        target = document if not name else self._documents.get(name)
        for part in pointer.split("/")[1:] if pointer else ():
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        if target is None:
            raise UnsupportedSchemaError(f"$ref {reference!r} leads nowhere: register it too")
        root = document if not name else self._documents[name]
        return self._type(target, root, (*above, reference))


def _scalar(kind: Any, node: Mapping[str, Any]) -> pa.DataType:
    if kind == "string":
        if node.get("contentEncoding") == "base64" or node.get("connect.type") == "bytes":
            return BINARY
        return {"date-time": TIMESTAMP, "date": DATE}.get(str(node.get("format")), STRING)
    if kind == "number":
        return _number(node)
    return {"integer": BIGINT, "boolean": BOOLEAN}.get(kind, JSON_TEXT)


def _number(node: Mapping[str, Any]) -> pa.DataType:
    """A decimal if the schema says how many digits: by Connect's name, or by multipleOf 0.01."""
    if node.get("title") == CONNECT_DECIMAL:
        parameters = node.get("connect.parameters")
        given = parameters if isinstance(parameters, dict) else {}
        digits, places = str(given.get(_CONNECT_PRECISION, "38")), str(given.get("scale", "0"))
        if digits.isdecimal() and places.isdecimal() and int(places) <= _DECIMAL_DIGITS_MAX:
            return decimal_type(int(digits), int(places))
    step = node.get("multipleOf")
    if isinstance(step, float):
        for scale in range(1, 19):
            if step == float(f"1e-{scale}"):
                return decimal_type(_DECIMAL_DIGITS_MAX, scale)
    return DOUBLE


def _one_of(kinds: list[pa.DataType]) -> pa.DataType:
    """The type of a value that has one of these, or all."""
    if not kinds:
        return JSON_TEXT
    first = kinds[0]
    for kind in kinds[1:]:
        if pa.types.is_struct(first) and pa.types.is_struct(kind):
            first = widened(first, kind)
        elif {first, kind} == {BIGINT, DOUBLE}:
            first = DOUBLE
        elif not first.equals(kind):
            return JSON_TEXT
    return first


def _ordered(properties: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Connect's order, where a schema tells it; else the text's."""

    def index(item: tuple[str, Any]) -> int:
        found = item[1].get("connect.index") if isinstance(item[1], dict) else None
        return found if isinstance(found, int) else 0

    return sorted(properties.items(), key=index)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _with_texts(known: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The table's type, with JSON_TEXT where the schema has it and the column is a string."""
    types = pa.types
    if wanted.equals(JSON_TEXT):
        return JSON_TEXT if known.equals(STRING) else known
    if types.is_struct(known) and types.is_struct(wanted):
        by_key = {lookup_key(field.name): field.type for field in wanted}
        return pa.struct(
            [
                field.with_type(_with_texts(field.type, by_key[lookup_key(field.name)]))
                if lookup_key(field.name) in by_key
                else field
                for field in known
            ]
        )
    if types.is_list(known) and types.is_list(wanted):
        return list_of(_with_texts(known.value_type, wanted.value_type))
    if types.is_map(known) and types.is_map(wanted):
        return pa.map_(known.key_type, _with_texts(known.item_type, wanted.item_type))
    return known
