"""Plans a micro-batch: asks the brokers for offsets, and calls the parts that decide.

`batch_offsets` chooses its start and end, `batch_limits` keeps limits, `input_partitions` cuts it
into splits. No pyspark. The batch reader and the stream reader plan through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.client.blocking.cluster import VANISHED_TOPIC_S, MissingTopicError
from headwater.client.blocking.record_client import ReplacedTopicError
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater_spark.options import EARLIEST, LATEST
from headwater_spark.source.batch_limits import byte_shares, limit_ends, limit_offsets
from headwater_spark.source.batch_offsets import plan_again, plan_first_batch, plan_next_batch
from headwater_spark.source.bounds import Bounds
from headwater_spark.source.broker_metadata import CLIENT_ID, Brokers, Topic
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.data_loss import LossReport, gone_topics, truncated_partitions
from headwater_spark.source.history import History
from headwater_spark.source.input_partitions import Split, splits
from headwater_spark.source.positions import CurrentOffsets, PartitionId, Position
from headwater_spark.source.pushdown import ReadWindow, from_starts, inside
from headwater_spark.source.source_options import SourceOptions
from headwater_spark.source.tier_boundary import COLD_OFFSETS_MIN, Boundary

LEADER_CATCH_UP_S = 30.0
"""How long a new leader may report a log end below an offset that was already read (KIP-207)."""
METADATA_AGE_S = 0.1
"""Spark asks for offsets every 10 ms; new topics and partitions are looked for this often."""
POLLED_PARTITIONS_MAX = 1_000
"""Log ends of more partitions are asked for as seldom as metadata."""
GAP_OFFSETS_MIN = 5_000_000
"""With a smaller backlog no gap is looked for in the table."""
SETTLE_PAUSE_S = 0.2
"""Between requests while a leader or a broker's metadata may lag."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A split, and the table's files that hold it if it is tiered."""

    split: Split
    files: ColdFiles | None = None


class Planner:
    """Plans the reads of one set of options. One thread at a time."""

    def __init__(
        self,
        options: SourceOptions,
        clock: Clock,
        *,
        brokers: Brokers | None = None,
        history: History | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`brokers`, `history` and `sleep` are for tests."""
        self.options = options
        self._clock = clock
        self._sleep = sleep
        self._brokers = brokers or Brokers(
            options.bootstrap_servers,
            options.timeouts,
            options.client_id or CLIENT_ID,
            options.security,
        )
        self._history = history or History(self._brokers, options)
        self._bounds = Bounds(self._brokers, self._history, options)
        self._truncated_since: float | None = None
        self._known_ids: Mapping[str, str] | None = None
        """The topic ids that the brokers gave last."""
        self._topics_at = float("-inf")
        self._was_idle = False
        self._known_gone: tuple[str, ...] = ()
        """Topics that were waited for in vain."""
        self._losses = LossReport(options.fail_on_data_loss)

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()

    def batch(self, window: ReadWindow | None = None) -> Position:
        """The bounds of a batch read, resolved now; `window` is what the query's filters pass."""
        current = self._current_offsets()
        plan = plan_first_batch(self._bounds.starts(current), current)
        self._losses.report(plan.losses)
        assert plan.position is not None
        ends = self._bounds.ends(current)
        beyond = [
            f"{t}-{p}: ending offset {end} is beyond the log's end {current.latest[t, p]}"
            for (t, p), end in sorted(ends.items())
            if end > current.latest[t, p]
        ]
        self._losses.report(tuple(beyond))
        position = limit_ends(plan.position, ends)
        return position if window is None else self._inside(position, window)

    def first(self) -> Position:
        """Batch 0 of a stream, without limits."""
        current = self._current_offsets()
        plan = plan_first_batch(self._bounds.starts(current), current)
        self._losses.report(plan.losses)
        assert plan.position is not None
        return plan.position

    def newest(self) -> dict[PartitionId, int]:
        """Every partition's readable end: last stable offset or high watermark."""
        wanted = self.options.subscription
        seen = (*wanted.topics, *(topic for topic, _ in wanted.assigned))
        return self._latest(self._partitions(self._topics(seen)))

    def topics(self) -> dict[str, Topic]:
        """The topics to read, by name."""
        return self._topics()

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics to read, by name."""
        return {name: topic.topic_id for name, topic in self._topics().items()}

    def next(self, previous: Position, *, must_settle: bool = False) -> Position | None:
        """The batch after `previous`, without limits; None when there is nothing new.

        With `must_settle`, for runs that end when there is nothing new, it waits until a log that
        ends too early has caught up or is reported as truncated.
        """
        current = self._settled(previous, must_settle=must_settle)
        if current is None:
            return None
        self._check_truncated(previous, current)
        plan = plan_next_batch(previous, current, self.options.subscription.reads)
        self._losses.report(plan.losses)
        return plan.position

    def limited(self, position: Position) -> Position:
        """The batch cut to `maxOffsetsPerTrigger` and `maxBytesPerTrigger`, and none that ends
        within a wide gap, as `headwater restore` leaves: thousands after it would be empty."""
        whole = position
        if self.options.max_offsets_per_trigger is not None:
            position = limit_offsets(position, self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            shares = byte_shares(position, self.options.max_bytes_per_trigger)
            wanted = {tp: (position.start[tp], size) for tp, size in shares.items()}
            ends = self._brokers.offsets_at_bytes(wanted)
            position = limit_ends(position, {**position.end, **ends})
        return self._past_gaps(position, whole)

    def _past_gaps(self, position: Position, whole: Position) -> Position:
        ends: dict[PartitionId, int] = {}
        for (topic, partition), end in position.end.items():
            left = whole.end[topic, partition] - end
            if (
                left >= GAP_OFFSETS_MIN
                and self.options.use_table
                and self._history.is_tiered(topic)
            ):
                row = self._history.next_row(topic, position.topic_ids[topic], partition, end)
                ends[topic, partition] = min(row, whole.end[topic, partition])
        return replace(position, end={**position.end, **ends}) if ends else position

    def splits(self, position: Position) -> list[PlannedSplit]:
        """The tasks of a batch. One that an earlier run planned is first held against the log."""
        if self._known_ids is None or not _is_part(position.topic_ids, self._known_ids):
            position = self._planned_again(position)
        boundaries, files = self._boundaries(position)
        parts = splits(
            position,
            boundaries,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        return [PlannedSplit(s, files[s.topic].overlapping(s) if s.cold else None) for s in parts]

    def _inside(self, position: Position, window: ReadWindow) -> Position:
        position = inside(position, window)
        left = [tp for tp, end in position.end.items() if end > position.start[tp]]
        if window.first_ms is None or not left:
            return position
        asked = dict.fromkeys(left, window.first_ms)
        found = self._brokers.list_offsets(asked, self.options.isolation_level)
        return from_starts(position, found)

    def _planned_again(self, position: Position) -> Position:
        """What is left of a batch of an earlier run. Raises DataLossError."""
        since = self._clock.monotonic()
        while True:
            plan = plan_again(position, self._current_offsets(position.topic_ids))
            if not plan.losses or self._clock.monotonic() - since > LEADER_CATCH_UP_S:
                break
            self._sleep(SETTLE_PAUSE_S)  # perhaps a new leader or broker that lags
        self._losses.report(plan.losses)
        assert plan.position is not None
        return plan.position

    def _settled(self, previous: Position, *, must_settle: bool) -> CurrentOffsets | None:
        """The current offsets; None when nothing has changed since `previous`.

        A broker that has just started may not list every topic yet: a topic that is missing is
        waited for before it counts as gone.
        """
        if self._is_idle(previous):
            return None
        since = self._clock.monotonic()
        while True:
            current = self._offsets_after(previous, since)
            if current is None:
                self._truncated_since = None
                return None
            waited_s = self._clock.monotonic() - since
            gone = gone_topics(previous, current, self.options.subscription.reads)
            is_awaited = gone != self._known_gone and waited_s <= VANISHED_TOPIC_S
            lags = must_settle and waited_s <= LEADER_CATCH_UP_S
            if not (gone and is_awaited) and not (lags and truncated_partitions(previous, current)):
                self._known_gone = gone
                if must_settle and waited_s > LEADER_CATCH_UP_S:
                    self._truncated_since = since
                return current
            self._sleep(SETTLE_PAUSE_S)

    def _is_idle(self, previous: Position) -> bool:
        """True when no log end has moved since `previous`, by metadata that is fresh enough.

        Spark asks every 10 ms, and its `processAllAvailable` returns when the answer is "nothing
        new": so the brokers are asked for log ends each time, unless those are very many.
        """
        is_fresh = self._clock.monotonic() - self._topics_at < METADATA_AGE_S
        if not is_fresh or self._known_ids != dict(previous.topic_ids):
            return False
        if len(previous.end) > POLLED_PARTITIONS_MAX:
            return self._was_idle
        try:
            return self._latest(previous.end) == dict(previous.end)
        except MissingTopicError:
            return False  # it was deleted since

    def _offsets_after(self, previous: Position, since: float) -> CurrentOffsets | None:
        """The current offsets; None when they and the topic ids are those of `previous`."""
        while True:
            topics = self._topics(previous.topic_ids)
            ids = {name: topic.topic_id for name, topic in topics.items()}
            try:
                latest = self._latest(self._partitions(topics))
                self._was_idle = latest == dict(previous.end) and ids == dict(previous.topic_ids)
                if self._was_idle:
                    return None
                return CurrentOffsets(ids, self._earliest(latest), latest)
            except MissingTopicError:  # deleted in between: the next metadata shows it
                if self._clock.monotonic() - since > LEADER_CATCH_UP_S:
                    raise
                self._sleep(SETTLE_PAUSE_S)

    def _topics(self, seen: Container[str] = ()) -> dict[str, Topic]:
        """The topics to read. One that was `seen` before may be missing, any other must exist."""
        wanted = self.options.subscription
        if wanted.pattern is not None:
            topics = {
                name: topic
                for name, topic in self._brokers.topics(None).items()
                if wanted.wants(name) and not topic.is_internal
            }
        else:
            names = sorted({*wanted.topics, *(topic for topic, _ in wanted.assigned)})
            topics = self._named_topics(names, seen)
        self._known_ids = {name: topic.topic_id for name, topic in topics.items()}
        self._topics_at = self._clock.monotonic()
        self._check_ids(topics)
        return topics

    def _check_ids(self, topics: Mapping[str, Topic]) -> None:
        wanted = self.options.topic_id
        for name, topic in topics.items():
            if wanted is not None and topic.topic_id != wanted:
                raise ReplacedTopicError(
                    f"topic {name} was deleted and created again (id {wanted}, now"
                    f" {topic.topic_id}): this read is of the former topic, and so is its table."
                    " Read the topic again for the present one's rows."
                )

    def _named_topics(self, names: Sequence[str], seen: Container[str]) -> dict[str, Topic]:
        known = [name for name in names if name in seen]
        fresh = [name for name in names if name not in seen]
        topics = self._brokers.topics(fresh) if fresh else {}
        if known:
            topics |= self._brokers.topics_that_exist(known)
        return topics

    def _partitions(self, topics: Mapping[str, Topic]) -> list[PartitionId]:
        for topic, partition in self.options.subscription.assigned:
            if topic in topics and partition >= topics[topic].partitions:
                raise UsageError(
                    f"option 'assign': topic {topic} has partitions 0 to"
                    f" {topics[topic].partitions - 1}, not {partition}"
                )
        if self.options.subscription.assigned:
            return [tp for tp in self.options.subscription.assigned if tp[0] in topics]
        return [(n, p) for n, t in sorted(topics.items()) for p in range(t.partitions)]

    def _current_offsets(self, seen: Container[str] = ()) -> CurrentOffsets:
        topics = self._topics(seen)
        partitions = self._partitions(topics)
        earliest = self._earliest(partitions)
        ids = {name: topic.topic_id for name, topic in topics.items()}
        return CurrentOffsets(ids, earliest, self._latest(partitions))

    def _earliest(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        return self._brokers.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def _latest(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        asked = dict.fromkeys(partitions, LATEST)
        return self._brokers.list_offsets(asked, self.options.isolation_level)

    def _check_truncated(self, previous: Position, current: CurrentOffsets) -> None:
        truncated = truncated_partitions(previous, current)
        if not truncated:
            self._truncated_since = None
            return
        now = self._clock.monotonic()
        if self._truncated_since is None:
            self._truncated_since = now
        if now - self._truncated_since > LEADER_CATCH_UP_S:
            self._losses.report(truncated)

    def _boundaries(
        self, position: Position
    ) -> tuple[dict[PartitionId, Boundary], dict[str, ColdFiles]]:
        """Tier boundaries and files of the topics whose backlog may be read from their table."""
        if not self.options.use_table:
            return {}, {}
        backlog: dict[str, list[int]] = {}
        for (topic, partition), end in position.end.items():
            if end > position.start[topic, partition]:
                backlog.setdefault(topic, []).append(partition)
        boundaries: dict[PartitionId, Boundary] = {}
        files: dict[str, ColdFiles] = {}
        for topic, partitions in backlog.items():
            if not self._history.is_tiered(topic):
                continue
            local = self._brokers.local_starts([(topic, p) for p in partitions])
            is_worth = any(
                position.start[tp] < start
                or position.end[tp] - position.start[tp] >= COLD_OFFSETS_MIN
                for tp, start in local.items()
            )
            found = self._history.look(topic, position.topic_ids[topic]) if is_worth else None
            if found is None:
                continue
            files[topic] = found
            for (name, partition), start in local.items():
                tiered_start, tiered_end = found.range_of(partition)
                boundary = Boundary(start, tiered_start, tiered_end)
                boundaries[name, partition] = self._without_gaps(
                    boundary, found, position, (name, partition)
                )
        return boundaries, files

    def _without_gaps(
        self, boundary: Boundary, files: ColdFiles, position: Position, tp: PartitionId
    ) -> Boundary:
        """With the ranges that have rows, if splits are cut by offsets and much has none."""
        is_cut = self.options.min_partitions or self.options.max_records_per_partition
        start = max(position.start[tp], boundary.tiered_start)
        end = min(position.end[tp], boundary.tiered_end)
        whole = Split(*tp, start, end)
        if not is_cut or files.holes(whole) < GAP_OFFSETS_MIN:
            return boundary
        runs = self._history.runs(tp[0], position.topic_ids[tp[0]], tp[1], start, end)
        return replace(boundary, runs=runs)


def _is_part(ids: Mapping[str, str], known: Mapping[str, str]) -> bool:
    return all(known.get(topic) == topic_id for topic, topic_id in ids.items())
