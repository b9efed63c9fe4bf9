"""Debezium's change events: rows in the typed table, upserts and deletes in the latest one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.replay import replay
from typed_topic import CLOCK, NoSchemas, TypedTopic

UNAVAILABLE = "__debezium_unavailable_value"


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    made = TypedTopic(tmp_path, partitions=1)
    made.configs |= {
        "headwater.value.envelope": "debezium",
        "headwater.key.format": "json",
        "headwater.latest.enable": "true",
        "headwater.latest.interval.ms": "1",
    }
    return made


def key(number: int) -> bytes:
    return b'{"id": %d}' % number


def event(op: str, before: Any = None, after: Any = None, lsn: int | None = None) -> Any:
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": 5}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 9}


def row(number: int, name: str, note: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "note": note}


def turn(topic: TypedTopic) -> None:
    topic.tier()
    result = topic.follow(decoder_for=decoder_for)
    assert (result.latest_problem, result.quarantine_problem) == ("", "")


def latest(topic: TypedTopic) -> list[tuple[int, str, str | None]]:
    found = DeltaTable(derived(topic.location, Kind.LATEST).place.uri).to_pyarrow_table()
    return sorted((r["id"], r["name"], r.get("note")) for r in found.to_pylist())


def test_events_become_rows_and_the_columns_that_say_of_them(topic: TypedTopic) -> None:
    topic.produce_pairs(
        0,
        (key(1), event("c", after=row(1, "ann", "x"), lsn=10)),
        (key(1), event("d", before=row(1, "ann", "x"), lsn=11)),
        (key(1), None),
        (key(2), {"hello": 1}),
    )
    turn(topic)
    found = DeltaTable(derived(topic.location, Kind.TYPED).place.uri).to_pyarrow_table()
    rows = found.sort_by("offset").to_pylist()
    assert [(r["key_id"], r["id"], r["name"], r["__op"], r["__source_lsn"]) for r in rows] == [
        (1, 1, "ann", "c", 10),
        (1, 1, "ann", "d", 11),
        (1, None, None, None, None),
    ]
    bad = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    assert bad.column("detail").to_pylist() == ["no change event of Debezium: op is None"]


def test_creates_reads_updates_upsert_and_deletes_delete(topic: TypedTopic) -> None:
    topic.produce_pairs(
        0,
        (key(1), event("r", after=row(1, "ann"))),
        (key(2), event("c", after=row(2, "bob"), lsn=10)),
        (key(3), event("c", after=row(3, "cid"), lsn=11)),
    )
    turn(topic)
    topic.produce_pairs(
        0,
        (key(1), event("u", row(1, "ann"), row(1, "anna"), lsn=12)),
        (key(2), event("d", row(2, "bob"), lsn=13)),
        (key(2), None),
        (key(9), event("m")),
    )
    turn(topic)
    assert latest(topic) == [(1, "anna", None), (3, "cid", None)]


def test_repeats_with_a_lower_lsn_change_nothing(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (key(1), event("c", after=row(1, "new"), lsn=20)))
    turn(topic)
    topic.produce_pairs(
        0,
        (key(1), event("u", after=row(1, "old"), lsn=19)),
        (key(1), None),
        (key(2), event("c", after=row(2, "b"), lsn=30)),
        (key(2), event("c", after=row(2, "a"), lsn=29)),
    )
    turn(topic)
    assert latest(topic) == [(1, "new", None), (2, "b", None)]


def test_a_value_that_was_not_sent_keeps_the_old_one(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (key(1), event("c", after=row(1, "a", "large"), lsn=1)))
    turn(topic)
    topic.produce_pairs(
        0,
        (key(1), event("u", after=row(1, "b", UNAVAILABLE), lsn=2)),
        (key(2), event("c", after=row(2, "c", "big"), lsn=3)),
        (key(2), event("u", after=row(2, "d", UNAVAILABLE), lsn=4)),
    )
    turn(topic)
    assert latest(topic) == [(1, "b", "large"), (2, "d", "big")]


def test_a_truncate_empties_a_table_of_one_partition(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (key(1), event("c", after=row(1, "a"), lsn=1)))
    turn(topic)
    topic.produce_pairs(
        0, (None, event("t", lsn=2)), (key(2), event("c", after=row(2, "b"), lsn=3))
    )
    turn(topic)
    assert latest(topic) == [(2, "b", None)]


def test_a_truncate_of_several_partitions_stops_the_table_and_says_so(
    topic: TypedTopic,
) -> None:
    topic.partitions = 2
    topic.produce_pairs(0, (key(1), event("c", after=row(1, "a"), lsn=1)), (None, event("t")))
    topic.tier()
    result = topic.follow(decoder_for=decoder_for)
    assert "truncated" in result.latest_problem
    assert (result.rows, result.behind) == (2, 0)


def test_a_repeat_of_a_change_before_the_delete_leaves_the_key_deleted(topic: TypedTopic) -> None:
    created = event("c", after=row(1, "ann"), lsn=10)
    topic.produce_pairs(0, (key(1), created), (key(2), event("c", after=row(2, "bob"), lsn=11)))
    topic.produce_pairs(0, (key(1), event("d", before=row(1, "ann"), lsn=12)))
    turn(topic)
    topic.produce_pairs(0, (key(1), created))
    turn(topic)
    assert latest(topic) == [(2, "bob", None)]
    topic.produce_pairs(0, (key(1), event("c", after=row(1, "cid"), lsn=13)))
    turn(topic)
    assert latest(topic) == [(1, "cid", None), (2, "bob", None)]


def test_a_replayed_change_from_before_a_truncate_is_gone(topic: TypedTopic) -> None:
    topic.produce_pairs(0, (key(1), b"{bad"), (key(2), event("c", after=row(2, "bob"))))
    turn(topic)
    topic.produce_pairs(0, (None, event("t")), (key(3), event("c", after=row(3, "cid"))))
    turn(topic)
    quarantine = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri)
    held = quarantine.to_pyarrow_table()
    mended = [json.dumps(event("c", after=row(1, "ann"))).encode()]
    at = held.schema.get_field_index("value")
    held = held.set_column(at, held.schema.field(at), pa.array(mended, held.schema.field(at).type))
    write_deltalake(quarantine, held, mode="overwrite")
    accepted = DerivedTable(derived(topic.location, Kind.QUARANTINE), checked=False)
    accepted.accept()
    schemas = NoSchemas()
    replay(topic.location, schemas, CLOCK, decoder_for=decoder_for, entropy=topic.entropy)
    assert latest(topic) == [(3, "cid", None)]
