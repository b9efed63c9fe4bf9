"""`verify --deep` names what differs between the log table and the tables derived from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.verify_derived import DerivedVerification, verify_derived
from typed_topic import TypedTopic


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    made = TypedTopic(tmp_path)
    made.configs["headwater.latest.enable"] = "true"
    made.produce_pairs(0, (b"a", {"n": 1}), (b"b", b"{bad"), (b"a", {"n": 2}), (None, {"n": 3}))
    made.produce_pairs(1, (b"c", {"n": 4}), (b"d", {"n": 5}), (b"d", None))
    made.tier()
    made.follow()
    return made


def verified(topic: TypedTopic) -> DerivedVerification:
    found = verify_derived(topic.location)
    assert found is not None
    return found


def table(topic: TypedTopic, kind: Kind) -> DeltaTable:
    return DeltaTable(derived(topic.location, kind).place.uri)


def test_whole_tables_are_equal(topic: TypedTopic) -> None:
    found = verified(topic)
    assert found.equal
    rows = [(r.log_rows, r.typed_rows, r.quarantined) for r in found.partitions]
    assert rows == [(4, 3, 1), (3, 3, 0)]
    assert (found.latest_rows, found.quarantine_behind) == (2, 0)


def test_lost_and_doubled_rows_are_named(topic: TypedTopic) -> None:
    typed = table(topic, Kind.TYPED)
    rows = typed.to_pyarrow_table()
    typed.delete("partition = 1 and offset = 0")
    table(topic, Kind.QUARANTINE).delete()
    write_deltalake(table(topic, Kind.TYPED), rows.slice(0, 1), mode="append")
    found = verified(topic)
    first = (int(rows["partition"][0].as_py()), int(rows["offset"][0].as_py()))
    assert not found.equal
    assert [r.missing for r in found.partitions] == [(1,), (0,)]
    doubled = {(r.partition, offset) for r in found.partitions for offset in r.doubled}
    assert doubled == {first}


def test_an_old_row_of_a_key_is_counted(topic: TypedTopic) -> None:
    table(topic, Kind.LATEST).update(predicate="n = 2", updates={"offset": "0"})
    found = verified(topic)
    assert (found.equal, found.latest_differing) == (False, 2)


def test_a_topic_without_a_typed_table_has_nothing_to_compare(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path)
    topic.produce(0, {"n": 1})
    topic.tier()
    assert verify_derived(topic.location) is None
