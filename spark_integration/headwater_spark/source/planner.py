"""The planning shell: asks brokers and log tables, and hands pure `planning` what they say.

No pyspark here: the batch reader, the stream reader and the union read all plan through it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater_spark.options import EARLIEST, LATEST, Bound, SourceOptions
from headwater_spark.source.broker_metadata import CLIENT_ID, Brokers, Topic
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.history import History
from headwater_spark.source.planning import (
    COLD_OFFSETS_MIN,
    Boundary,
    PartitionId,
    Seen,
    Split,
    Step,
    behind,
    byte_shares,
    first_step,
    limit_ends,
    limit_offsets,
    next_step,
    splits,
)
from headwater_spark.source.positions import Position

logger = logging.getLogger(__name__)

BEHIND_PATIENCE_S = 30.0
"""How long a new leader may take to catch up with what was already read (KIP-207)."""


class DataLossError(HeadwaterError):
    """Offsets that the query needs are gone, and `failOnDataLoss` is true."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A split with what its task needs beside it: the files, when it is cold."""

    split: Split
    files: ColdFiles | None = None


class Planner:
    """Plans reads of one set of options. One thread at a time."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._brokers = Brokers(
            options.bootstrap_servers, options.timeouts, options.client_id or CLIENT_ID
        )
        self._history = History(self._brokers, options)
        self._behind_since: float | None = None

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()

    def batch(self) -> Position:
        """A batch read's bounds, resolved now."""
        seen = self._seen()
        self._refuse_unknown(self.options.starting, seen, "startingOffsets")
        self._refuse_unknown(self.options.ending, seen, "endingOffsets")
        step = first_step(self._resolve(self.options.starting, seen, "starting"), seen)
        self._tell(step.losses)
        assert step.position is not None
        ends = self._resolve(self.options.ending, seen, "ending")
        beyond = [
            f"{t}-{p}: ending offset {end} is beyond the log's end {seen.latest[t, p]}"
            for (t, p), end in sorted(ends.items())
            if end > seen.latest[t, p]
        ]
        self._tell(tuple(beyond))
        return limit_ends(step.position, ends)

    def first(self) -> Position:
        """Batch 0 of a stream, without limits."""
        seen = self._seen()
        self._refuse_unknown(self.options.starting, seen, "startingOffsets")
        step = first_step(self._resolve(self.options.starting, seen, "starting"), seen)
        self._tell(step.losses)
        assert step.position is not None
        return step.position

    def newest(self) -> dict[PartitionId, int]:
        """How far every partition may be read now."""
        return dict(self._seen().latest)

    def next(self, previous: Position) -> Position | None:
        """The batch after `previous`, without limits; None when nothing is new."""
        seen = self._seen()
        self._check_behind(previous, seen)
        step: Step = next_step(previous, seen)
        self._tell(step.losses)
        return step.position

    def limited(self, position: Position) -> Position:
        """Within `maxOffsetsPerTrigger` and `maxBytesPerTrigger`."""
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

    def _seen(self) -> Seen:
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
        return Seen({n: t.topic_id for n, t in topics.items()}, earliest, latest)

    def _check_assigned(self, topics: Mapping[str, Topic]) -> None:
        for topic, partition in self.options.subscription.assigned:
            if partition >= topics[topic].partitions:
                raise UsageError(
                    f"option 'assign': topic {topic} has partitions 0 to"
                    f" {topics[topic].partitions - 1}, not {partition}"
                )

    def _refuse_unknown(self, bound: Bound, seen: Seen, name: str) -> None:
        """Explicit offsets must cover exactly the partitions that are read (as Spark's Kafka)."""
        given = set(bound.offsets) or set(bound.timestamps_ms)
        if not given:
            return
        missing = sorted(set(seen.latest) - given)
        unknown = sorted(given - set(seen.latest))
        if missing or unknown:
            raise UsageError(
                f"option {name!r} must name every partition that is read (-1 latest, -2 earliest):"
                f" missing {_named(missing)}; unknown {_named(unknown)}"
            )

    def _resolve(self, bound: Bound, seen: Seen, side: str) -> dict[PartitionId, int]:
        words = {EARLIEST: seen.earliest, LATEST: seen.latest}
        if not bound.by_timestamp:
            result = {}
            for tp in seen.latest:
                offset = bound.offsets.get(tp, bound.default)
                result[tp] = words[offset][tp] if offset in words else offset
            return result
        times = {tp: bound.timestamp_ms(tp) for tp in seen.latest}
        asked = {tp: at for tp, at in times.items() if at is not None}
        found = self._brokers.list_offsets(asked, self.options.isolation_level)
        for tp, offset in found.items():
            if offset < 0:
                if side == "starting" and not self.options.timestamp_miss_is_latest:
                    raise UsageError(
                        f"no record of {tp[0]}-{tp[1]} at or after timestamp {asked[tp]};"
                        " set startingOffsetsByTimestampStrategy=latest to start at the end"
                    )
                found[tp] = seen.latest[tp]
        return {tp: min(offset, seen.latest[tp]) for tp, offset in found.items()}

    def _check_behind(self, previous: Position, seen: Seen) -> None:
        stories = behind(previous, seen)
        if not stories:
            self._behind_since = None
            return
        now = self._clock.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since > BEHIND_PATIENCE_S:
            self._tell(stories)

    def _tell(self, losses: Sequence[str]) -> None:
        """Data loss: an error, or a warning where the user allowed it."""
        if not losses:
            return
        story = "; ".join(losses)
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{story}. Set failOnDataLoss=false to go on with what is there.")
        logger.warning("failOnDataLoss is false, going on: %s", story)

    def _boundaries(
        self, position: Position
    ) -> tuple[dict[PartitionId, Boundary], dict[str, ColdFiles]]:
        """Tier boundaries of the topics whose backlog may be worth a look into their table."""
        if not self.options.use_table:
            return {}, {}
        behind_tps: dict[str, list[int]] = {}
        for (topic, partition), end in position.end.items():
            if end > position.start[topic, partition]:
                behind_tps.setdefault(topic, []).append(partition)
        boundaries: dict[PartitionId, Boundary] = {}
        files: dict[str, ColdFiles] = {}
        for topic, partitions in behind_tps.items():
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
