"""The wide types that columns of typed tables have, and the union of two schemas.

A schema only grows: fields are added at the end of the table or of a struct, and no type changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

BOOLEAN = pa.bool_()
BIGINT = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", "UTC")
UNSIGNED = pa.decimal128(20, 0)
"""Unsigned 64-bit integers: deltalake writes none above 2^63 - 1 otherwise."""
DECIMAL_DIGITS = (18, 38)
"""A declared decimal gets the first that holds it: a wider one is then seldom a change."""
VALUE_COLUMN = "value"
"""The one column of a value that is no record: a string, a number, a VARIANT."""
COLUMNS_MAX = 2000
"""Of an inferred schema, nested ones counted too; keys beyond do not fit."""
NESTING_MAX = 32
"""Of structs, arrays and maps in each other: deltalake reads no schema of some 40 levels."""
TOO_DEEP = f"columns nest more than {NESTING_MAX} levels: use a VARIANT for such values"
EMPTY = pa.schema([])
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Delta without column mapping refuses these."""


def column_name(name: str) -> str:
    """The column for a source's field: what Delta refuses in a name becomes `_`.

    Spark's names are case-insensitive: fields whose columns differ in case only are one column.
    """
    clean = "".join("_" if char in _NOT_IN_NAMES else char for char in name)
    return clean or "_"


def lookup_key(name: str) -> str:
    """What two fields of one column have in common."""
    return column_name(name).lower()


def list_of(value: pa.DataType) -> pa.DataType:
    """An array type, with Parquet's and Delta's name of the child."""
    return pa.list_(pa.field("element", value))


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """The wide decimal for a declared one; a precision above 38 gets 38, and values may misfit."""
    digits = next((d for d in DECIMAL_DIGITS if precision <= d), DECIMAL_DIGITS[-1])
    return pa.decimal128(digits, min(scale, digits))


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The same type with this module's child names; all fields may be null."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([_normal_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(normal_type(kind.key_type), normal_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return list_of(normal_type(kind.value_type))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return STRING
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return BINARY
    return TIMESTAMP if types.is_timestamp(kind) else kind


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """A table's schema as a decoder's."""
    return pa.schema([_normal_field(field) for field in schema])


def widened(known: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """`known` with the fields that `wanted` adds; where their types differ otherwise, known's."""
    types = pa.types
    if types.is_struct(known) and types.is_struct(wanted):
        return pa.struct(_widened_fields(known, wanted))
    if types.is_list(known) and types.is_list(wanted):
        return list_of(widened(known.value_type, wanted.value_type))
    if types.is_map(known) and types.is_map(wanted):
        return pa.map_(known.key_type, widened(known.item_type, wanted.item_type))
    return known


def widened_schema(known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """`known` with what `wanted` adds (`widened`)."""
    return pa.schema(_widened_fields(known, wanted))


def conform(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as the type that its own has grown into: nulls in the added fields."""
    if array.type.equals(kind):
        return array
    types = pa.types
    mask = array.is_null()
    if types.is_struct(kind):
        names = {field.name: at for at, field in enumerate(array.type)}
        children = [
            conform(array.field(names[field.name]), field.type)
            if field.name in names
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    array = pa.concat_arrays([array]) if array.offset else array
    if types.is_map(kind):
        items = conform(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    if types.is_list(kind):
        values = conform(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    return array.cast(kind)


def count_columns(fields: Iterable[pa.Field]) -> int:
    """Columns, those in structs, lists and maps too."""
    return sum(1 + count_columns(_children(field.type)) for field in fields)


def nesting(fields: Iterable[pa.Field]) -> int:
    """How many types are within each other, at the deepest place; 1 for flat columns."""
    return 1 + max((nesting(_children(field.type)) for field in fields), default=0)


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]


def _normal_field(field: pa.Field) -> pa.Field:
    if is_variant(field):
        return variant_field(field.name)
    return pa.field(field.name, normal_type(field.type))


def _widened_fields(known: Iterable[pa.Field], wanted: Iterable[pa.Field]) -> Iterator[pa.Field]:
    known, wanted = list(known), list(wanted)
    by_key = {lookup_key(field.name): field for field in wanted}
    for field in known:
        other = by_key.get(lookup_key(field.name))
        yield field if other is None else field.with_type(widened(field.type, other.type))
    taken = {lookup_key(field.name) for field in known}
    for field in wanted:
        if lookup_key(field.name) not in taken:
            taken.add(lookup_key(field.name))
            yield pa.field(column_name(field.name), field.type, metadata=field.metadata)


_VARIANT_MARK = {b"headwater.type": b"variant"}
_VARIANT_TYPE = pa.struct(
    [pa.field("metadata", BINARY, nullable=False), pa.field("value", BINARY, nullable=False)]
)


def variant_field(name: str) -> pa.Field:
    """A VARIANT column: a struct of Parquet's two binaries, marked in the field's metadata."""
    return pa.field(name, _VARIANT_TYPE, metadata=_VARIANT_MARK)


def is_variant(field: pa.Field) -> bool:
    """True for a field of `variant_field`; a struct that only looks like one is none."""
    return bool(field.metadata) and field.metadata.get(b"headwater.type") == b"variant"
