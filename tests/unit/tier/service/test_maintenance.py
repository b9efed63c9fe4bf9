"""Maintenance beside the turns: folds are committed by the table thread, problems are named."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.client.blocking.broker_metadata import BrokerMetadata, Topic
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_tier.commit import commit_to
from headwater_tier.compaction import COMPACT_FILES_MIN
from headwater_tier.data_files import tier_range
from headwater_tier.delta import LogTable
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.retention import Limits
from headwater_tier.service.maintenance import (
    ASIDE_S,
    FILES_EVERY_S,
    HINTS_A_ROUND,
    Maintenance,
)
from headwater_tier.service.table_facts import facts_of
from headwater_tier.service.table_thread import Committed, Event, Opened, TableThread
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation
from tier_log import TOPIC_ID, CountingEntropy, MemoryLog, location_at


class Brokers:
    """Counts hints."""

    def __init__(self) -> None:
        self.hints = 0
        self.refused = ""
        """Topics whose names begin so have no leader."""

    def hint(self, topic: Topic) -> None:
        if self.refused and topic.name.startswith(self.refused):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, topic.name)
        self.hints += 1

    def close(self) -> None:
        pass


class Place:
    """One topic's table with many small files, and its maintenance."""

    def __init__(self, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.clock, entropy = ManualClock(), CountingEntropy(90_000)
        self.at: TableLocation = location_at(folder)
        self.topic = TieredTopic(
            Topic("flights", "AA", TOPIC_ID, 1, False, (0,)), self.at, 3.0, limits, {}
        )
        log, table = MemoryLog(), LogTable.create(self.at, 1)
        for _ in range(COMPACT_FILES_MIN):
            log.fill(0, 3)
            ranges = plan_ranges(table.snapshot.ends, log.bounds())
            facts = tier_range(log.fetch, ranges, self.at, clock=self.clock, entropy=entropy)
            assert facts is not None
            commit_to(table, ranges, [facts], clock=self.clock)
        self.rows = table.snapshot.rows
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.tables = TableThread(self.clock, self.events)
        self.brokers = Brokers()
        self.maintenance = Maintenance(
            lambda: self.tables, cast(BrokerMetadata, self.brokers), self.clock, entropy
        )
        snapshot = table.snapshot
        self.maintenance.committed(
            self.topic,
            Committed(
                "flights", self.at, 0.0, 3, dict(snapshot.ends), facts_of(snapshot), snapshot
            ),
        )

    def take(self) -> Any:
        """What the table thread reports next, as the main loop passes it on."""
        event = self.events.get(timeout=30)
        if isinstance(event, Opened):
            self.maintenance.opened(self.topic, event)
        return event


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.tables.close()


def test_small_files_are_folded_once_and_brokers_hear_of_commits(place: Place) -> None:
    place.maintenance.round()
    place.maintenance.round()  # the fold is on its way: it is not planned twice
    event = place.take()
    assert (event.facts.files, event.facts.rows) == (1, place.rows)
    assert place.brokers.hints == 1
    place.maintenance.round()
    assert place.events.empty()
    assert place.maintenance.folded_files == COMPACT_FILES_MIN


def test_a_lost_file_is_named_and_the_table_is_left_alone_until_it_is_back(place: Place) -> None:
    gone = next(Path(place.at.uri).glob("l0-*.parquet"))
    gone.rename(gone.with_suffix(".away"))
    place.maintenance.round()
    assert gone.name in place.maintenance.damage("flights")
    gone.with_suffix(".away").rename(gone)
    place.maintenance.round()
    assert place.events.empty()
    place.clock.advance(int(FILES_EVERY_S * 1000) + 1)
    place.maintenance.round()
    assert place.take().facts.files == 1
    assert place.maintenance.damage("flights") == ""


def test_a_table_whose_maintenance_failed_is_left_alone_for_a_while(place: Place) -> None:
    spoiled = next(Path(place.at.uri).glob("l0-*.parquet"))
    content = spoiled.read_bytes()
    spoiled.write_bytes(b"spoiled")
    place.maintenance.round()
    assert spoiled.name in place.maintenance.problem("flights")
    spoiled.write_bytes(content)
    place.maintenance.round()
    assert place.events.empty()
    place.clock.advance(int(ASIDE_S * 1000) + 1)
    place.maintenance.round()
    assert place.take().facts.files == 1
    assert place.maintenance.problem("flights") == ""


def test_tables_that_are_left_alone_take_no_hint_from_others(place: Place, tmp_path: Path) -> None:
    """As many as a round has hints, all of them older than the hint of the table that is well."""
    place.brokers.refused = "sick"
    empty = LogTable.create(location_at(tmp_path, "empty", UUID(int=7)), 1).snapshot
    topics = [place.topic]
    for number in range(HINTS_A_ROUND):
        topic = Topic(f"sick-{number}", "AA", UUID(int=100 + number), 1, False, (0,))
        at = location_at(tmp_path, topic.name, topic.uuid)
        topics.append(TieredTopic(topic, at, 3.0, Limits(), {}))

    def commit(these: list[TieredTopic]) -> None:
        for topic in these:
            assert topic.location is not None
            name, ends = topic.topic.name, {0: 0}
            event = Committed(name, topic.location, 0.0, 0, ends, facts_of(empty), empty)
            place.maintenance.committed(topic, event)

    commit(topics[1:])
    place.maintenance.round()
    assert place.maintenance.problem("sick-0") != ""
    place.clock.advance(1000)
    commit(topics[:1])
    place.maintenance.round()
    place.clock.advance(1000)
    before = place.brokers.hints
    commit(topics)
    place.maintenance.round()
    assert place.brokers.hints == before + 1


def test_log_starts_move_as_deleterecords_moved_them(place: Place) -> None:
    place.maintenance.log_starts(place.topic, {0: 100})
    place.maintenance.round()
    starts = [place.take().facts.starts for _ in range(2)]  # of the fold, and of the move
    assert starts[-1] == {0: 100}


def test_a_topic_that_went_away_is_forgotten(place: Place) -> None:
    place.maintenance.dropped(place.at)
    place.maintenance.round()
    assert place.events.empty() and place.brokers.hints == 0
