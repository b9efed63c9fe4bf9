"""The topic writes of a micro-batch of `exactly_once`: one Spark job after the other, one epoch.

The driver sends heartbeats meanwhile: tasks do so only while they run, and the next job may compute
for minutes (a shuffle) before its first task of the sink runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

from pyspark.sql import DataFrame

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater_spark.sink.epoch_decided_by_table import TopicRows
from headwater_spark.sink.epoch_write import EpochWrite, write_epoch
from headwater_spark.sink.heartbeats import Heartbeats

DRIVER_INTERVAL_S = 5.0
"""Until the first job has ended: its tasks send heartbeats of their own."""


class Beats(AbstractContextManager[object], Protocol):
    """The part of `Heartbeats` that is used here."""

    def __enter__(self) -> Self: ...

    def joined(self, interval_s: float) -> None:
        """The epoch has a participant."""

    def check(self) -> None:
        """Raise EpochAbortedError once the epoch is lost."""


def _of_driver(writer: EpochWriter, connect: Callable[[], EpochClient]) -> Heartbeats:
    return Heartbeats(writer, connect, first_interval_s=DRIVER_INTERVAL_S)


def write_topics(
    writer: EpochWriter,
    writes: Sequence[tuple[DataFrame, Mapping[str, str]]],
    new_client: Callable[[], EpochClient],
    *,
    write: Callable[..., EpochWrite] = write_epoch,
    new_beats: Callable[[EpochWriter, Callable[[], EpochClient]], Beats] = _of_driver,
) -> TopicRows:
    """Write each DataFrame with its options. Raises when one of the jobs failed, or when the epoch
    was aborted between two of them. `write` and `new_beats` are for tests."""
    participants: list[Participant] = []
    tasks = 0
    with new_beats(writer, new_client) as beats:
        for rows, options in writes:
            beats.check()
            written = write(rows, writer, options, first_task=tasks)
            if written.is_committed:
                return TopicRows((), is_committed=True)
            participants += written.participants
            tasks = written.tasks
            if participants:
                beats.joined(min(p.heartbeat_interval_s for p in participants))
    return TopicRows(tuple(participants), is_committed=False)
