"""The JSON kernel against its oracles: orjson, and the exact reader, on texts of any kind."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.formats.column_types import TIMESTAMP, list_of
from headwater_tier.typed.formats.exact_doubles import nearest_bits
from headwater_tier.typed.formats.json_fast import JsonFast
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.misfit import NotFittingError
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.slots import Slots, blobs_of
from unit.tier.formats.format_rows import decode, rows_of

INNER = pa.struct({"b": pa.float64(), "c": pa.string()})
FLAT = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("c", pa.string()),
        ("d", pa.bool_()),
        ("é", pa.int64()),
        ("s", pa.struct({"a": pa.int64(), "t": INNER, "l": list_of(pa.string())})),
        ("l", list_of(pa.struct({"x": pa.int64(), "y": list_of(pa.float64())}))),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("p", pa.decimal128(18, 2)),
        ("w", TIMESTAMP),
        ("day", pa.date32()),
    ]
)
JSON_NUMBER = r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?"
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-1000, 1000).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(0, 1).map(repr),
    st.from_regex(JSON_NUMBER, fullmatch=True),
    st.sampled_from(
        ["-0", "-0.0", "01", "1.", ".5", "+1", "1e", "--1", "9007199254740993", "1e23"]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=8).map(json.dumps),
)
PARTS = [
    '{"a":1,"t":{"b":1.5,"c":"x"},"l":["u",null]}',
    '{"t":{"b":1,"b":2}}',
    '{"t":{"z":1}}',
    '{"t":null,"l":["\\u0041"]}',
    '{"t" : { } }',
    '{"t":{"c":"x"},}',
    '{"l":["x",1]}',
    '[{"x":1,"y":[1,2.5]},null,{}]',
    '[{"x":1,"x":2}]',
    '[{"x":1,"z":2}]',
    '[{"y":[0.1234567890123456789]}]',
    "[1,2}",
    "[[]]",
    '{"k":1,"K":2}',
    '{"k":12345678901234567890}',
    "12.345",
    "12.340",
    '"2026-01-31T12:00:00Z"',
    '"2026-01-31"',
    '"1.50"',
]
VALUES = st.one_of(
    NUMBERS,
    TEXTS,
    st.sampled_from(["null", "true", "false", "tru", "[]", "{}", '{"a":1}', ""]),
    st.sampled_from(PARTS),
)
KEYS = st.sampled_from(["a", "b", "c", "d", "é", "s", "t", "s", "A", "x", "\\u0061", ""])
FITTING = [
    ("s", PARTS[0]),
    ("s", PARTS[3]),
    ("s", PARTS[4]),
    ("l", PARTS[7]),
    ("l", "[]"),
    ("m", '{"k" : 1 , "K": null}'),
    ("p", "12.340"),
    ("p", '"1.50"'),
    ("w", '"2026-01-31T12:00:00Z"'),
    ("day", '"2026-01-31"'),
    ("a", "7"),
    ("c", '"text"'),
]
SPACES = st.sampled_from(["", "", "", " ", "\n\t", "\r"])


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    def space() -> str:
        return draw(SPACES)

    fields = draw(st.lists(st.tuples(KEYS, VALUES) | st.sampled_from(FITTING), max_size=6))
    inner = ",".join(f'{space()}"{k}"{space()}:{space()}{v}{space()}' for k, v in fields)
    text = f"{space()}{{{inner}}}{space()}".encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0 and text:
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.binary(max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    return text


class ExactRows(JsonRows):
    """The reader without orjson's short cut."""

    def read(self, blob: bytes) -> dict[str, Any]:
        return self.read_exact(blob)


def shown(value: Any) -> Any:
    """Doubles by their bits: -0.0 is not 0.0."""
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


def outcome(decoder: RowsDecoder, texts: list[bytes | None]) -> Any:
    decoded = decoder.decode(pa.chunked_array([texts], type=pa.binary()))
    decoded.columns.validate(full=True)
    rows = [shown(row) for row in rows_of(decoded)]
    return decoded.columns.schema, rows, [(m.row, m.reason) for m in decoded.misfits]


