"""The Avro kernel against its oracle, fastavro, on data of any kind and on broken bytes."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_tier.typed.formats.avro_fast import AvroFast
from headwater_tier.typed.formats.avro_rows import AvroSource
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.slots import Slots, blobs_of
from headwater_tier.typed.formats.source_columns import SourceRows
from unit.tier.formats.format_rows import rows_of

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
DOUBLES = st.floats(allow_nan=True)
INNER = {
    "type": "record",
    "name": "I",
    "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": "string"}],
}
INNERS = st.fixed_dictionaries({"a": st.none() | LONGS, "b": st.text(max_size=4)})
SYMBOLS = ["A", "LONGER"]
FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "b": ("boolean", st.booleans()),
    "i": ("int", INTS),
    "l": ("long", LONGS),
    "f": ("float", st.floats(width=32)),
    "d": ("double", DOUBLES),
    "s": ("string", st.text(max_size=5)),
    "y": ("bytes", st.binary(max_size=5)),
    "x": ({"type": "fixed", "name": "X", "size": 3}, st.binary(min_size=3, max_size=3)),
    "e": ({"type": "enum", "name": "E", "symbols": SYMBOLS}, st.sampled_from(SYMBOLS)),
    "nl": (["null", "long"], st.none() | LONGS),
    "sn": (["string", "null"], st.none() | st.text(max_size=5)),
    "ne": (["null", "E"], st.none() | st.just(("E", "A"))),
    "z": ("null", st.none()),
    "ms": ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(1 << 54), 1 << 54)),
    "us": ({"type": "long", "logicalType": "timestamp-micros"}, LONGS),
    "day": ({"type": "int", "logicalType": "date"}, st.integers(-10_000_000, 10_000_000)),
    "dec": ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2},
            st.integers(-(10**40), 10**40).map(lambda n: n.to_bytes(18, "big", signed=True))),
    "nd": (["null", {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal",
                     "precision": 9, "scale": 1}],
           st.none() | st.binary(min_size=4, max_size=4).map(lambda data: ("D", data))),
    "r": (["null", INNER], st.none() | INNERS.map(lambda row: ("I", row))),
    "q": ("I", INNERS),
    "o": ({"type": "record", "name": "O", "fields": [{"name": "z", "type": "null"}]},
          st.just({"z": None})),
}  # fmt: skip
RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": name, "type": kind} for name, (kind, _) in FIELDS.items()],
}
PHYSICAL = fastavro.parse_schema(json.loads(json.dumps(RECORD).replace("logicalType", "kept")))
SOURCE = AvroSource(json.dumps(RECORD))
ROWS = st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()})


def datum(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PHYSICAL, row)
    return out.getvalue()


@st.composite
def blobs(draw: st.DrawFn) -> bytes:
    blob = datum(draw(ROWS))
    if draw(st.integers(0, 2)) == 0:
        at = draw(st.integers(0, len(blob) - 1))
        blob = blob[:at] + draw(st.binary(max_size=2)) + blob[at + draw(st.integers(0, 2)) :]
    return blob


def outcome(decoder: RowsDecoder, column: pa.ChunkedArray) -> Any:
    decoded = decoder.decode(column)
    decoded.columns.validate(full=True)
    columns = decoded.columns
    for at, field in enumerate(columns.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
            width = pa.int64() if pa.types.is_timestamp(field.type) else pa.int32()
            columns = columns.set_column(at, field.name, columns.column(at).cast(width))
    rows = [
        {k: struct.pack("<d", v) if isinstance(v, float) else v for k, v in row.items()}
        for row in columns.to_pylist()
    ]
    return rows, [(m.row, m.reason) for m in decoded.misfits]


@given(st.lists(st.none() | blobs(), min_size=1, max_size=6))
@settings(max_examples=200)
def test_kernel_and_fastavro_agree(data: list[bytes | None]) -> None:
    column = pa.chunked_array([data], type=pa.binary())
    rows = SourceRows(SOURCE, SOURCE.columns)
    assert outcome(RowsDecoder(rows, SOURCE.fast()), column) == outcome(RowsDecoder(rows), column)


def test_ordinary_records_are_all_the_kernels() -> None:
    row: dict[str, Any] = {"b": True, "i": 1, "l": 2, "f": 1.5, "d": 2.5, "s": "ü", "y": b"y",
                           "x": b"xyz", "e": "LONGER", "nl": None, "sn": "n", "ne": ("E", "A"),
                           "z": None, "ms": 1, "us": 2, "day": 3, "dec": b"\x05",
                           "nd": None, "r": ("I", {"a": 5, "b": "x"}),
                           "q": {"a": None, "b": "y"}, "o": {"z": None}}  # fmt: skip
    data = blobs_of(pa.array([datum(row)] * 3, pa.binary()))
    slots = Slots(SOURCE.columns, 3)
    AvroFast(SOURCE.schema).fill(data, np.arange(3), slots, SOURCE.columns)
    assert slots.is_done.all()
    arrays = slots.arrays(data.data)
    table = pa.Table.from_arrays(arrays, schema=SOURCE.columns)
    expected = {**row, "ne": "A", "r": {"a": 5, "b": "x"}}
    expected["dec"] = Decimal("0.05")
    del expected["z"], expected["o"], expected["ms"], expected["us"], expected["day"]
    assert table.drop_columns(["ms", "us", "day"]).to_pylist() == [expected] * 3


def test_a_column_of_another_type_is_fastavros() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    source = AvroSource(text)
    decoder = RowsDecoder(SourceRows(source, pa.schema([("a", pa.float64())])), source.fast())
    assert rows_of(decoder.decode(pa.chunked_array([[b"\x04"]], pa.binary()))) == [{"a": 2.0}]


def test_a_record_without_columns_has_rows() -> None:
    source = AvroSource('{"type":"record","name":"R","fields":[{"name":"a","type":"null"}]}')
    decoder = RowsDecoder(SourceRows(source, source.columns), source.fast())
    decoded = decoder.decode(pa.chunked_array([[b"", b"x"]], pa.binary()))
    assert decoded.columns.num_rows == 2
    assert [misfit.row for misfit in decoded.misfits] == [1]
