"""Records of a topic as a table for SQL: the decoded value as a struct, by the formats of the typed
table, and the bytes that it came from."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.typed.decoding import (
    BlobDecoder,
    DeclarationError,
    DeclaredFormat,
    SchemaSource,
)
from headwater_tier.typed.formats.column_types import VALUE_COLUMN
from headwater_tier.typed.formats.confluent import id_of
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError

RECORDS_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
GUESSED_FROM = 20
"""Values that are looked at for a format where none is declared."""


@dataclass(frozen=True, slots=True)
class RecordsTable:
    """A table and what is to be said of it."""

    table: pa.Table
    note: str = ""


def records_table(
    records: pa.Table, schemas: SchemaSource, declared: DeclaredFormat | None
) -> RecordsTable:
    """The columns partition, offset, timestamp, key, value and, of decoded values, raw."""
    columns = {name: records.column(name) for name in ("partition", "offset", "timestamp")}
    columns |= _texts("key", records.column("key"))
    values = records.column("value")
    found = declared or _guessed(values)
    if found is None:
        return RecordsTable(pa.table({**columns, **_texts("value", values)}))
    try:
        decoded = _decoder(found, schemas).decode(values)
    except (DeclarationError, SchemaUnavailableError) as error:
        return RecordsTable(pa.table({**columns, **_texts("value", values)}), str(error))
    misfits = {misfit.row for misfit in decoded.misfits}
    columns["value"] = _struct(decoded.columns, values, misfits)
    raw = _texts("raw", values)
    columns["raw"] = raw.get("raw_bytes", raw["raw"])
    note = ""
    if misfits:
        note = (
            f"{len(misfits)} values do not fit {found.format}: they are NULL, see raw"
            f" ({decoded.misfits[0].detail})"
        )
    return RecordsTable(pa.table(columns), note)


def _struct(columns: pa.Table, values: pa.ChunkedArray, misfits: set[int]) -> pa.Array:
    names = columns.schema.names
    if names == [VALUE_COLUMN] or not names:
        return columns.column(0) if names else pa.nulls(len(values))
    nulls = values.is_null().to_pylist()
    mask = pa.array([is_null or row in misfits for row, is_null in enumerate(nulls)], pa.bool_())
    arrays = [_whole(columns.column(name)) for name in names]
    return pa.StructArray.from_arrays(arrays, fields=list(columns.schema), mask=mask)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _decoder(declared: DeclaredFormat, schemas: SchemaSource) -> BlobDecoder:
    """The topic's decoder. Plain JSON goes without its kernel, whose loading takes longer than
    these few records."""
    is_inferred = declared.format == "json" and declared.schema in ("", "infer")
    if is_inferred and not declared.envelope and not declared.variant:
        return RowsDecoder(JsonRows(pa.schema([]), grows=True))
    return decoder_for(declared, pa.schema([]), schemas)


def _texts(name: str, column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """The column as text; where some of it is no UTF-8, that is null, and all of it is in
    `NAME_bytes`, too."""
    try:
        return {name: pc.cast(column, pa.string())}
    except pa.ArrowInvalid:
        texts = pa.chunked_array([pa.array(map(_text, column.to_pylist()), pa.string())])
        return {name: texts, f"{name}_bytes": column}


def _text(blob: bytes | None) -> str | None:
    if blob is None:
        return None
    try:
        return blob.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _guessed(values: pa.ChunkedArray) -> DeclaredFormat | None:
    """The format of the first values; None for text and bytes."""
    some = pc.drop_null(values).slice(0, GUESSED_FROM).to_pylist()
    if not some:
        return None
    if all(blob.lstrip()[:1] == b"{" for blob in some):
        return DeclaredFormat("json", "infer")
    if all(id_of(blob) is not None for blob in some):
        return DeclaredFormat("confluent", "registry")
    return None
