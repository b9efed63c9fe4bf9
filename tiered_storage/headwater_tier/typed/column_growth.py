"""Adds columns to a typed table when a decoder's schema has grown; names on both sides. Pure.

Each column, nested ones too, carries the decoder's name in its field's metadata, so that the
table's own schema says what a decoder knew: no state is kept beside it. `follow_log` commits the
columns before the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

SOURCE = "headwater.source"
"""Metadata of a field: `value/NAME` or `key/NAME` at the top, the name alone below it."""
VARIANT_MARK = {b"headwater.type": b"variant"}
"""Metadata of a VARIANT column, which decoders and tables hold as a struct of two binaries."""
DEBEZIUM_MARK = {b"headwater.type": b"debezium"}
"""Metadata of the columns that say of a change event, in a decoder's schema."""
TOMBSTONE = "is_tombstone"
KEY = "key"
WHOLE = ("key", "value")
"""Names that decoders give to the one column of a key that is no record."""
FIXED = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field(TOMBSTONE, pa.bool_()),
    ]
)
"""The columns that every typed table begins with."""
_RESERVED = frozenset({"__op", "__source_lsn", "__growth", "__row"})
"""Columns that mean something to the table of latest rows: a value's field is none of them."""
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta refuses in column names without column mapping."""


class Part(Enum):
    """The two blobs of a record."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a column's values come from: a part of the record and the decoder's column."""

    part: Part
    name: str


def source_of(field: pa.Field) -> Source | None:
    """The source of a top-level column; None for fixed ones, and for those a user added."""
    found = _stored_name(field)
    if found is None:
        return None
    part, _, name = found.partition("/")
    return Source(Part(part), name)


def known(table: pa.Schema, part: Part) -> pa.Schema:
    """The schema that the part's decoder had when the table got this one."""
    fields = []
    for field in table:
        source = source_of(field)
        if source is not None and source.part is part:
            mark = VARIANT_MARK if is_variant(field) else None
            fields.append(pa.field(source.name, _decoders_type(field.type), metadata=mark))
    return pa.schema(fields)


def new_table(keys: pa.Schema, values: pa.Schema) -> pa.Schema:
    """The schema of a new table. Keys' columns come first, and have the better right to names."""
    return grown(FIXED, keys, values)


def grown(table: pa.Schema, keys: pa.Schema, values: pa.Schema) -> pa.Schema:
    """The table's schema with what the decoders' schemas have more. Names never change."""
    fields = list(table)
    places = {source_of(field): at for at, field in enumerate(fields) if source_of(field)}
    taken = {field.name.lower() for field in fields}
    for part, schema in ((Part.KEY, keys), (Part.VALUE, values)):
        for field in schema:
            source = Source(part, field.name)
            at = places.get(source)
            if at is not None:
                old = fields[at]
                if is_variant(old):
                    continue
                fields[at] = old.with_type(_grown_type(old.type, field.type))
                continue
            name = _table_name(source)
            if name.lower() in _RESERVED and not is_debezium(field):
                name = f"value_{name}"
            name = _free(name, taken)
            metadata = {SOURCE.encode(): f"{part.value}/{field.name}".encode()}
            if is_variant(field):
                metadata |= VARIANT_MARK
            new = _grown_type(None, field.type)
            fields.append(pa.field(name, new, metadata=metadata))
    return pa.schema(fields)


def unchangeable(table: pa.Schema, keys: pa.Schema) -> dict[str, pa.DataType]:
    """The decoder's columns of a key, and their types in the table, that would change a column
    which cannot: beside a VARIANT no struct gets fields, as deltalake can only add columns."""
    if not any(is_variant(field) for field in table):
        return {}
    found = {}
    for field in table:
        source = source_of(field)
        if source is None or source.part is not Part.KEY or source.name not in keys.names:
            continue
        if _grown_type(field.type, keys.field(source.name).type) != field.type:
            found[source.name] = field.type
    return found


def loses(value: Any, type_: pa.DataType) -> bool:
    """Whether a decoded value has a field, not null, that a table's type lacks."""
    if value is None:
        return False
    if pa.types.is_struct(type_):
        inside = {_stored_name(field) or field.name: field.type for field in _children(type_)}
        return any(
            item is not None and (name not in inside or loses(item, inside[name]))
            for name, item in value.items()
        )
    if pa.types.is_list(type_):
        return any(loses(item, type_.value_type) for item in value)
    if pa.types.is_map(type_):
        return any(loses(item, type_.item_type) for _, item in value)
    return False


