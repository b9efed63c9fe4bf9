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


@pytest.mark.parametrize("text", ['{"flights":{"0":5}}', '{"v":2,"from":{},"to":{},"topics":{}}'])
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="format"):
        from_json(json.loads(text))


def test_initial_holds_no_offsets() -> None:
    with pytest.raises(UsageError, match="initial"):
        from_json(INITIAL)
