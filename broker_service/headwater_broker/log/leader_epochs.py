"""The leader epochs of one log and their start offsets (Kafka's LeaderEpochFileCache). Pure.

KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """(epoch, start offset) pairs, both rising. `changed`: the checkpoint file must be written."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.assign(epoch, start)
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        self.changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """Record that `epoch` begins at `start`; entries it contradicts go (KAFKA-7415).

        A repeat of the latest epoch changes nothing.
        """
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch <= `epoch`, its end offset); (-1, -1) when unknown.

        OffsetForLeaderEpoch: a requested epoch older than all known answers with itself and the
        first known start, so that the follower truncates to where our history begins.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        found = self._epochs[above - 1] if above else epoch
        return found, self._starts[above]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when it precedes all known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.changed = True
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or before `start_offset`; the one across it begins there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: at - 1], self._starts[: at - 1]
        self._starts[0] = start_offset
        self.changed = True

    def clear(self) -> None:
        """Forget all."""
        self._epochs.clear()
        self._starts.clear()
        self.latest = NO_EPOCH
        self.changed = True