def has_equality(type_: pa.DataType) -> bool:
    """True for the types of columns that can be the key of a row."""
    return not (pa.types.is_nested(type_) or pa.types.is_floating(type_))


def is_variant(field: pa.Field) -> bool:
    """True for a VARIANT column; a struct that only looks like one is none."""
    return bool(VARIANT_MARK.items() <= (field.metadata or {}).items())


def is_debezium(field: pa.Field) -> bool:
    """True for a decoder's column that says of a change event; a value's field is none."""
    return bool(DEBEZIUM_MARK.items() <= (field.metadata or {}).items())


def conform(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """A decoder's column in the table's type: the table's nested names, nulls for what it lacks."""
    if column.type == wanted:
        return column
    return pa.chunked_array([_conformed(chunk, wanted) for chunk in column.chunks], wanted)


def names_of(schema: pa.Schema) -> Sequence[tuple[str, Source]]:
    """(table's name, source) of each decoded column."""
    return [(field.name, found) for field in schema if (found := source_of(field))]


def _table_name(source: Source) -> str:
    if source.part is Part.VALUE:
        return source.name
    return KEY if source.name in WHOLE else f"{KEY}_{source.name}"


def _free(name: str, taken: set[str]) -> str:
    """A legal name that no other column has in any case; adds it to those taken."""
    name = _NOT_IN_NAMES.sub("_", name)
    while not name or name.lower() in taken:
        name = f"value_{name}"
    taken.add(name.lower())
    return name


def _stored_name(field: pa.Field) -> str | None:
    found = (field.metadata or {}).get(SOURCE.encode())
    return None if found is None else found.decode()


def _grown_type(old: pa.DataType | None, new: pa.DataType) -> pa.DataType:
    """The table's type for a decoder's type, as an extension of the type it has."""
    if pa.types.is_struct(new):
        return pa.struct(_grown_fields(old, new))
    if pa.types.is_list(new) or pa.types.is_large_list(new):
        inside = old.value_type if old is not None else None
        return pa.list_(pa.field("element", _grown_type(inside, new.value_type)))
    if pa.types.is_map(new):
        inside = old.item_type if old is not None else None
        return pa.map_(new.key_type, _grown_type(inside, new.item_type))
    return old if old is not None else new


def _grown_fields(old: pa.DataType | None, new: pa.DataType) -> list[pa.Field]:
    fields = [] if old is None else [old.field(i) for i in range(old.num_fields)]
    places = {_stored_name(field) or field.name: at for at, field in enumerate(fields)}
    taken = {field.name.lower() for field in fields}
    for field in _children(new):
        at = places.get(field.name)
        if at is not None:
            fields[at] = fields[at].with_type(_grown_type(fields[at].type, field.type))
            continue
        name = _free(field.name, taken)
        metadata = None if name == field.name else {SOURCE: field.name}
        fields.append(pa.field(name, _grown_type(None, field.type), metadata=metadata))
    return fields


def _decoders_type(table: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(table):
        return pa.struct(
            [pa.field(_stored_name(f) or f.name, _decoders_type(f.type)) for f in _children(table)]
        )
    if pa.types.is_list(table):
        return pa.list_(_decoders_type(table.value_type))
    if pa.types.is_map(table):
        return pa.map_(table.key_type, _decoders_type(table.item_type))
    return table


def _children(type_: pa.DataType) -> Iterator[pa.Field]:
    return (type_.field(i) for i in range(type_.num_fields))


def _conformed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        return _conformed_struct(array, wanted)
    if pa.types.is_list(wanted) or pa.types.is_map(wanted):
        if array.offset or len(array.values) != array.offsets[-1].as_py():
            array = pa.concat_arrays([array, array.slice(0, 0)])
        return _conformed_lists(array, wanted)
    return array.cast(wanted)


def _conformed_struct(array: pa.StructArray, wanted: pa.DataType) -> pa.Array:
    inside = {array.type.field(i).name: array.field(i) for i in range(array.type.num_fields)}
    children = []
    for field in _children(wanted):
        child = inside.get(_stored_name(field) or field.name)
        missing = child is None
        children.append(
            pa.nulls(len(array), field.type) if missing else _conformed(child, field.type)
        )
    fields: Iterable[pa.Field] = list(_children(wanted))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _conformed_lists(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    if pa.types.is_map(wanted):
        items = _conformed(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, wanted, mask=mask)
    values = _conformed(array.values, wanted.value_type)
    return pa.ListArray.from_arrays(array.offsets, values, wanted, mask=mask)
