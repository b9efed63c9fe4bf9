"""Inferred JSON: what decides a column's type, how it grows, and what does not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater_tier.typed.decoding import DeclaredFormat, Decoded
from headwater_tier.typed.formats.column_types import COLUMNS_MAX, NESTING_MAX
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.memory_schemas import MemorySchemas
from headwater_tier.typed.quarantine_reasons import Reason

NOTHING = pa.schema([])


def decode(rows: list[bytes | None], known: pa.Schema = NOTHING) -> Decoded:
    decoder = decoder_for(DeclaredFormat("json"), known, MemorySchemas())
    return decoder.decode(pa.chunked_array([rows], type=pa.binary()))


def rows_of(decoded: Decoded) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decoded.columns.to_pylist()
    return rows


def reasons(decoded: Decoded) -> dict[int, Reason]:
    return {misfit.row: misfit.reason for misfit in decoded.misfits}


def test_the_first_value_that_is_not_null_decides_a_columns_type() -> None:
    decoded = decode([b'{"a":null,"n":[]}', b'{"a":1,"b":1.0,"c":"x","d":true,"e":[1,2.5]}'])
    types = dict(zip(decoded.columns.schema.names, decoded.columns.schema.types, strict=True))
    assert types == {
        "a": pa.int64(),
        "b": pa.float64(),
        "c": pa.string(),
        "d": pa.bool_(),
        "e": pa.list_(pa.field("element", pa.float64())),
    }
    assert rows_of(decoded)[1] == {"a": 1, "b": 1.0, "c": "x", "d": True, "e": [1.0, 2.5]}
    assert not decoded.misfits


def test_new_keys_add_columns_at_the_end_and_in_structs() -> None:
    decoded = decode([b'{"s":{"x":1}}', b'{"s":{"x":2,"y":"t"},"z":[{"q":1}]}', b'{"z":[{"r":2}]}'])
    assert not decoded.misfits
    assert rows_of(decoded) == [
        {"s": {"x": 1, "y": None}, "z": None},
        {"s": {"x": 2, "y": "t"}, "z": [{"q": 1, "r": None}]},
        {"s": None, "z": [{"q": None, "r": 2}]},
    ]


def test_a_misfit_adds_no_column_and_its_row_is_null() -> None:
    decoded = decode([b'{"a":1}', b'{"new":1,"a":"text"}', b'{"a":2}'])
    assert reasons(decoded) == {1: Reason.DOES_NOT_FIT}
    assert rows_of(decoded) == [{"a": 1}, {"a": None}, {"a": 2}]


@pytest.mark.parametrize(
    "text, fits",
    [(b"5.0", 5), (b"5e2", 500), (b"9007199254740992.5", None), (b"1000000000000.00001", None)],
)
def test_a_fraction_fits_a_bigint_only_if_it_is_a_whole_number(text: bytes, fits: Any) -> None:
    decoded = decode([b'{"a":1}', b'{"a":' + text + b"}"])
    assert rows_of(decoded)[1] == {"a": fits}
    assert reasons(decoded) == ({} if fits else {1: Reason.DOES_NOT_FIT})


@pytest.mark.parametrize(
    "text",
    [
        b"9223372036854775808",
        b"123456789012345678901234567890123456789012345",
        b"1" * 5000,
        b"1e400",
        b"1e-400",
        b"1e99999999999999999999",
        b"0.123456789012345678",
    ],
)
def test_numbers_that_no_column_holds_exactly_are_out_of_range(text: bytes) -> None:
    for known in (NOTHING, pa.schema([("a", pa.float64())]), pa.schema([("a", pa.int64())])):
        decoded = decode([b'{"a":' + text + b"}"], known)
        is_fraction_in_bigint = (known.types == [pa.int64()] and b"." in text) or b"e-" in text
        if not is_fraction_in_bigint and text != b"9223372036854775808":
            assert reasons(decoded) == {0: Reason.OUT_OF_RANGE}, (known, text)
        assert decoded.misfits or text == b"9223372036854775808"


def test_an_exact_decimal_fits_a_double_whatever_its_length() -> None:
    text = b"0.1000000000000000055511151231257827021181583404541015625"
    decoded = decode([b'{"a":' + text + b',"b":4.9e-324}'])
    assert rows_of(decoded) == [{"a": 0.1, "b": 5e-324}]


def test_an_integer_that_a_double_rounds_is_out_of_range() -> None:
    known = pa.schema([("a", pa.float64())])
    decoded = decode([b'{"a":9007199254740993}', b'{"a":9007199254740992}'], known)
    assert reasons(decoded) == {0: Reason.OUT_OF_RANGE}
    assert rows_of(decoded)[1] == {"a": 9007199254740992.0}


@pytest.mark.parametrize(
    "text, reason",
    [
        (b'{"a":1,"a":1}', Reason.DUPLICATE_KEY),
        (b'{"s":[{"a":1,"\\u0061":2}]}', Reason.DUPLICATE_KEY),
        (b'{"a":1,"A":2}', Reason.DUPLICATE_KEY),
        (b'{"a b":1,"a_b":2}', Reason.DUPLICATE_KEY),
        (b'{"a":"\xff"}', Reason.MALFORMED),
        (b'{"a":"\\ud800"}', Reason.MALFORMED),
        (b'{"a":NaN}', Reason.MALFORMED),
        (b'{"a":1', Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (b"[" * 100_000, Reason.MALFORMED),
        (b'{"a":"\x01"}', Reason.MALFORMED),
    ],
)
def test_what_is_no_plain_json_is_a_misfit(text: bytes, reason: Reason) -> None:
    decoded = decode([text, b'{"k":1}'])
    assert reasons(decoded) == {0: reason}
    assert rows_of(decoded)[1] == {"k": 1}


def test_a_null_blob_is_a_row_of_nulls() -> None:
    decoded = decode([None, b'{"a":1}', None])
    assert rows_of(decoded) == [{"a": None}, {"a": 1}, {"a": None}]
    assert not decoded.misfits


def test_blobs_that_are_all_null_have_rows_without_a_column() -> None:
    assert decode([None, None]).columns.num_rows == 2


def test_names_that_delta_refuses_and_names_of_other_case_meet_their_column() -> None:
    decoded = decode([b'{"first name":"x","":1}', b'{"First Name":"y"}'])
    assert rows_of(decoded) == [{"first_name": "x", "_": 1}, {"first_name": "y", "_": None}]


def test_a_value_that_is_no_object_is_the_column_value() -> None:
    assert rows_of(decode([b"5", b"6", b'{"value":7}'])) == [{"value": n} for n in (5, 6, 7)]


def test_columns_have_a_limit() -> None:
    rows: list[bytes | None] = [
        b"{" + b",".join(b'"k%d":1' % key for key in range(n, n + 500)) + b"}"
        for n in range(0, COLUMNS_MAX + 1000, 500)
    ]
    decoded = decode(rows)
    assert decoded.columns.num_columns == COLUMNS_MAX
    assert set(reasons(decoded).values()) == {Reason.DOES_NOT_FIT}


def test_the_same_rows_in_other_chunks_give_the_same_columns_and_misfits() -> None:
    rows = [b'{"a":1}', b'{"a":1.5}', b'{"b":1.5}', b'{"b":2,"c":{}}', b'{"c":{"d":[]},"b":"x"}']
    whole = decode(list(rows))
    decoder = decoder_for(DeclaredFormat("json"), NOTHING, MemorySchemas())
    single = [decoder.decode(pa.chunked_array([[row]], type=pa.binary())) for row in rows]
    assert decoder.schema == whole.columns.schema
    assert [bool(one.misfits) for one in single] == [at in reasons(whole) for at in range(5)]


@pytest.mark.parametrize("depth", [NESTING_MAX + 1, 100, 500, 900])
@pytest.mark.parametrize(("opened", "closed"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_what_no_schema_of_delta_can_hold_is_a_misfit(
    depth: int, opened: bytes, closed: bytes
) -> None:
    deep = b'{"a":' + opened * depth + b"1" + closed * depth + b"}"
    decoded = decode([b'{"ok":1}', deep, b'{"ok":2}'])
    assert [misfit.row for misfit in decoded.misfits] == [1]
    assert rows_of(decoded) == [{"ok": 1}, {"ok": None}, {"ok": 2}]


def test_a_value_of_which_arrow_makes_nothing_is_a_misfit_of_its_row() -> None:
    class Reader:
        schema = pa.schema([pa.field("m", pa.map_(pa.string(), pa.int64()))])

        def read(self, blob: bytes) -> dict[str, Any]:
            return {"m": [(None if blob == b"bad" else "k", len({}[0] if blob == b"?" else "x"))]}

    blobs = pa.chunked_array([[b"bad", b"good", b"?"]], type=pa.binary())
    decoded = RowsDecoder(Reader()).decode(blobs)
    assert sorted(misfit.row for misfit in decoded.misfits) == [0, 2]
    assert rows_of(decoded) == [{"m": None}, {"m": [("k", 1)]}, {"m": None}]
