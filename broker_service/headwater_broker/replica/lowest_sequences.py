"""The lowest sequence seen of producers that a log does not know yet (in Kafka: a field of
VerificationStateEntry).

Of a producer without state a log takes any sequence. When the producer's first batch is rejected
for a while and a later one is not, the later one must be rejected too, or the first one never fits.
Pure.
"""

from __future__ import annotations

from headwater_broker.replica.partition import Partition

PRODUCERS_MAX = 10_000
"""So many producers and partitions are remembered; the oldest is forgotten first."""


class LowestSequences:
    """By partition and producer: the epoch, and the lowest sequence seen in it."""

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._limit = limit
        self._known: dict[tuple[Partition, int], tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, partition: Partition, producer_id: int, epoch: int, sequence: int) -> None:
        """A batch came. A later epoch begins anew."""
        key = (partition, producer_id)
        known = self._known.get(key)
        if known is None and len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        if known is None or epoch > known[0] or (epoch == known[0] and sequence < known[1]):
            self._known[key] = (epoch, sequence)

    def get(self, partition: Partition, producer_id: int, epoch: int, default: int) -> int:
        """The lowest sequence of the epoch."""
        known = self._known.get((partition, producer_id))
        return default if known is None or known[0] != epoch else known[1]

    def forget(self, partition: Partition, producer_id: int) -> None:
        """A batch or a marker is in the log: from now on the log knows the producer's sequence, or
        nothing of this transaction is to come."""
        if self._known:
            self._known.pop((partition, producer_id), None)
