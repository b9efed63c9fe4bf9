"""Many new topics at once: the first commits do not wait until every table exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from headwater.client.blocking.broker_metadata import BrokerMetadata, PartitionId, Topic
from headwater.client.blocking.record_client import EARLIEST
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_tier.delta import Change, LogTable
from headwater_tier.offset_ranges import TierRange
from headwater_tier.retention import Limits
from headwater_tier.service.file_writers import FileWriters, Written
from headwater_tier.service.service import OPENINGS_MAX, TieringService
from headwater_tier.service.table_thread import THREADS, Committed, Opened
from headwater_tier.service.topic_finder import TieredTopic, TopicFinder
from headwater_tier.table_names import TableLocation
from tier_log import location_at

TOPICS = 30
RECORDS = 5
WITHOUT_LEADER = "t-07"


class Brokers:
    """Each partition has RECORDS records; one has no leader."""

    def __init__(self) -> None:
        self.broken = ""

    def list_offsets(
        self, wanted: Mapping[PartitionId, int], _isolation: str = ""
    ) -> dict[PartitionId, int]:
        if self.broken in {name for name, _ in wanted}:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, self.broken)
        return {tp: 0 if at == EARLIEST else RECORDS for tp, at in wanted.items()}


class Writers:
    """Turns without rows: a commit of ends alone is one all the same."""

    def write(
        self, _location: TableLocation, ranges: Sequence[TierRange], _bytes_per_offset: float
    ) -> Written:
        return Written((), 100 * len(ranges))

    def close(self) -> None:
        pass


class Finder:
    def __init__(self, folder: Path) -> None:
        self.topics: dict[str, TieredTopic] = {}
        for number in range(TOPICS):
            name, topic_id = f"t-{number:02d}", UUID(int=number + 1)
            topic = Topic(name, "AA", topic_id, 1, False, (0,))
            at = location_at(folder, name, topic_id)
            self.topics[name] = TieredTopic(topic, at, 3.0, Limits(), {})

    def find(self) -> dict[str, TieredTopic]:
        return self.topics


class All:
    def mine(self, topics: Iterable[str]) -> set[str]:
        return set(topics)


class Seen:
    """The order of what came of the table thread's jobs."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def opened(self, topic: TieredTopic, _event: Opened) -> None:
        self.events.append(("opened", topic.topic.name))

    def committed(self, topic: TieredTopic, _event: Committed) -> None:
        self.events.append(("committed", topic.topic.name))

    def log_starts(self, _topic: TieredTopic, starts: dict[int, int]) -> None:
        assert starts == {0: 0}

    def dropped(self, _location: TableLocation) -> None:
        raise AssertionError("no topic went away")


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[TieringService, Seen, Brokers, Finder]]:
    seen, brokers, finder = Seen(), Brokers(), Finder(tmp_path)
    service = TieringService(
        cast(TopicFinder, finder),
        cast(BrokerMetadata, brokers),
        cast(FileWriters, Writers()),
        ManualClock(),
        All(),
        (seen,),
    )
    service.schedule.is_draining = True
    yield service, seen, brokers, finder
    service.close()


def drained(service: TieringService) -> bool:
    """True when every topic's records are committed, or its tiering has failed."""
    return bool(service.topics) and all(
        state.error or state.ends == {0: RECORDS} for state in service.topics.values()
    )


def test_tables_are_made_between_the_commits(
    parts: tuple[TieringService, Seen, Brokers, Finder],
) -> None:
    service, seen, _, finder = parts
    while not drained(service):
        service.step(1.0)
    kinds = [kind for kind, _ in seen.events]
    # Each thread has at most the openings that are on their way before its first commit.
    assert kinds.index("committed") <= THREADS * OPENINGS_MAX < TOPICS
    assert sorted(name for kind, name in seen.events if kind == "committed") == sorted(
        finder.topics
    )
    for topic in finder.topics.values():
        assert topic.location is not None
        assert LogTable(topic.location).snapshot.ends == {0: RECORDS}


def test_a_topic_without_a_leader_keeps_no_other_from_its_table(
    parts: tuple[TieringService, Seen, Brokers, Finder],
) -> None:
    service, seen, brokers, finder = parts
    brokers.broken = WITHOUT_LEADER
    while not drained(service):
        service.step(1.0)
    assert WITHOUT_LEADER in service.topics[WITHOUT_LEADER].error
    committed = [name for kind, name in seen.events if kind == "committed"]
    assert sorted(committed) == sorted(finder.topics.keys() - {WITHOUT_LEADER})


def test_a_restarted_service_commits_nothing_twice(
    parts: tuple[TieringService, Seen, Brokers, Finder],
) -> None:
    service, seen, _, finder = parts
    for topic in finder.topics.values():
        assert topic.location is not None
        table = LogTable.create(topic.location, 1)
        table.commit(Change("tier", 0, ends={0: RECORDS}, starts={0: 0}))
    while not drained(service):
        service.step(1.0)
    assert [kind for kind, _ in seen.events] == ["opened"] * TOPICS
    assert all(topic.behind == 0 for topic in service.schedule.topics.values())
