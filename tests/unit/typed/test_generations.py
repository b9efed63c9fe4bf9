"""Retype and redeclaration beside other writers: no record is lost, none is doubled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater_tier.typed.declarations import declared_tables
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.follow_log import TopicFollower
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.replay import replay
from headwater_tier.typed.retype import retype
from headwater_tier.typed.typed_table import create_typed, current_generation
from typed_topic import CLOCK, JsonDecoder, NoSchemas, TypedTopic


def declared(**columns: str) -> dict[str, str]:
    return {"headwater.value.format": "json", "headwater.value.schema": json.dumps(columns)}


def follower(topic: TypedTopic, building: DerivedTable | None = None) -> TopicFollower:
    return TopicFollower(
        topic.location,
        NoSchemas(),
        CLOCK,
        entropy=topic.entropy,
        decoder_for=JsonDecoder.of,
        building=building,
    )


def test_a_replay_leaves_the_quarantine_of_a_generation_that_is_being_built(
    tmp_path: Path,
) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs = declared(a="string")
    topic.produce(0, {"a": "x"})
    topic.tier()
    topic.follow_all()
    new = declared(a="int64")
    wanted = declared_tables(topic.location.topic, new)
    assert wanted is not None
    more = {"decoder_for": JsonDecoder.of, "entropy": topic.entropy}
    half = create_typed(
        topic.location, wanted.declaration, NoSchemas(), JsonDecoder.of, generation=2
    )
    assert follower(topic, half).turn(wanted).quarantined == 1
    replay(topic.location, NoSchemas(), CLOCK, **more)  # type: ignore[arg-type]
    done = retype(topic.location, new, NoSchemas(), CLOCK, **more)  # type: ignore[arg-type]
    assert done.generation == 2
    place = derived(topic.location, Kind.QUARANTINE).place
    assert DeltaTable(place.uri).to_pyarrow_table().column("generation").to_pylist() == [2]


def test_rows_that_another_writer_adds_beside_a_new_declaration_are_not_added_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TypedTopic(tmp_path, partitions=1)
    topic.configs = declared(a="int64")
    topic.tier()
    topic.produce(0, {"a": 1})
    topic.tier()
    topic.follow_all()
    topic.produce(0, {"a": 2}, {"a": 3})
    topic.tier()
    new = declared(a="int64", b="int64")
    wanted = declared_tables(topic.location.topic, new)
    assert wanted is not None
    own = DerivedTable.set_properties
    others: list[int] = []

    def overtaken(table: DerivedTable, properties: Mapping[str, str]) -> None:
        own(table, properties)
        if not others:
            others.append(0)
            others[0] = follower(topic).turn(wanted).rows

    monkeypatch.setattr(DerivedTable, "set_properties", overtaken)
    assert follower(topic).turn(wanted).rows == 0
    assert others == [2]
    current = current_generation(topic.location)
    assert current is not None
    offsets = DeltaTable(current.uri).to_pyarrow_table().column("offset").to_pylist()
    assert sorted(offsets) == [0, 1, 2]
