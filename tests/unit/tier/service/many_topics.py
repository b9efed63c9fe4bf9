"""A service of many topics without rows: brokers, writers and observers in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

from headwater.client.blocking.broker_metadata import BrokerMetadata, PartitionId, Topic
from headwater.client.blocking.record_client import EARLIEST
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_tier.offset_ranges import TierRange
from headwater_tier.retention import Limits
from headwater_tier.service.file_writers import FileWriters, Written
from headwater_tier.service.service import TieringService
from headwater_tier.service.table_thread import Committed, Opened
from headwater_tier.service.topic_finder import TieredTopic, TopicFinder
from headwater_tier.table_names import TableLocation
from tier_log import location_at

RECORDS = 5


class Brokers:
    """Each partition has RECORDS records, or as many as `ends` says; one has no leader."""

    def __init__(self) -> None:
        self.broken = ""
        self.ends: dict[str, int] = {}

    def list_offsets(
        self, wanted: Mapping[PartitionId, int], _isolation: str = ""
    ) -> dict[PartitionId, int]:
        if self.broken in {name for name, _ in wanted}:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, self.broken)
        return {
            tp: 0 if at == EARLIEST else self.ends.get(tp[0], RECORDS) for tp, at in wanted.items()
        }


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
        self._folder = folder
        self.topics: dict[str, TieredTopic] = {}

    def topic(self, name: str, number: int) -> TieredTopic:
        """A topic that is not found yet."""
        topic = Topic(name, "AA", UUID(int=number), 1, False, (0,))
        at = location_at(self._folder, name, topic.uuid)
        return TieredTopic(topic, at, 3.0, Limits(), {})

    def find(self) -> dict[str, TieredTopic]:
        return dict(self.topics)


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


class Place:
    """The service with all of these."""

    def __init__(self, folder: Path) -> None:
        self.seen, self.brokers, self.finder = Seen(), Brokers(), Finder(folder)
        self.clock = ManualClock()
        self.service = TieringService(
            cast(TopicFinder, self.finder),
            cast(BrokerMetadata, self.brokers),
            cast(FileWriters, Writers()),
            self.clock,
            All(),
            (self.seen,),
        )
        self.service.schedule.is_draining = True

    def drain(self, names: Iterable[str]) -> None:
        """Step until every record of these topics is committed, or its tiering has failed."""
        left = set(names)
        while left:
            self.service.step(1.0)
            known = self.service.topics
            left -= {
                n
                for n in left & known.keys()
                if known[n].error or known[n].ends == {0: self.brokers.ends.get(n, RECORDS)}
            }
