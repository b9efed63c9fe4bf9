"""The table of latest rows: one row per key, the newest, whatever is repeated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater_tier.delta import TableStateError
from headwater_tier.typed.declarations import PROPERTY
from headwater_tier.typed.decoding import Decoded
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.latest_row import GROWTHS, Growth, newer_condition, newest_rows
from headwater_tier.typed.latest_table import SMALL_FILES_MAX, Latest
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.replay import replay
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    made = TypedTopic(tmp_path, partitions=1)
    made.configs |= {"headwater.latest.enable": "true", "headwater.latest.interval.ms": "1"}
    return made


def latest(topic: TypedTopic) -> dict[Any, Any]:
    found = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table()
    return {row["key"]: row["n"] for row in found.to_pylist()}


def turn(topic: TypedTopic) -> None:
    topic.tier()
    result = topic.follow()
    assert (result.latest_problem, result.quarantine_problem) == ("", "")


def test_the_last_record_of_a_key_is_its_row(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}), (b"b", {"n": 2}), (b"a", {"n": 3}))
    turn(topic)
    assert latest(topic) == {b"a": 3, b"b": 2}
    topic.produce_pairs(0, (b"b", {"n": 4}), (b"c", {"n": 5}), (b"a", None), (b"d", None))
    turn(topic)
    assert latest(topic) == {b"b": 4, b"c": 5}


def test_a_gap_of_offsets_is_merged_over_at_once(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}), (b"b", {"n": 2}))
    topic.tier()
    topic.log.next[0] += 1 << 33
    topic.produce_pairs(0, (b"a", {"n": 3}))
    topic.tier()
    turns = 1
    while not topic.follow().is_caught_up:
        turns += 1
        assert turns < 5
    assert latest(topic) == {b"a": 3, b"b": 2}


def test_new_columns_arrive(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}))
    turn(topic)
    topic.produce_pairs(0, (b"b", {"n": 2, "more": "x"}))
    turn(topic)
    found = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table()
    assert sorted(found.column("more").to_pylist(), key=str) == [None, "x"]


def test_a_record_without_key_is_quarantined_and_stays_in_the_typed_table(
    topic: TypedTopic,
) -> None:
    topic.produce_pairs(0, (None, {"n": 1}), (b"a", {"n": 2}))
    turn(topic)
    assert latest(topic) == {b"a": 2}
    bad = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    assert bad.column("reason").to_pylist() == ["no key"]
    typed = DeltaTable(derived(topic.location, Kind.TYPED).place.uri).to_pyarrow_table()
    assert typed.num_rows == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_merge_is_repeated_without_harm(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}), (b"b", {"n": 1}))
    turn(topic)
    original = DerivedTable.merge

    def killed(self: DerivedTable, *args: Any) -> Any:
        if after:
            original(self, *args)
        raise Killed

    topic.produce_pairs(0, (b"a", None), (b"b", {"n": 2}))
    topic.tier()
    with monkeypatch.context() as patch:
        patch.setattr(DerivedTable, "merge", killed)
        with pytest.raises(Killed):
            topic.follow()
    turn(topic)
    assert latest(topic) == {b"b": 2}


def test_keys_of_several_columns_with_nulls(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs |= {"headwater.latest.enable": "true", "headwater.key.format": "json"}
    topic.configs["headwater.latest.interval.ms"] = "1"
    keys = [b'{"x": 1, "y": "p"}', b'{"x": 1}', b'{"y": "p"}']
    topic.produce_pairs(0, *((key, {"n": n}) for n, key in enumerate(keys)))
    turn(topic)
    topic.produce_pairs(0, *((key, {"n": n + 10}) for n, key in enumerate(keys)))
    topic.produce_pairs(0, (keys[1], None))
    turn(topic)
    found = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table()
    rows = [(r["key_x"], r["key_y"], r["n"]) for r in found.to_pylist()]
    assert sorted(rows, key=str) == [(1, "p", 10), (None, "p", 12)]


def test_a_key_that_moves_when_the_topic_gets_partitions_keeps_its_newest_row(
    topic: TypedTopic,
) -> None:
    topic.produce_pairs(0, *((b"a", {"n": n}) for n in range(5)))
    turn(topic)
    topic.produce_pairs(1, (b"a", {"n": 100}))
    turn(topic)
    assert latest(topic) == {b"a": 100}
    topic.produce_pairs(1, (b"a", {"n": 101}))
    topic.produce_pairs(0, (b"b", {"n": 1}))
    turn(topic)
    assert latest(topic) == {b"a": 101, b"b": 1}


def test_a_merge_waits_for_its_interval_unless_much_has_changed(topic: TypedTopic) -> None:
    topic.configs["headwater.latest.interval.ms"] = "60000"
    topic.produce_pairs(0, *((b"k%d" % n, {"n": n}) for n in range(300)))
    turn(topic)
    topic.produce_pairs(0, (b"k1", {"n": -1}))
    topic.tier()
    result = topic.follow()
    assert result.latest is not None and (result.latest.read, result.latest.behind) == (0, 1)
    topic.produce_pairs(0, *((b"k1", {"n": -2}) for _ in range(3)))
    turn(topic)
    assert latest(topic)[b"k1"] == -2


def test_the_small_files_of_merges_are_rewritten_sorted_by_key(topic: TypedTopic) -> None:
    for n in range(SMALL_FILES_MAX + 2):
        topic.produce_pairs(0, (b"k%02d" % (90 - n), {"n": n}))
        turn(topic)
    table = DeltaTable(derived(topic.location, Kind.LATEST).place.uri)
    assert len(table.file_uris()) < SMALL_FILES_MAX
    assert len(latest(topic)) == SMALL_FILES_MAX + 2


@pytest.mark.parametrize("name", ["a.b", "a`b", "`", 'a"b', "__growth", "__op", "__source_lsn"])
def test_a_field_may_have_any_name(topic: TypedTopic, name: str) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1, name: 7}), (b"b", {"n": 2, name: 7}))
    turn(topic)
    topic.produce_pairs(0, (b"a", {"n": 3, name: 8}), (b"b", None), (b"c", {"n": 4}))
    turn(topic)
    assert latest(topic) == {b"a": 3, b"c": 4}
    found = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table()
    assert {7, 8, None} >= set(found.columns[-1].to_pylist()) >= {8}


def latest_uri(topic: TypedTopic) -> str:
    return derived(topic.location, Kind.LATEST).place.uri


@pytest.mark.parametrize("odd", [{"x": 2, "z": 1.5}, {"z": 1.5}])
def test_a_key_that_has_no_equality_is_quarantined_and_stops_nothing(
    topic: TypedTopic, odd: dict[str, Any]
) -> None:
    topic.configs["headwater.key.format"] = "json"
    plain, strange = (json.dumps(key).encode() for key in ({"x": 1}, odd))
    topic.produce_pairs(0, (plain, {"n": 1}))
    turn(topic)
    topic.produce_pairs(0, (strange, {"n": 2}), (plain, {"n": 3}))
    turn(topic)
    found = DeltaTable(latest_uri(topic)).to_pyarrow_table().to_pylist()
    assert [(row["key_x"], row["n"]) for row in found] == [(1, 3)]
    bad = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    assert bad.select(["offset", "reason"]).to_pylist() == [{"offset": 1, "reason": "no key"}]
    assert "headwater.key.format" in bad["detail"][0].as_py()
    replay(topic.location, NoSchemas(), CLOCK, decoder_for=JsonDecoder.of, entropy=topic.entropy)
    left = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    assert left.num_rows == 1


def test_an_update_of_offsets_is_refused_and_named(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}))
    turn(topic)
    DeltaTable(latest_uri(topic)).update(updates={"offset": "100"})
    topic.produce_pairs(0, (b"a", {"n": 2}))
    topic.tier()
    assert re.search(r"UPDATE .*headwater tier retype orders", topic.follow().latest_problem)


def test_a_property_that_does_not_parse_is_named_with_its_table(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}))
    turn(topic)
    DeltaTable(latest_uri(topic)).alter.set_table_properties({GROWTHS: "["}, False)
    topic.produce_pairs(0, (b"a", {"n": 2}))
    topic.tier()
    problem = topic.follow().latest_problem
    assert latest_uri(topic) in problem and GROWTHS in problem and "tier retype orders" in problem
    typed = derived(topic.location, Kind.TYPED).place.uri
    DeltaTable(typed).alter.set_table_properties({PROPERTY: "x"}, False)
    with pytest.raises(TableStateError, match=rf"{typed}.*{PROPERTY}.*tier retype orders"):
        topic.follow()


def test_a_record_without_a_timestamp_is_older_than_any_other() -> None:
    growths = [Growth(1, {0: 0})]
    assert "t.`timestamp` is null or s.`timestamp` >= t.`timestamp`" in newer_condition(
        growths, has_lsn=False
    )
    rows = pa.table(
        {
            "partition": pa.array([0, 1], pa.int32()),
            "offset": [0, 5],
            "timestamp": pa.array([-5, None], pa.timestamp("us", tz="UTC")),
            "k": ["a", "a"],
        }
    )
    assert newest_rows(rows, ["k"], growths)["partition"].to_pylist() == [0]


def test_in_a_partition_the_offset_tells_the_newest_row_whatever_its_time() -> None:
    rows = pa.table(
        {
            "partition": pa.array([0, 0, 1, 1], pa.int32()),
            "offset": [10, 11, 0, 1],
            "timestamp": pa.array([9, 2, 3, 1], pa.timestamp("us", tz="UTC")),
            "k": ["a", "a", "b", "a"],
        }
    )
    for growths in ([], [Growth(1, {0: 0})]):
        found = newest_rows(rows, ["k"], growths).sort_by("k")
        assert found["partition"].to_pylist() == [0, 1]
        assert found["offset"].to_pylist() == [11, 0]


def test_a_key_that_moved_before_the_table_was_made_goes_on(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, partitions=2)
    topic.configs |= {"headwater.latest.enable": "true", "headwater.latest.interval.ms": "1"}
    topic.produce_pairs(0, *((b"a", {"n": n}) for n in range(5)))
    turn(topic)
    topic.produce_pairs(1, (b"a", {"n": 100}))
    turn(topic)
    assert latest(topic) == {b"a": 100}


class Mended(JsonDecoder):
    """Understands what was malformed."""

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        mended = [b'{"n": 7}' if blob == b"{bad" else blob for blob in blobs.to_pylist()]
        return super().decode(pa.chunked_array([mended], type=pa.binary()))


def test_a_replayed_record_is_the_row_of_a_key_with_a_null(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs |= {"headwater.latest.enable": "true", "headwater.key.format": "json"}
    whole, part = b'{"x": 1, "y": "p"}', b'{"x": 1}'
    topic.produce_pairs(0, (whole, {"n": 0}), (part, {"n": 1}), (part, b"{bad"))
    turn(topic)
    replay(topic.location, NoSchemas(), CLOCK, decoder_for=Mended.of, entropy=topic.entropy)
    rows = DeltaTable(latest_uri(topic)).to_pyarrow_table().to_pylist()
    assert {(row["key_y"], row["n"]) for row in rows} == {("p", 0), (None, 7)}


@pytest.mark.parametrize("name", ["a.b", "a`b", 'a"b', "a'b"])
def test_columns_of_any_name_are_merged(topic: TypedTopic, name: str) -> None:
    topic.configs["headwater.key.format"] = "json"
    keys = [json.dumps({name: n, "x": 1}).encode() for n in range(2)]
    topic.produce_pairs(0, (keys[0], {name: 1}))
    turn(topic)
    topic.produce_pairs(0, (keys[0], {name: 2}), (keys[1], {name: 3}))
    turn(topic)
    found = DeltaTable(latest_uri(topic)).to_pyarrow_table().to_pylist()
    assert sorted((row[f"key_{name}"], row[name]) for row in found) == [(0, 2), (1, 3)]


def timed(topic: TypedTopic, partition: int, *rows: tuple[int, bytes, Any]) -> None:
    """Append (timestamp, key, value) records."""
    blobs = [(at, key, None if n is None else json.dumps({"n": n})) for at, key, n in rows]
    topic.log.append(partition, [(at, k, v and v.encode()) for at, k, v in blobs])


def test_a_key_that_moved_stays_deleted_when_its_old_partition_is_merged_later(
    tmp_path: Path,
) -> None:
    topic = TypedTopic(tmp_path, partitions=2)
    topic.configs |= {"headwater.latest.enable": "true", "headwater.latest.interval.ms": "1"}
    timed(topic, 1, (2_000, b"a", None), (2_000, b"b", 1), (2_000, b"c", None), (500, b"d", None))
    turn(topic)
    timed(topic, 0, (1_000, b"a", 7), (1_000, b"b", 7), (3_000, b"c", 7), (1_000, b"d", 7))
    turn(topic)
    assert latest(topic) == {b"b": 1, b"c": 7, b"d": 7}


def test_the_first_row_of_a_partition_after_a_growth_is_newer_than_all_before(
    tmp_path: Path,
) -> None:
    topic = TypedTopic(tmp_path, partitions=2)
    topic.configs |= {"headwater.latest.enable": "true", "headwater.latest.interval.ms": "1"}
    timed(topic, 0, (9_000, b"a", 1))
    turn(topic)
    timed(topic, 2, (9_000, b"b", 1))
    turn(topic)
    timed(topic, 1, (5_000, b"a", None))
    turn(topic)
    assert latest(topic) == {b"b": 1}


def test_a_row_is_not_admitted_by_a_snapshot_from_before_its_keys_delete(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (b"a", {"n": 1}), (b"b", {"n": 2}))
    turn(topic)
    old = DerivedTable(derived(topic.location, Kind.TYPED))
    topic.produce_pairs(0, (b"a", None))
    turn(topic)
    admitted = pa.table({"partition": pa.array([0], pa.int32()), "offset": [0]})
    Latest(topic.location, CLOCK, topic.entropy).admit(old, admitted, 1)
    assert latest(topic) == {b"b": 2}
