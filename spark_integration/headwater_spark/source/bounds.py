"""Resolves where reads start and end, as offsets per partition. Asks brokers and log tables.

No pyspark. The planner holds the result against the log (`batch_offsets.plan_first_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from headwater.errors import UsageError
from headwater_spark.options import EARLIEST, LATEST
from headwater_spark.source.broker_metadata import Brokers
from headwater_spark.source.history import History
from headwater_spark.source.positions import CurrentOffsets, PartitionId
from headwater_spark.source.source_options import Bound, SourceOptions, TableStart

STRATEGY = "startingOffsetsByTimestampStrategy"


class Bounds:
    """The start and end of one set of options."""

    def __init__(self, brokers: Brokers, history: History, options: SourceOptions) -> None:
        self._brokers = brokers
        self._history = history
        self._options = options

    def starts(self, current: CurrentOffsets) -> dict[PartitionId, int]:
        """The start offsets; they may lie outside the log. Raises UsageError."""
        if self._options.from_table is not None:
            return self._after_table(self._options.from_table, current)
        bound = self._options.starting
        _refuse_unnamed(bound, current, "starting")
        found = self._resolved(bound, current)
        without = sorted(tp for tp, offset in found.items() if offset is None)
        if without and not self._options.timestamp_miss_is_latest:
            times = ", ".join(f"{t}-{p} ({bound.timestamp_ms((t, p))})" for t, p in without)
            raise UsageError(
                f"no record at or after the starting timestamp in {times}; set {STRATEGY}=latest"
                " to start at the end there"
            )
        return {tp: current.latest[tp] if at is None else at for tp, at in found.items()}

    def ends(self, current: CurrentOffsets) -> dict[PartitionId, int]:
        """The end offsets; a timestamp after the last record is the log's end. Raises UsageError.

        They may lie beyond the log.
        """
        _refuse_unnamed(self._options.ending, current, "ending")
        found = self._resolved(self._options.ending, current)
        return {tp: current.latest[tp] if at is None else at for tp, at in found.items()}

    def _resolved(self, bound: Bound, current: CurrentOffsets) -> dict[PartitionId, int | None]:
        """An offset per partition; None where no record is as late as the bound's timestamp."""
        words = {EARLIEST: current.earliest, LATEST: current.latest}
        if not bound.by_timestamp:
            result: dict[PartitionId, int | None] = {}
            for tp in current.latest:
                offset = bound.offsets.get(tp, bound.default)
                result[tp] = words[offset][tp] if offset in words else offset
            return result
        times = {tp: bound.timestamp_ms(tp) for tp in current.latest}
        asked = {tp: at for tp, at in times.items() if at is not None}
        found = self._brokers.list_offsets(asked, self._options.isolation_level)
        # A record may have come since `current`: the bound stays in front of it.
        return {tp: None if at < 0 else min(at, current.latest[tp]) for tp, at in found.items()}

    def _after_table(self, start: TableStart, current: CurrentOffsets) -> dict[PartitionId, int]:
        """The tiered ends of a table version; a partition that it has nothing of starts earliest.

        A table that was copied up to that version goes on from here without a gap.
        """
        topics = sorted(current.topic_ids)
        versions = dict(start.versions)
        if start.version is not None:
            if len(topics) != 1:
                raise UsageError(
                    f"option 'fromDeltaVersion' is one version, but the query reads"
                    f" {len(topics)} topics, each with a table: give JSON with all of them"
                )
            versions = {topics[0]: start.version}
        if start.time_ms is None and set(versions) != set(topics):
            raise UsageError(
                "option 'fromDeltaVersion' must name every topic that is read:"
                f" missing {_listed(set(topics) - set(versions))};"
                f" unknown {_listed(set(versions) - set(topics))}"
            )
        starts = dict(current.earliest)
        for topic in topics:
            at: int | datetime
            if start.time_ms is not None:
                at = datetime.fromtimestamp(start.time_ms / 1000, UTC)
            else:
                at = versions[topic]
            for partition, end in self._history.ends_at(topic, at).items():
                if (topic, partition) in starts:
                    starts[topic, partition] = end
        return starts


def _refuse_unnamed(bound: Bound, current: CurrentOffsets, side: str) -> None:
    """Offsets and timestamps by partition must name exactly the partitions read, as in Spark."""
    name = f"{side}OffsetsByTimestamp" if bound.timestamps_ms else f"{side}Offsets"
    given = set(bound.offsets) or set(bound.timestamps_ms)
    if not given:
        return
    missing = sorted(set(current.latest) - given)
    unknown = sorted(given - set(current.latest))
    if missing or unknown:
        words = "" if bound.timestamps_ms else " (-1 latest, -2 earliest)"
        raise UsageError(
            f"option {name!r} must name every partition that is read{words}:"
            f" missing {_named(missing)}; unknown {_named(unknown)}"
        )


def _named(partitions: Sequence[PartitionId]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "none"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
