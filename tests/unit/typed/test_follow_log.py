"""Following the log table: each record is once in the typed table, or once in quarantine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater_tier.delta import TableAccessError
from headwater_tier.log_starts import move_starts
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.quarantine_table import Quarantine
from typed_topic import CLOCK, TypedTopic


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    return TypedTopic(tmp_path)


def rows(topic: TypedTopic, kind: Kind = Kind.TYPED, generation: int = 1) -> list[dict[str, Any]]:
    place = derived(topic.location, kind, generation).place
    found = DeltaTable(place.uri).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_records_become_rows_with_columns(topic: TypedTopic) -> None:
    topic.produce(0, {"a": 1, "b": "x"}, None)
    topic.produce(1, {"a": 2, "c": 1.5})
    topic.tier()
    result = topic.follow()
    assert (result.rows, result.ends, result.behind) == (3, {0: 2, 1: 1}, 0)
    found = rows(topic)
    assert [(r["a"], r["b"], r["c"], r["key"]) for r in found] == [
        (1, "x", None, b"k"),
        (None, None, None, b"k"),
        (2, None, 1.5, b"k"),
    ]
    assert [r["is_tombstone"] for r in found] == [False, True, False]


def test_a_turn_without_new_rows_commits_nothing(topic: TypedTopic) -> None:
    topic.produce(0, {"a": 1})
    topic.tier()
    topic.follow()
    version = DeltaTable(derived(topic.location, Kind.TYPED).place.uri).version()
    assert topic.follow().rows == 0
    assert DeltaTable(derived(topic.location, Kind.TYPED).place.uri).version() == version


def test_history_is_backfilled_in_bounded_turns(topic: TypedTopic) -> None:
    for n in range(6):
        topic.produce(0, *({"n": n * 10 + i} for i in range(10)))
        topic.tier()
    first = topic.follow(rows_max=10)
    assert (first.rows, first.behind) == (10, 50)
    assert topic.follow_all(rows_max=25).behind == 0
    assert [r["n"] for r in rows(topic)] == list(range(60))


def test_what_does_not_fit_is_quarantined_and_stops_nothing(topic: TypedTopic) -> None:
    topic.produce(0, {"a": 1}, b"{not json", {"a": "text"}, {"a": 2})
    topic.tier()
    result = topic.follow()
    assert (result.rows, result.quarantined, result.quarantine_behind) == (2, 2, 0)
    assert [r["a"] for r in rows(topic)] == [1, 2]
    bad = rows(topic, Kind.QUARANTINE)
    assert [(r["offset"], r["reason"], r["value"]) for r in bad] == [
        (1, "malformed", b"{not json"),
        (2, "does not fit", b'{"a": "text"}'),
    ]
    assert {r["generation"] for r in bad} == {1}


def test_offsets_that_retention_removed_before_typing_are_named(topic: TypedTopic) -> None:
    topic.produce(0, {"n": 0})
    topic.tier()
    topic.follow()
    topic.produce(0, *({"n": n} for n in range(1, 5)))
    topic.tier()
    move_starts(topic.location, {0: 3}, clock=CLOCK)
    result = topic.follow()
    assert result.problem == "retention removed offsets of orders that were not typed: 0: [1, 3)"
    assert [r["n"] for r in rows(topic)] == [0, 3, 4]
    assert topic.follow().problem == ""


def test_a_gap_wider_than_a_restore_leaves_is_passed_at_once(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the quarantine, which counts offsets, lags behind it."""
    gap = 1 << 33
    topic.produce(0, {"n": 1}, b"{bad")
    topic.tier()
    topic.log.next[0] += gap
    topic.produce(0, {"n": 2}, b"{bad")
    topic.tier()
    with monkeypatch.context() as broken:
        broken.setattr(Quarantine, "append", _unreachable)
        found = topic.follow()
    assert (found.rows, found.behind, found.quarantine_behind) == (2, 0, gap + 4)
    assert [r["offset"] for r in rows(topic)] == [0, gap + 2]
    turns = 1
    while not topic.follow().is_caught_up:
        turns += 1
        assert turns < 5
    assert [r["offset"] for r in rows(topic, Kind.QUARANTINE)] == [1, gap + 3]


def _unreachable(*_given: Any, **_more: Any) -> None:
    raise TableAccessError("not reachable")


def test_clashing_names_get_a_prefix(topic: TypedTopic) -> None:
    topic.produce(0, {"Offset": 7, "key": "v", "a": 1})
    topic.tier()
    topic.follow()
    (row,) = rows(topic)
    assert (row["offset"], row["value_Offset"], row["value_key"], row["key"]) == (0, 7, "v", b"k")
    topic.produce(0, {"Offset": 8})
    topic.tier()
    topic.follow()
    assert rows(topic)[1]["value_Offset"] == 8


def test_keys_become_columns(topic: TypedTopic) -> None:
    topic.configs["headwater.key.format"] = "json"
    topic.produce_pairs(0, (b'{"id": 5}', {"a": 1}), (None, {"a": 2}), (b"bad", {"a": 3}))
    topic.tier()
    assert topic.follow().quarantined == 1
    assert [(r["key_id"], r["a"]) for r in rows(topic)] == [(5, 1), (None, 2)]
