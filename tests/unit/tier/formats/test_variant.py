"""JSON as VARIANT: Spark's own reader of variants must read what was written."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from headwater_tier.typed.decoding import DeclarationError, DeclaredFormat
from headwater_tier.typed.formats.column_types import is_variant
from headwater_tier.typed.quarantine_reasons import Reason
from unit.tier.formats.format_rows import decode, reasons, rows_of

VARIANT = DeclaredFormat("json", variant=True)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.text(max_size=5) | st.text(min_size=60, max_size=70)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def read(text: bytes) -> Any:
    """The value as Spark has it."""
    found = rows_of(decode(VARIANT, [text]))[0]["value"]
    with localcontext(prec=60):  # pyspark scales decimals in the context, of 28 digits by default
        return VariantVal(found["value"], found["metadata"]).toPython()


@given(VALUES)
@settings(max_examples=200)
def test_spark_reads_what_was_written(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text, value",
    [
        (b"1.50", Decimal("1.50")),
        (b"-12345678901234567890.123456789", Decimal("-12345678901234567890.123456789")),
        (b"0.00000000012", Decimal("1.2E-10")),
        (b"-1e-19", Decimal("-1E-19")),
        (b"0.0000000000", Decimal(0)),
        (b"1e300", 1e300),
        (b"9223372036854775808", Decimal(1 << 63)),
        (b"-128", -128),
        (b"0.1000000000000000055511151231257827021181583404541015625", 0.1),
    ],
)
def test_numbers_are_exact(text: bytes, value: Any) -> None:
    found = read(text)
    assert found == value
    assert type(found) is type(value) or isinstance(found, int)


def test_values_may_nest_200_levels() -> None:
    text = b'{"k":[' * 100 + b"]}" * 100
    assert read(text) is not None


def test_large_objects_and_arrays() -> None:
    value = {f"key{n}": [n] * 300 for n in range(300)}
    assert read(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text, reason",
    [
        (b"123456789012345678901234567890123456789012345", Reason.OUT_OF_RANGE),
        (b"1e400", Reason.OUT_OF_RANGE),
        (b'{"a":{"b":1,"b":1}}', Reason.DUPLICATE_KEY),
        (b'"\xff"', Reason.MALFORMED),
        (b"[" * 202 + b"]" * 202, Reason.DOES_NOT_FIT),
        (b'"' + b"x" * (17 << 20) + b'"', Reason.DOES_NOT_FIT),
    ],
)
def test_what_no_variant_holds_is_a_misfit(text: bytes, reason: Reason) -> None:
    decoded = decode(VARIANT, [text, b"1", None])
    assert reasons(decoded) == {0: reason}
    assert [row["value"] is None for row in rows_of(decoded)] == [True, False, True]


def test_the_column_is_marked_as_variant() -> None:
    assert is_variant(decode(VARIANT, []).columns.schema.field("value"))


@pytest.mark.parametrize("form", ["avro", "confluent", "string"])
def test_only_json_is_kept_as_variant(form: str) -> None:
    with pytest.raises(DeclarationError, match=r"headwater\.typed\.variant"):
        decode(DeclaredFormat(form, variant=True), [])
