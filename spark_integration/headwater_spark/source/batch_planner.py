"""Plans reads: requests offsets from brokers and tables for the functions of `micro_batches`.

No pyspark. The batch reader and the stream reader plan through it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater_spark.options import EARLIEST, LATEST
from headwater_spark.source.broker_metadata import CLIENT_ID, Brokers, Topic
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.history import History
from headwater_spark.source.micro_batches import (
    COLD_OFFSETS_MIN,
    BatchPlan,
    Boundary,
    CurrentOffsets,
    PartitionId,
    Split,
    byte_shares,
    limit_ends,
    limit_offsets,
    plan_first_batch,
    plan_next_batch,
    splits,
    truncated_partitions,
)
from headwater_spark.source.positions import Position
from headwater_spark.source.source_options import Bound, SourceOptions

logger = logging.getLogger(__name__)

LEADER_CATCH_UP_S = 30.0
"""How long a new leader may report a log end below an offset that was already read (KIP-207)."""


class DataLossError(HeadwaterError):
    """Offsets of the query are no longer available, and `failOnDataLoss` is true."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A split, and the table's files that hold it if it is tiered."""

    split: Split
    files: ColdFiles | None = None


class Planner:
    """Plans the reads of one set of options. One thread at a time."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._brokers = Brokers(
            options.bootstrap_servers, options.timeouts, options.client_id or CLIENT_ID
        )
        self._history = History(self._brokers, options)
        self._truncated_since: float | None = None

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()

    def batch(self) -> Position:
        """The bounds of a batch read, resolved now."""
        current = self._current_offsets()
        self._refuse_unknown(self.options.starting, current, "startingOffsets")
        self._refuse_unknown(self.options.ending, current, "endingOffsets")
        plan = plan_first_batch(self._resolve(self.options.starting, current, "starting"), current)
        self._report_loss(plan.losses)
        assert plan.position is not None
        ends = self._resolve(self.options.ending, current, "ending")
        beyond = [
            f"{t}-{p}: ending offset {end} is beyond the log's end {current.latest[t, p]}"
            for (t, p), end in sorted(ends.items())
            if end > current.latest[t, p]
        ]
        self._report_loss(tuple(beyond))
        return limit_ends(plan.position, ends)

    def first(self) -> Position:
        """Batch 0 of a stream, without limits."""
        current = self._current_offsets()
        self._refuse_unknown(self.options.starting, current, "startingOffsets")
        plan = plan_first_batch(self._resolve(self.options.starting, current, "starting"), current)
        self._report_loss(plan.losses)
        assert plan.position is not None
        return plan.position

    def newest(self) -> dict[PartitionId, int]:
        """Every partition's readable end: last stable offset or high watermark."""
        return dict(self._current_offsets().latest)

    def next(self, previous: Position) -> Position | None:
        """The batch after `previous`, without limits; None when there is nothing new."""
        current = self._current_offsets()
        self._check_truncated(previous, current)
        plan: BatchPlan = plan_next_batch(previous, current)
        self._report_loss(plan.losses)
        return plan.position

    def limited(self, position: Position) -> Position:
        """The batch cut to `maxOffsetsPerTrigger` and `maxBytesPerTrigger`."""
        if self.options.max_offsets_per_trigger is not None:
            position = limit_offsets(position, self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            shares = byte_shares(position, self.options.max_bytes_per_trigger)
            wanted = {tp: (position.start[tp], size) for tp, size in shares.items()}
            ends = self._brokers.offsets_at_bytes(wanted)
            position = limit_ends(position, {**position.end, **ends})
        return position

    def splits(self, position: Position) -> list[PlannedSplit]:
        """The tasks of a batch."""
        boundaries, files = self._boundaries(position)
        parts = splits(
            position,
            boundaries,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        return [PlannedSplit(s, files[s.topic].overlapping(s) if s.cold else None) for s in parts]

    def _topics(self) -> dict[str, Topic]:
        wanted = self.options.subscription
        if wanted.pattern is not None:
            topics = self._brokers.topics(None)
            return {
                name: topic
                for name, topic in topics.items()
                if wanted.wants(name) and not topic.is_internal
            }
        names = sorted({*wanted.topics, *(topic for topic, _ in wanted.assigned)})
        return self._brokers.topics(names)

    def _current_offsets(self) -> CurrentOffsets:
        topics = self._topics()
        if self.options.subscription.assigned:
            partitions: Sequence[PartitionId] = self.options.subscription.assigned
            self._check_assigned(topics)
        else:
            partitions = [(n, p) for n, t in sorted(topics.items()) for p in range(t.partitions)]
        earliest = self._brokers.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = self._brokers.list_offsets(
            dict.fromkeys(partitions, LATEST), self.options.isolation_level
        )
        return CurrentOffsets({n: t.topic_id for n, t in topics.items()}, earliest, latest)

    def _check_assigned(self, topics: Mapping[str, Topic]) -> None:
        for topic, partition in self.options.subscription.assigned:
            if partition >= topics[topic].partitions:
                raise UsageError(
                    f"option 'assign': topic {topic} has partitions 0 to"
                    f" {topics[topic].partitions - 1}, not {partition}"
                )

    def _refuse_unknown(self, bound: Bound, current: CurrentOffsets, name: str) -> None:
        """Explicit offsets must name exactly the partitions that are read, as in Spark's source."""
        given = set(bound.offsets) or set(bound.timestamps_ms)
        if not given:
            return
        missing = sorted(set(current.latest) - given)
        unknown = sorted(given - set(current.latest))
        if missing or unknown:
            raise UsageError(
                f"option {name!r} must name every partition that is read (-1 latest, -2 earliest):"
                f" missing {_named(missing)}; unknown {_named(unknown)}"
            )

    def _resolve(self, bound: Bound, current: CurrentOffsets, side: str) -> dict[PartitionId, int]:
        words = {EARLIEST: current.earliest, LATEST: current.latest}
        if not bound.by_timestamp:
            result = {}
            for tp in current.latest:
                offset = bound.offsets.get(tp, bound.default)
                result[tp] = words[offset][tp] if offset in words else offset
            return result
        times = {tp: bound.timestamp_ms(tp) for tp in current.latest}
        asked = {tp: at for tp, at in times.items() if at is not None}
        found = self._brokers.list_offsets(asked, self.options.isolation_level)
        for tp, offset in found.items():
            if offset < 0:
                if side == "starting" and not self.options.timestamp_miss_is_latest:
                    raise UsageError(
                        f"no record of {tp[0]}-{tp[1]} at or after timestamp {asked[tp]};"
                        " set startingOffsetsByTimestampStrategy=latest to start at the end"
                    )
                found[tp] = current.latest[tp]
        return {tp: min(offset, current.latest[tp]) for tp, offset in found.items()}

    def _check_truncated(self, previous: Position, current: CurrentOffsets) -> None:
        truncated = truncated_partitions(previous, current)
        if not truncated:
            self._truncated_since = None
            return
        now = self._clock.monotonic()
        if self._truncated_since is None:
            self._truncated_since = now
        if now - self._truncated_since > LEADER_CATCH_UP_S:
            self._report_loss(truncated)

    def _report_loss(self, losses: Sequence[str]) -> None:
        """Raise on data loss, or log a warning with `failOnDataLoss=false`."""
        if not losses:
            return
        text = "; ".join(losses)
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{text}. Set failOnDataLoss=false to continue with the offsets that are left."
            )
        logger.warning("continuing, as failOnDataLoss is false: %s", text)

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
                boundaries[name, partition] = Boundary(start, tiered_start, tiered_end)
        return boundaries, files


def _named(partitions: Sequence[PartitionId]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "none"
