"""The message browser's filter: what it matches, counts and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import UsageError
from headwater_gateway.console.messages.filter_paths import narrowed, uses_of
from headwater_gateway.console.messages.record_filter import RecordFilter, Verdict, timestamp_of

RECORD: dict[str, Any] = {
    "key": "k1",
    "value": {"delay": 31, "carrier": "UA", "legs": [{"to": "SFO"}], "a b": 1, "n": None},
    "headers": {"source": "camera"},
    "partition": 2,
    "offset": 40,
    "timestamp": timestamp_of(1_700_000_000_000),
    "topic": "flights",
}


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("value.delay > 30 && value.carrier == 'UA'", Verdict.MATCH),
        ("value.delay > 31", Verdict.NO_MATCH),
        ('value["a b"] == 1 && headers["source"] == "camera"', Verdict.MATCH),
        ('value.legs.exists(leg, leg.to == "SFO")', Verdict.MATCH),
        ('key.startsWith("k") && partition == 2 && offset >= 40', Verdict.MATCH),
        ('timestamp > timestamp("2023-11-01T00:00:00Z")', Verdict.MATCH),
        ("value.n == null", Verdict.MATCH),
        ("has(value.gate)", Verdict.NO_MATCH),
        ('value.carrier.lowerAscii() == "ua"', Verdict.MATCH),
        ("size(value) == 5", Verdict.MATCH),
        ("value.gate > 1", Verdict.MISSING),
        ("value.legs[7].to == 'x'", Verdict.MISSING),
        ("value.carrier > 1", Verdict.TYPE_ERROR),
        ("value.delay.contains('3')", Verdict.TYPE_ERROR),
        ("value.delay.minutes > 1", Verdict.TYPE_ERROR),
        ("value.delay", Verdict.TYPE_ERROR),
    ],
)
def test_verdict_on_a_record(expression: str, verdict: Verdict) -> None:
    assert RecordFilter(expression).judge(RECORD) is verdict


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("value.a ==", "character 11"),
        ("\n value )", "line 2"),
        ("delay > 3", "value.delay"),
        ("value.a.frobnicate() > 1", "frobnicate()"),
        ("(" * 900 + "1" + ")" * 900, "cannot be read"),
        ("1 == " * 1000, "2000 are the most"),
    ],
)
def test_a_filter_that_cannot_work_is_named(expression: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        RecordFilter(expression)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_integer_beyond_64_bits_is_refused_where_the_filter_uses_it() -> None:
    used, unused = RecordFilter("value.big > 1"), RecordFilter("value.small > 1")
    value = {"big": 1 << 80, "small": 2}
    assert used.judge({"value": value}, is_exact=True) is Verdict.TOO_LONG
    assert unused.judge({"value": value}, is_exact=True) is Verdict.MATCH
    assert used.judge({"value": {"big": 2.0**70}}) is Verdict.UNSURE
    assert used.judge({"value": {"big": 2.0**70}}, is_exact=True) is Verdict.MATCH
    assert used.judge({"value": {"big": (1 << 64) - 1}}) is Verdict.MATCH


def test_a_lone_surrogate_is_a_type_error_and_no_crash() -> None:
    assert RecordFilter("value.a == 'x'").judge({"value": {"a": "\ud800"}}) is Verdict.TYPE_ERROR


@pytest.mark.parametrize(
    ("expression", "trees"),
    [
        ("value.a.b > 1 && value.c", {"value": {"a": {"b": None}, "c": None}}),
        ("value.a.b > 1 && value.a == 2", {"value": {"a": None}}),
        ('value["x y"].z == 1', {"value": {"x y": {"z": None}}}),
        ("value[key] == 1", {"value": None, "key": None}),
        ("size(value) > 1 || value.a", {"value": None}),
        ("value.items.exists(i, i.value > offset)", {"value": {"items": None}, "offset": None}),
        ("value.xs.all(value, value > 1)", {"value": None}),
        ('"value.a" == key // value.b', {"key": None}),
        ("value.name.size() > 1", {"value": {"name": None}}),
        ("{'value': 1}.value == 1", {}),
    ],
)
def test_fields_that_a_filter_uses(expression: str, trees: dict[str, Any]) -> None:
    assert dict(uses_of(expression).trees) == trees


def test_narrowing_keeps_what_is_used_and_what_is_no_object() -> None:
    tree = {"a": {"b": None}, "c": None}
    assert narrowed({"a": {"b": 1, "x": 2}, "y": 3}, tree) == {"a": {"b": 1}}
    assert narrowed({"a": 5}, tree) == {"a": 5}
    assert narrowed("text", tree) == "text"