@given(st.lists(st.one_of(st.none(), objects()), min_size=1, max_size=8))
@settings(max_examples=200)
def test_kernel_orjson_and_the_exact_reader_agree(texts: list[bytes | None]) -> None:
    for grows in (True, False):
        fast = outcome(RowsDecoder(JsonRows(FLAT, grows), JsonFast(grows)), texts)
        assert fast == outcome(RowsDecoder(JsonRows(FLAT, grows)), texts)
        assert fast == outcome(RowsDecoder(ExactRows(FLAT, grows)), texts)


@given(objects())
@settings(max_examples=200)
def test_what_the_kernel_proves_is_what_orjson_reads(text: bytes) -> None:
    blobs = blobs_of(pa.array([text], pa.binary()))
    slots = Slots(FLAT, 1)
    JsonFast().fill(blobs, np.arange(1), slots, FLAT)
    if not slots.is_done[0]:
        return
    scalars = FLAT.names[:5]
    row = pa.Table.from_arrays(slots.arrays(blobs.data), schema=FLAT).to_pylist()[0]
    value = {**dict.fromkeys(FLAT.names), **orjson.loads(text)}
    row, value = ({name: one[name] for name in scalars} for one in (row, value))
    if type(value["b"]) is int:
        value["b"] = float(value["b"])
    assert {k: shown(v) for k, v in row.items()} == {k: shown(v) for k, v in value.items()}


@given(st.integers(1, (1 << 64) - 1), st.integers(-110, 110))
@settings(max_examples=400)
def test_doubles_are_the_nearest(digits: int, exponent: int) -> None:
    is_sure, bits = nearest_bits(np.uint64(digits), exponent)
    if is_sure:
        assert struct.pack("<Q", int(bits)) == struct.pack("<d", float(f"{digits}e{exponent}"))
    else:
        assert abs(exponent) > 100


@given(st.integers(0, (1 << 53) - 1), st.integers(-4, 22))
@settings(max_examples=500)
def test_doubles_halfway_between_two_are_rounded_to_even(mantissa: int, exponent: int) -> None:
    digits = 2 * ((1 << 52) | mantissa) + 1
    digits = digits * 5**-exponent if exponent < 0 else digits
    if digits < 1 << 64:
        is_sure, bits = nearest_bits(np.uint64(digits), exponent)
        assert is_sure
        assert struct.pack("<Q", int(bits)) == struct.pack("<d", float(f"{digits}e{exponent}"))


def test_ordinary_rows_are_all_the_kernels() -> None:
    rows = [
        {"a": n, "b": math.sin(n), "c": f"text {n} ü", "d": bool(n % 2), "é": -n}
        for n in range(999)
    ]
    texts = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    blobs = blobs_of(pa.array(texts, pa.binary()))
    slots = Slots(FLAT, len(rows))
    JsonFast().fill(blobs, np.arange(len(rows)), slots, FLAT)
    assert slots.is_done.all()
    assert rows_of(decode(DeclaredFormat("json"), list(texts))) == rows


@pytest.mark.parametrize("step", [2, 7, 5000])
def test_slow_rows_stand_at_their_places_among_fast_ones(step: int) -> None:
    rows: list[dict[str, Any]] = [{"a": n, "c": "x"} for n in range(20_000)]
    for at in range(0, len(rows), step):
        rows[at]["s"] = {"deep": [at]}
    expected = [{"a": r["a"], "c": r["c"], "s": r.get("s")} for r in rows]
    decoded = decode(DeclaredFormat("json"), [json.dumps(row).encode() for row in rows])
    assert rows_of(decoded) == expected


def test_a_slice_of_a_chunk_is_decoded_as_the_chunk_is() -> None:
    texts: list[bytes | None] = [b'{"a":%d}' % n if n % 3 else None for n in range(100)]
    decoder = RowsDecoder(JsonRows(FLAT, True), JsonFast())
    column = pa.chunked_array([texts[:70], texts[70:]], type=pa.binary()).slice(35, 60)
    found = decoder.decode(column).columns.column("a").to_pylist()
    assert found == [n if n % 3 else None for n in range(35, 95)]


def test_a_reader_reports_a_misfit_the_kernel_left() -> None:
    with pytest.raises(NotFittingError):
        JsonRows(FLAT, True).read(b'{"a":1,"a":1}')
