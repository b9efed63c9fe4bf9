"""The source's offsets: Spark compares their text, so it must not change."""

from __future__ import annotations

import json

import pytest

from headwater.errors import UsageError
from headwater_spark.source.positions import INITIAL, Position, from_json, is_initial

GOLDEN = (
    '{"from":{"alerts":{"0":0},"flights":{"0":5,"2":0,"10":7}},'
    '"to":{"alerts":{"0":0},"flights":{"0":9,"2":4,"10":7}},'
    '"topics":{"alerts":"AAAAAAAAAAAAAAAAAAAAAQ","flights":"AAAAAAAAAAAAAAAAAAAAAg"},"v":1}'
)


def _position() -> Position:
    return Position(
        start={("flights", 10): 7, ("flights", 2): 0, ("alerts", 0): 0, ("flights", 0): 5},
        end={("flights", 0): 9, ("flights", 10): 7, ("alerts", 0): 0, ("flights", 2): 4},
        topic_ids={"flights": "AAAAAAAAAAAAAAAAAAAAAg", "alerts": "AAAAAAAAAAAAAAAAAAAAAQ"},
    )


def test_golden_text() -> None:
    assert _position().text() == GOLDEN


def test_text_survives_a_round_trip_through_json() -> None:
    assert from_json(json.loads(GOLDEN)).text() == GOLDEN
    assert json.dumps(from_json(json.loads(GOLDEN)).to_json(), separators=(",", ":")) == GOLDEN


def test_initial_is_a_constant() -> None:
    assert json.dumps(INITIAL, separators=(",", ":")) == '{"initial":true,"v":1}'
    assert is_initial(INITIAL)
    assert not is_initial(json.loads(GOLDEN))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"flights":{"0":5,"1":7}}', "an offset of Spark's Kafka source"),
        ('{"logOffset":3}', "an offset of a file source"),
        ('{"sourceVersion":1,"reservoirId":"x","reservoirVersion":4}', "a Delta table's stream"),
        ("17", "a number, as an offset of the rate or socket source"),
        ('"x"', "an offset of another source"),
        ('{"v":"1","rows":2}', "an offset of another source"),
        ("null", "an offset of another source"),
    ],
)
def test_another_sources_checkpoint_is_refused_by_its_name(text: str, found: str) -> None:
    with pytest.raises(UsageError, match="with a checkpoint of its own") as refusal:
        from_json(json.loads(text))
    assert found in str(refusal.value)


@pytest.mark.parametrize(
    "text", ['{"v":2,"from":{},"to":{},"topics":{},"more":1}', '{"initial":true,"v":2}']
)
def test_a_newer_format_is_refused(text: str) -> None:
    assert not is_initial(json.loads(text))
    with pytest.raises(UsageError, match="has format 2, this Headwater reads format 1"):
        from_json(json.loads(text))


def test_a_damaged_offset_is_refused() -> None:
    with pytest.raises(UsageError, match="damaged"):
        from_json({"from": {"a": {"0": "x"}}, "to": {}, "topics": {}, "v": 1})


def test_an_excerpt_of_a_foreign_offset_is_short() -> None:
    with pytest.raises(UsageError) as refusal:
        from_json({"flights": {str(p): 10**9 for p in range(1000)}})
    assert len(str(refusal.value)) < 500


def test_initial_holds_no_offsets() -> None:
    with pytest.raises(UsageError, match="initial"):
        from_json(INITIAL)
