"""Offsets that a query has to read and that are gone: failOnDataLoss decides.

`batch_offsets` finds those that aged out before a plan, `read_task` those that go while a task
reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater.errors import HeadwaterError
from headwater_spark.source.positions import CurrentOffsets, Position

logger = logging.getLogger(__name__)

Reads = Callable[[str, int], bool]
"""(topic, partition) -> True when the query's options name it."""


def every_partition(_topic: str, _partition: int) -> bool:
    """A query that reads every partition."""
    return True


class DataLossError(HeadwaterError):
    """Offsets of the query are no longer available, and `failOnDataLoss` is true."""


class LossReport:
    """Stops a query at the first data loss, or logs each loss once (`failOnDataLoss=false`)."""

    def __init__(self, fail_on_data_loss: bool) -> None:
        self._fails = fail_on_data_loss
        self._warned: set[str] = set()

    def report(self, losses: Sequence[str]) -> None:
        """`losses` as sentences. Raises DataLossError."""
        if losses and self._fails:
            raise DataLossError(
                f"{'; '.join(losses)}. Set failOnDataLoss=false to continue with the offsets that"
                " are left."
            )
        for loss in losses:
            if loss not in self._warned:
                self._warned.add(loss)
                logger.warning("continuing, as failOnDataLoss is false: %s", loss)


def gone_topics(
    previous: Position, current: CurrentOffsets, reads: Reads = every_partition
) -> tuple[str, ...]:
    """Topics of the last batch that the query reads, but the brokers do not list."""
    missing = set(previous.topic_ids) - set(current.topic_ids)
    return tuple(
        sorted({topic for topic, p in previous.end if topic in missing and reads(topic, p)})
    )


def truncated_partitions(previous: Position, current: CurrentOffsets) -> tuple[str, ...]:
    """Partitions whose log ends before the offset already read, as sentences.

    Either the log was truncated, or a new leader has not caught up with the high watermark yet.
    """
    return tuple(
        f"{topic}-{partition}: the log ends at {current.latest[topic, partition]}, but the query"
        f" has read up to {offset}"
        for (topic, partition), offset in sorted(previous.end.items())
        if (topic, partition) in current.latest
        and current.latest[topic, partition] < offset
        and previous.topic_ids.get(topic) == current.topic_ids.get(topic)
    )
