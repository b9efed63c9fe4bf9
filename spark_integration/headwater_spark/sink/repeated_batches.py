"""Refuses a second write of one micro-batch that would pass for Spark's repeat of it. Pure.

Spark repeats a micro-batch when it could not log its commit, always in a new run of the query. The
coordinator (`epoch_admission.refusal`) answers JoinEpoch of such an epoch with "committed", and
`epoch_task` drains the rows. A run never repeats a micro-batch that it has finished: a second write
with the same run, epoch and sink is another DataFrame of the same foreachBatch, whose rows would be
lost if they were drained.
"""

from __future__ import annotations

from uuid import UUID

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.client.sink_values import SinkDescription
from headwater.errors import UsageError


class FinishedBatches:
    """The last finished epoch of each sink."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[UUID, int]] = {}

    def check(self, bootstrap_servers: str, writer: EpochWriter) -> None:
        """Raise UsageError if this run has finished the epoch already."""
        if self._last.get((bootstrap_servers, writer.sink)) == (writer.run, writer.epoch):
            raise UsageError(
                f"{writer} was written by another exactly_once function of this micro-batch: give"
                " each of them a sink_id of its own"
            )

    def finished(self, bootstrap_servers: str, writer: EpochWriter) -> None:
        """The run has written the epoch, or found it written."""
        self._last[bootstrap_servers, writer.sink] = (writer.run, writer.epoch)


def check_repeat(writer: EpochWriter, sink: SinkDescription | None) -> None:
    """Raise UsageError if a committed epoch is not repeated but written twice by one run.

    The coordinator records the ticket of the first write of a run that repeats a batch.
    """
    if sink is None or sink.last_epoch != writer.epoch:
        return
    if sink.run == writer.run and sink.ticket != writer.ticket:
        raise UsageError(
            f"batch {writer.epoch} was written to sink {writer.sink} by another write of this"
            " run: give each write in foreachBatch a headwater.sink.id of its own"
        )
