"""Tells a micro-batch that Spark repeats, which is not written again, from a second write.

Spark repeats a micro-batch when it could not log its commit, always in a new run of the query. The
coordinator knows the sink's last epoch (`epoch_admission.refusal`) and answers JoinEpoch of such an
epoch with "committed": the batch is repeated, and `epoch_task` drains its rows. A run never repeats
a micro-batch that it has finished: a second write with the same run, epoch and sink is another
DataFrame of the same foreachBatch, whose rows would be lost if they were drained. It is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
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


def join_unless_repeated(
    epochs: EpochClient,
    writer: EpochWriter,
    *,
    task: int,
    attempt: int,
    topics: Mapping[str, Sequence[int]],
) -> Participant | None:
    """Join the epoch. None: the batch is repeated, and its rows are in the topics already.

    Raises UsageError if one run writes the epoch twice.
    """
    participant = epochs.join(writer, task=task, attempt=attempt, topics=topics)
    if participant is None:  # the coordinator says "committed"
        check_repeat(writer, epochs.describe(writer.sink))
    return participant


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
