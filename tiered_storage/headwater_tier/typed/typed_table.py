"""The typed table of a topic: its current generation, its declarations, its growth.

A generation is a table of its own. `headwater tier retype` builds the next one beside it and then
sets the property `headwater.typed.superseded` on the old one: that one commit is the swap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headwater.ids import id_text
from headwater_tier.delta import TableAccessError, table_exists
from headwater_tier.schema import TOPIC, TOPIC_ID
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import Part, known, new_table
from headwater_tier.typed.declarations import (
    PROPERTY,
    Declaration,
    Since,
    from_property,
    to_property,
)
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.derived_files import stats_columns
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.record_decoder import BINARY_KEY, RecordDecoder

SUPERSEDED = "headwater.typed.superseded"
"""Property: the generation that took this one's place."""
FORMAT = "headwater.typed.format"
FORMAT_VERSION = "1"
STATS_PROPERTY = "delta.dataSkippingStatsColumns"
KEPT_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}


def current_generation(log: TableLocation, *, checked: bool = True) -> DerivedTable | None:
    """The typed table that is in place; None while the topic has none.

    Raises TableAccessError; TableStateError for a foreign change, unless not `checked`.
    """
    generation = 1
    while True:
        place = derived(log, Kind.TYPED, generation)
        if not table_exists(place.place):
            if generation == 1:
                return None
            raise TableAccessError(f"there is no table at {place.place.uri}, which took the place")
        table = DerivedTable(place, checked=False)
        successor = superseded_by(table)
        if successor is None:
            if checked:
                table.check()
            return table
        generation = successor


def superseded_by(table: DerivedTable) -> int | None:
    """The generation that took the table's place; None if it is the current one."""
    found = table.properties.get(SUPERSEDED)
    return None if found is None else int(found)


def create_typed(
    log: TableLocation,
    declaration: Declaration,
    schemas: SchemaSource,
    decoder_for: DecoderFor,
    *,
    generation: int = 1,
) -> DerivedTable:
    """Create a generation's table with the columns that the declaration names so far."""
    fresh = RecordDecoder(declaration, pa.schema([]), schemas, decoder_for)
    schema = new_table(fresh.keys, fresh.values)
    properties = base_properties(log, schema) | {PROPERTY: to_property([Since(declaration, {})])}
    return DerivedTable.create(derived(log, Kind.TYPED, generation), schema, properties)


def base_properties(log: TableLocation, schema: pa.Schema) -> dict[str, str]:
    """The properties that every derived table is created with."""
    return {
        **KEPT_PROPERTIES,
        TOPIC: log.topic,
        TOPIC_ID: id_text(log.topic_id),
        FORMAT: FORMAT_VERSION,
        STATS_PROPERTY: ",".join(stats_columns(schema)),
    }


def declarations_of(table: DerivedTable) -> tuple[Since, ...]:
    """The declarations that the table's rows were decoded by, oldest first.

    Raises TableStateError for a property that someone changed.
    """
    return table.parsed(PROPERTY, lambda text: from_property(text or ""))


def declare(table: DerivedTable, declaration: Declaration, ends: Mapping[int, int]) -> None:
    """Go by another declaration from these offsets on. Raises CommitUnknownError."""
    declarations = [*declarations_of(table), Since(declaration, dict(ends))]
    table.set_properties({PROPERTY: to_property(declarations)})
    table.refresh()


def grow(table: DerivedTable, schema: pa.Schema) -> None:
    """Add the columns of a grown schema. Raises CommitUnknownError."""
    table.grow(schema)
    table.refresh()
    stats = ",".join(stats_columns(table.schema))
    if table.properties.get(STATS_PROPERTY) != stats:
        table.set_properties({STATS_PROPERTY: stats})
        table.refresh()


def incompatibility(
    old: Declaration,
    new: Declaration,
    table: pa.Schema,
    schemas: SchemaSource,
    decoder_for: DecoderFor,
) -> str | None:
    """Why the table cannot go on by the new declaration; None if it can, by adding columns."""
    if (old.key is None) != (new.key is None):
        return "keys become columns, or no longer"
    for name, before, after in (("value", old.value, new.value), ("key", old.key, new.key)):
        if before is None or after is None:
            continue
        if before.variant != after.variant:
            return "values become a VARIANT, or no longer"
        if before.envelope != after.envelope:
            return f"the envelope of {name}s changes"
    fresh = RecordDecoder(new, pa.schema([]), schemas, decoder_for)
    keys = fresh.keys if new.key is not None else BINARY_KEY
    for part, schema in ((Part.KEY, keys), (Part.VALUE, fresh.values)):
        problem = _changed(known(table, part), schema)
        if problem:
            return f"{part.value}s' column {problem}"
    return None


def _changed(old: pa.Schema | pa.DataType, new: pa.Schema | pa.DataType) -> str | None:
    """The first column whose type differs; columns that only one has are no change."""
    before = {field.name: field.type for field in _fields(old)}
    for field in _fields(new):
        type_ = before.get(field.name)
        if type_ is None:
            continue
        if pa.types.is_struct(type_) and pa.types.is_struct(field.type):
            problem = _changed(type_, field.type)
            if problem:
                return f"{field.name}.{problem}"
        elif not _same_shape(type_, field.type):
            return f"{field.name} is {type_}, declared is {field.type}"
    return None


def _same_shape(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_list(old) and pa.types.is_list(new):
        inside = pa.struct([pa.field("element", old.value_type)])
        return _changed(inside, pa.struct([pa.field("element", new.value_type)])) is None
    return bool(old == new)


def _fields(schema: pa.Schema | pa.DataType) -> Sequence[pa.Field]:
    if isinstance(schema, pa.Schema):
        return list(schema)
    return [schema.field(i) for i in range(schema.num_fields)]
