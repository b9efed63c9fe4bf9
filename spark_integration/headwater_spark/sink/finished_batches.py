"""Refuses a second `exactly_once` function of one micro-batch. Pure.

A run of a query never repeats a micro-batch that it has finished. So a second call with the same
run, epoch and sink comes from another `exactly_once` function of the same foreachBatch. It would be
taken for a repeat, and its writes would be lost.
"""

from __future__ import annotations

from uuid import UUID

from headwater.client.blocking.epoch_client import EpochWriter
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
