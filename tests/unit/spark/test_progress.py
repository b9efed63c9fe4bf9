"""A query's progress: Headwater's offsets are read, other sources' are ignored."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from headwater_spark.source.positions import INITIAL, Position
from headwater_spark.source.progress import lag, source_offsets

READ = Position({("a", 0): 0}, {("a", 0): 7}, {"a": "id-a"})
NEWEST = Position({("a", 0): 0}, {("a", 0): 10}, {"a": "id-a"})
DELTA = {"sourceVersion": 1, "reservoirId": "b77f", "reservoirVersion": 1, "index": -1}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def of_listener(*sources: dict[str, Any]) -> Any:
    """The same as a listener gets it: offsets are text, "None" where there is none."""
    rows = [
        SimpleNamespace(
            **{name: str(v) if v is None else json.dumps(v) for name, v in given.items()}
        )
        for given in sources
    ]
    return SimpleNamespace(sources=rows)


OURS = source(READ.to_json(), NEWEST.to_json())


@pytest.mark.parametrize(
    "foreign",
    [
        source(DELTA, None),
        source(3, 3),  # rate
        source({"to": {"0": 5}}, {"to": {"0": 9}}),  # Kafka's, of a topic named "to"
        source({"logOffset": 0}, None),  # files
        source({**READ.to_json(), "v": 2}, None),
        source(INITIAL, None),
        source(None, None),
    ],
)
def test_other_sources_are_left_out(foreign: dict[str, Any]) -> None:
    expected = [(READ.end, NEWEST.end)]
    assert source_offsets({"sources": [foreign, OURS]}) == expected
    assert source_offsets(of_listener(foreign, OURS)) == expected


def test_lag_is_the_newest_offset_minus_the_read_one() -> None:
    assert lag({"sources": [OURS]}) == {("a", 0): 3}
    assert lag(of_listener(source(READ.to_json(), None))) == {("a", 0): 0}


def test_an_offset_that_is_not_json_is_left_out() -> None:
    strange = SimpleNamespace(endOffset="DeltaOffset(3)", latestOffset="None")
    assert source_offsets(SimpleNamespace(sources=[strange])) == []
