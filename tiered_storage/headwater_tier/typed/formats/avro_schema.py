"""Avro schemas as columns (Confluent's AvroData): types, and functions from fastavro's values.

A union of null and one type is that type; of more, a struct with a field per branch. The one
adapter of fastavro, with `avro_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    to_parsing_canonical_form,
)

from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    COLUMNS_MAX,
    DOUBLE,
    STRING,
    column_name,
    list_of,
    lookup_key,
)
from headwater_tier.typed.formats.json_fit import Fit
from headwater_tier.typed.formats.logical_types import Logical, avro_logical, connect_logical
from headwater_tier.typed.formats.misfit import UnsupportedSchemaError
from headwater_tier.typed.formats.source_columns import crossing, refusal

LOGICAL = "logicalType"
_KEPT_LOGICAL = "headwater.logicalType"
"""fastavro must not convert logical types: its datetimes have no year 10000, and are slow."""
_SCALARS = {
    "boolean": (BOOLEAN, bool),
    "int": (BIGINT, int),
    "long": (BIGINT, int),
    "float": (DOUBLE, float),
    "double": (DOUBLE, float),
    "string": (STRING, str),
    "bytes": (BINARY, bytes),
}
_NAMED = ("record", "error", "enum", "fixed")
Node = Any
"""A type of a parsed schema: a name, a dict, or the list of a union's branches."""


