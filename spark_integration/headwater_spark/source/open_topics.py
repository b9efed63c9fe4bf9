"""What a union read is bound to: a version of the table, and the brokers' offsets. No pyspark.

Connections and the open table are kept between reads of a topic: a read then costs three requests
and a look for the table's next version, and no connection, login, or listing of the table's log.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.system import SystemClock
from headwater_spark.options import EARLIEST, LATEST, READ_COMMITTED
from headwater_spark.source.broker_metadata import Brokers
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.task_security import TaskSecurity
from headwater_tier.delta import LogTable, table_exists
from headwater_tier.table_location import locate_table
from headwater_tier.table_names import TableLocation

PartitionId = tuple[str, int]
KEPT_MAX = 16
"""Topics whose connections and tables stay open in this process."""
LOCATION_S = 60.0
"""How long a topic's table is looked for where its configs said it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which topic of which cluster, read as whom, and where its table may be."""

    servers: str
    topic: str
    security: TaskSecurity
    tables_uri: str | None
    storage_options: tuple[tuple[str, str], ...] = field(repr=False)


class UnionTopic:
    """An open topic: connections to its brokers, and its table. One thread at a time."""

    def __init__(self, place: Place, clock: Clock | None = None) -> None:
        self._place = place
        self._clock = clock or SystemClock()
        self._brokers = Brokers(place.servers, security=place.security)
        self._location: TableLocation | None = None
        self._located_at = float("-inf")
        self._table: LogTable | None = None
        self._partitions: list[PartitionId] = []
        self.topic_id = ""

    def find(self) -> TableLocation:
        """Where the table of the topic is that has the name now. Raises UsageError, KafkaError,
        TableUnknownError."""
        topic = self._brokers.topics([self._place.topic])[self._place.topic]
        self.topic_id = topic.topic_id
        self._partitions = [(topic.name, p) for p in range(topic.partitions)]
        now, known = self._clock.monotonic(), self._location
        if known is None or known.topic_id != topic.uuid or now - self._located_at >= LOCATION_S:
            found = locate_table(
                self._brokers,
                topic,
                tables_uri=self._place.tables_uri,
                storage_options=self._place.storage_options,
            )
            if found != known:
                self._table = None
            self._location, self._located_at = found, now
            return found
        return known

    def history(self, location: TableLocation) -> ColdFiles | None:
        """The newest version of the table, without its files; None while there is none. Raises
        TableAccessError, TableStateError."""
        if not table_exists(location):
            self._table = None
            return None
        if self._table is None:
            self._table = LogTable(location)
            snapshot = self._table.snapshot
        else:
            snapshot = self._table.refresh()
        ranges = {p: (snapshot.starts.get(p, 0), end) for p, end in snapshot.ends.items()}
        return ColdFiles(location, snapshot.version, ranges, ())

    def offsets(self) -> tuple[Mapping[PartitionId, int], Mapping[PartitionId, int]]:
        """The leaders' log starts and last stable offsets. Ask after `history`: what was tiered
        since then is in the tail, too."""
        earliest = self._brokers.list_offsets(dict.fromkeys(self._partitions, EARLIEST))
        latest = self._brokers.list_offsets(dict.fromkeys(self._partitions, LATEST), READ_COMMITTED)
        return earliest, latest

    def close(self) -> None:
        """Close every connection."""
        self._brokers.close()


class OpenTopics:
    """Topics that are open and not in use. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Place, UnionTopic] = OrderedDict()

    @contextmanager
    def use(self, place: Place) -> Iterator[UnionTopic]:
        """An open topic, of this caller alone; it is kept for the next one unless there is an
        error."""
        with self._lock:
            kept = self._kept.pop(place, None)
        topic = kept or UnionTopic(place)
        try:
            yield topic
        except BaseException:
            topic.close()
            raise
        with self._lock:
            gone = [self._kept.pop(place, None)]
            self._kept[place] = topic
            if len(self._kept) > KEPT_MAX:
                gone.append(self._kept.popitem(last=False)[1])
        for other in gone:
            if other is not None:
                other.close()


OPEN_TOPICS = OpenTopics()
"""Of this process."""
