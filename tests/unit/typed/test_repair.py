"""Replay and retype: rows come back once, whatever is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_tier.delta import TableStateError
from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.derived_table import DerivedChange, DerivedTable
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.replay import ReplayResult, replay
from headwater_tier.typed.retype import retype
from headwater_tier.typed.typed_table import current_generation
from headwater_tier.typed.verify_derived import verify_derived
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic


class Killed(BaseException):
    """As kill -9: nothing handles it."""


class Repaired(JsonDecoder):
    """Takes `{not json` for a record."""

    @classmethod
    def of(cls, declared: DeclaredFormat, known: pa.Schema, schemas: object) -> JsonDecoder:
        return cls(declared, known)

    def decode(self, blobs: pa.ChunkedArray) -> Any:
        fixed = [b'{"a": 9}' if b == b"{not json" else b for b in blobs.to_pylist()]
        return super().decode(pa.chunked_array([pa.array(fixed, pa.binary())]))


@pytest.fixture
def topic(tmp_path: Path) -> TypedTopic:
    made = TypedTopic(tmp_path)
    made.produce(0, {"a": 1}, b"{not json", {"a": "text"}, {"a": 2})
    made.tier()
    made.follow()
    return made


def rows(topic: TypedTopic, kind: Kind = Kind.TYPED, generation: int = 1) -> list[dict[str, Any]]:
    place = derived(topic.location, kind, generation).place
    found = DeltaTable(place.uri).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def replayed(topic: TypedTopic) -> ReplayResult:
    return replay(
        topic.location, NoSchemas(), CLOCK, decoder_for=Repaired.of, entropy=topic.entropy
    )


def test_replay_admits_what_fits_by_now(topic: TypedTopic) -> None:
    assert replayed(topic) == ReplayResult(admitted=1, left=1)
    assert [(r["offset"], r["a"]) for r in rows(topic)] == [(0, 1), (1, 9), (3, 2)]
    assert [r["offset"] for r in rows(topic, Kind.QUARANTINE)] == [2]
    assert replayed(topic) == ReplayResult(left=1)
    assert topic.follow().quarantine_behind == 0


def test_a_replay_that_was_killed_after_its_append_admits_nothing_twice(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DerivedTable.commit

    def killed(self: DerivedTable, change: DerivedChange) -> None:
        if change.kind == "admit":
            raise Killed
        original(self, change)

    with monkeypatch.context() as patch:
        patch.setattr(DerivedTable, "commit", killed)
        with pytest.raises(Killed):
            replayed(topic)
    assert replayed(topic) == ReplayResult(known=1, left=1)
    assert [r["offset"] for r in rows(topic)] == [0, 1, 3]


def test_retype_builds_the_next_generation_and_swaps(topic: TypedTopic) -> None:
    topic.configs["headwater.value.schema"] = '{"a": "string"}'
    result = topic.follow()
    assert "headwater tier retype orders" in result.problem
    assert [r["a"] for r in rows(topic)] == [1, 2]
    done = retype(
        topic.location,
        topic.configs,
        NoSchemas(),
        CLOCK,
        decoder_for=JsonDecoder.of,
        entropy=topic.entropy,
    )
    assert (done.generation, done.rows, done.quarantined) == (2, 1, 3)
    current = current_generation(topic.location)
    assert current is not None and current.uri == done.uri
    assert [r["a"] for r in rows(topic, generation=2)] == ["text"]
    assert {r["generation"] for r in rows(topic, Kind.QUARANTINE)} == {2}
    topic.produce(0, {"a": "more"})
    topic.tier()
    result = topic.follow()
    assert (result.generation, result.problem, result.rows) == (2, "", 1)
    assert [r["a"] for r in rows(topic)] == [1, 2]


def test_a_declaration_that_only_adds_columns_needs_no_retype(topic: TypedTopic) -> None:
    topic.configs["headwater.value.schema"] = '{"a": "int64", "z": "string"}'
    topic.produce(0, {"z": "new"})
    topic.tier()
    result = topic.follow()
    assert (result.problem, result.generation, result.rows) == ("", 1, 1)
    assert [r["z"] for r in rows(topic)] == [None, None, "new"]


def test_a_replayed_record_is_its_keys_latest_row_unless_a_later_one_changed_it(
    tmp_path: Path,
) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs |= {"headwater.latest.enable": "true"}
    bad = b"{not json"
    topic.produce_pairs(0, (b"old", bad), (b"gone", bad), (b"first", {"a": 1}), (b"lone", bad))
    topic.produce_pairs(0, (b"old", {"a": 2}), (b"gone", None), (b"first", bad))
    topic.tier()
    topic.follow()
    assert replayed(topic).admitted == 4
    latest = {row["key"]: row["a"] for row in rows(topic, Kind.LATEST)}
    assert latest == {b"old": 2, b"first": 9, b"lone": 9}


def test_retype_mends_a_table_that_others_appended_to(topic: TypedTopic) -> None:
    place = derived(topic.location, Kind.TYPED).place
    table = DeltaTable(place.uri)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    with pytest.raises(TableStateError):
        topic.follow()
    retype(
        topic.location,
        topic.configs,
        NoSchemas(),
        CLOCK,
        decoder_for=JsonDecoder.of,
        entropy=topic.entropy,
    )
    topic.produce(0, {"a": 3})
    topic.tier()
    assert topic.follow().rows == 1
    found = verify_derived(topic.location)
    assert found is not None and found.equal
    assert [r["a"] for r in rows(topic, generation=2)] == [1, 2, 3]


def test_an_interrupted_retype_goes_on_where_it_was(
    topic: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.configs["headwater.value.schema"] = '{"a": "string"}'

    def build() -> int:
        return retype(
            topic.location,
            topic.configs,
            NoSchemas(),
            CLOCK,
            decoder_for=JsonDecoder.of,
            entropy=topic.entropy,
        ).rows

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DerivedTable, "set_properties", killed)
        build()
    assert topic.follow().generation == 1
    assert build() == 0
    assert [r["a"] for r in rows(topic, generation=2)] == ["text"]
    assert topic.follow().generation == 2