class AvroSchema:
    """A parsed schema with the named types that it refers to."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]] = ()) -> None:
        """Raises UnsupportedSchemaError."""
        self.names: dict[str, Any] = {}
        try:
            for _, referred in references:
                fastavro.parse_schema(_kept(_loaded(referred)), named_schemas=self.names)
            self.parsed: Node = fastavro.parse_schema(
                _kept(_loaded(text)), named_schemas=self.names
            )
            self.fingerprint = _fingerprint(self.parsed)
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
            what = f"unknown type {error.name}" if isinstance(error, UnknownType) else error
            raise UnsupportedSchemaError(f"no Avro schema: {what}") from None
        except RecursionError:
            raise UnsupportedSchemaError("no Avro schema: it nests too deep") from None

    def resolved(self, node: Node) -> Node:
        """The definition of a named type; any other node as it is."""
        return self.names.get(node, node) if isinstance(node, str) else node


def kind_of(node: Node) -> str:
    """record, enum, array, union, long and so on."""
    if isinstance(node, list):
        return "union"
    kind = node["type"] if isinstance(node, dict) else node
    return "record" if kind == "error" else str(kind)


def branches_of(schema: AvroSchema, union: list[Node]) -> list[tuple[str, Node]]:
    """(field's name, type) of each branch but null; integers are one branch, fractions too."""
    found: dict[str, Node] = {}
    for branch in union:
        node = schema.resolved(branch)
        kind = kind_of(node)
        if kind == "null":
            continue
        name = node["name"] if kind in _NAMED else kind
        short = column_name(name.rpartition(".")[2])
        name = short if lookup_key(short) not in map(lookup_key, found) else name.replace(".", "_")
        found[name] = node
    return list(found.items())


def logical_of(node: Node, path: str) -> Logical | None:
    """The logical type of a node, Avro's or Connect's; None if it has none that counts here."""
    if not isinstance(node, dict):
        return None
    name, kind = str(node.get(_KEPT_LOGICAL, "")), kind_of(node)
    connect = str(node.get("connect.name", ""))
    return avro_logical(name, kind, node, path) or connect_logical(connect, kind, path)


def check_size(schema: AvroSchema) -> None:
    """Raises UnsupportedSchemaError above COLUMNS_MAX columns: a few types that use each other
    twice make millions."""
    sizes: dict[str, int] = {}

    def size(node: Node, above: tuple[str, ...]) -> int:
        node = schema.resolved(node)
        kind = kind_of(node)
        if kind == "union":
            return sum(size(one, above) for one in node)
        if kind in ("array", "map"):
            return 1 + size(node["items" if kind == "array" else "values"], above)
        if kind != "record" or node["name"] in above:
            return 1
        name = node["name"]
        if name not in sizes:
            parts = (size(field["type"], (*above, name)) for field in node["fields"])
            sizes[name] = 1 + sum(parts)
        return sizes[name]

    if size(schema.parsed, ()) > 2 * COLUMNS_MAX:
        raise UnsupportedSchemaError(f"more than {COLUMNS_MAX} columns: split the record")


def column_type(schema: AvroSchema, node: Node, path: str, above: tuple[str, ...] = ()) -> Any:
    """The column's type; None for what holds nothing. Raises UnsupportedSchemaError."""
    node = schema.resolved(node)
    kind = kind_of(node)
    if kind == "union":
        branches = branches_of(schema, node)
        if len(branches) == 1:
            return column_type(schema, branches[0][1], path, above)
        _check_branches(branches, path)
        named = [(name, column_type(schema, one, path, above)) for name, one in branches]
        return _struct(named)
    if kind == "record":
        if node["name"] in above:
            raise UnsupportedSchemaError(f"{path}: {node['name']} contains itself: no columns do")
        above = (*above, node["name"])
        dot = f"{path}." if path else ""
        return _struct(
            (field["name"], column_type(schema, field["type"], f"{dot}{field['name']}", above))
            for field in node["fields"]
        )
    if kind in ("array", "map"):
        child = node["items" if kind == "array" else "values"]
        item = column_type(schema, child, f"{path}[]", above)
        if item is None:
            return None
        return list_of(item) if kind == "array" else pa.map_(STRING, item)
    if kind == "null":
        return None
    logical = logical_of(node, path)
    if logical is not None:
        return logical.column
    return {"enum": STRING, "fixed": BINARY}.get(kind) or _SCALARS[kind][0]


def column_fit(schema: AvroSchema, node: Node, column: pa.DataType, path: str) -> Fit:
    """The function from fastavro's value to the column's. It raises NotFittingError."""
    node = schema.resolved(node)
    kind, types = kind_of(node), pa.types
    if kind == "union":
        return _union_fit(schema, node, column, path)
    if kind == "record" and types.is_struct(column):
        return record_fit(schema, node, {field.name: field.type for field in column}, path)
    if kind == "array" and types.is_list(column):
        item = column_fit(schema, node["items"], column.value_type, f"{path}[]")
        return lambda value: [item(one) for one in value]
    if kind == "map" and types.is_map(column):
        item = column_fit(schema, node["values"], column.item_type, f"{path}.*")
        return lambda value: [(key, item(one)) for key, one in value.items()]
    if kind in ("record", "array", "map", "null"):
        return refusal(column, path)
    logical = logical_of(node, path)
    source = column_type(schema, node, path)
    crosses = crossing(source, column, path)
    convert = None if logical is None else logical.convert
    if convert is None or crosses is None:
        return convert or crosses or _same
    return lambda value: crosses(convert(value))


def record_fit(
    schema: AvroSchema, node: Node, columns: Mapping[str, pa.DataType], path: str
) -> Fit:
    """The function from a record to a dict of columns."""
    names = {lookup_key(name): name for name in columns}
    dot = f"{path}." if path else ""
    fits: list[tuple[str, str, Fit]] = []
    for field in node["fields"]:
        name = names.pop(lookup_key(field["name"]), None)
        if name is not None:
            where = f"{dot}{field['name']}"
            fit = column_fit(schema, field["type"], columns[name], where)
            fits.append((field["name"], name, fit))
        elif column_type(schema, field["type"], "") is not None:
            where = f"{dot}{field['name']}"
            fits.append((field["name"], "", refusal(pa.null(), f"{where} (a second one by case)")))
    return lambda value: {name: fit(value[key]) for key, name, fit in fits}


def _union_fit(schema: AvroSchema, union: list[Node], column: pa.DataType, path: str) -> Fit:
    branches = branches_of(schema, union)
    if len(branches) == 1:
        node = branches[0][1]
        fit = column_fit(schema, node, column, path)
        if kind_of(node) in _NAMED:
            return lambda value: None if value is None else fit(value[1])
        return lambda value: None if value is None else fit(value)
    by_mark = {_mark(node): (name, node) for name, node in branches}
    fields = {field.name: field.type for field in column} if pa.types.is_struct(column) else {}
    names = {lookup_key(name): name for name in fields}
    fits: dict[Any, tuple[str, Fit]] = {}
    for mark, (branch, node) in by_mark.items():
        name = names.get(lookup_key(branch), "")
        kind = fields[name] if name else column
        fits[mark] = (name, column_fit(schema, node, kind, f"{path}.{branch}"))

    def fit_branch(value: Any) -> Any:
        if value is None:
            return None
        is_named = type(value) is tuple
        name, fit = fits[value[0] if is_named else type(value)]
        fitted = fit(value[1] if is_named else value)
        return {name: fitted} if name else fitted

    return fit_branch


def _mark(node: Node) -> Any:
    """What tells the branch of a value that fastavro returns: a name, or a Python type."""
    kind = kind_of(node)
    if kind in _NAMED:
        return node["name"]
    return {"array": list, "map": dict}.get(kind) or _SCALARS[kind][1]


def _check_branches(branches: list[tuple[str, Node]], path: str) -> None:
    marks = [_mark(node) for _, node in branches]
    if len(set(marks)) < len(marks):
        raise UnsupportedSchemaError(
            f"{path}: a union of int and long, or float and double: use the wider one alone"
        )


def _struct(fields: Any) -> pa.DataType | None:
    kept: dict[str, pa.Field] = {}
    for name, kind in fields:
        if kind is not None:
            kept.setdefault(lookup_key(name), pa.field(column_name(name), kind))
    return pa.struct(list(kept.values())) if kept else None


def _same(value: Any) -> Any:
    return value


def _loaded(text: str) -> Any:
    """The JSON of a schema; a bare name as `long` is one too."""
    stripped = text.strip()
    return json.loads(stripped) if stripped[:1] in '{["' else stripped


def _kept(node: Any) -> Any:
    if isinstance(node, list):
        return [_kept(one) for one in node]
    if isinstance(node, dict):
        return {_KEPT_LOGICAL if key == LOGICAL else key: _kept(one) for key, one in node.items()}
    return node


def _fingerprint(parsed: Node) -> bytes:
    canonical = to_parsing_canonical_form(parsed)
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
