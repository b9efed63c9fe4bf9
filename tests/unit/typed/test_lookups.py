"""Frames of unknown schema ids cost a bounded number of requests per turn, and all get judged."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from headwater.testing.clocks import ManualClock
from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.follow_log import FollowResult, follow_topic
from headwater_tier.typed.lookups import UNKNOWN_MAX
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.registry_client import MISSING_MAX, NOT_FOUND_S, UnknownIds
from typed_topic import CLOCK, TypedTopic

GOOD = 7
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]})


class CountingSchemas:
    """A registry with one schema; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        self.asked += 1
        return RegisteredSchema(GOOD, "AVRO", SCHEMA) if schema_id == GOOD else None

    def latest(self, subject: str) -> RegisteredSchema | None:
        return None


def frame(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x02"


def test_a_turn_asks_for_few_unknown_ids_and_the_next_turns_for_the_others(tmp_path: Path) -> None:
    topic = TypedTopic(tmp_path, partitions=2)
    configs = {"headwater.value.format": "confluent", "headwater.key.format": "confluent"}
    for partition in range(2):
        pairs = [(frame(50_000 + n), frame(1_000 + n)) for n in range(UNKNOWN_MAX + 30)]
        topic.produce_pairs(partition, *pairs, (frame(GOOD), frame(GOOD)))
    topic.tier()
    results: list[FollowResult] = []
    while not results or results[-1].behind:
        schemas = CountingSchemas()
        results.append(follow_topic(topic.location, configs, schemas, CLOCK, entropy=topic.entropy))
        assert len(results) < 10
    assert sum(result.rows for result in results) == 2 and len(results) > 2
    assert sum(result.quarantined for result in results) == 2 * (UNKNOWN_MAX + 30)
    assert all(result.quarantine_behind == 0 for result in results)
    bad = DeltaTable(derived(topic.location, Kind.QUARANTINE).place.uri).to_pyarrow_table()
    assert set(bad["reason"].to_pylist()) == {"unknown schema"}


def test_a_turn_asks_the_registry_no_more_than_its_budget(tmp_path: Path) -> None:
    topic, schemas = TypedTopic(tmp_path, partitions=1), CountingSchemas()
    configs = {"headwater.value.format": "confluent"}
    topic.produce(0, *(frame(1_000 + n) for n in range(3 * UNKNOWN_MAX)))
    topic.tier()
    first = follow_topic(topic.location, configs, schemas, CLOCK, entropy=topic.entropy)
    assert (schemas.asked, first.quarantined, first.behind) == (
        UNKNOWN_MAX, UNKNOWN_MAX, 2 * UNKNOWN_MAX
    )  # fmt: skip


def test_the_client_remembers_a_bounded_number_of_unknown_ids() -> None:
    clock = ManualClock()
    unknown = UnknownIds(clock)
    for schema_id in range(MISSING_MAX + 10):
        unknown.add(schema_id)
    assert sum(unknown.has(schema_id) for schema_id in range(MISSING_MAX + 10)) == MISSING_MAX
    assert not unknown.has(9) and unknown.has(10)
    clock.advance(int(NOT_FOUND_S * 1000))
    assert not unknown.has(10)
