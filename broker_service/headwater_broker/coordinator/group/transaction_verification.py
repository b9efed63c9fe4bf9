"""Verification of producers that commit offsets in a transaction (TxnOffsetCommit, KIP-890).

The group coordinator appends an offset of a transaction only while that transaction is open: it has
records here already, or its coordinator says that this partition is part of it. Between the answer
and the append the transaction may end, and a marker must never have an offset of its transaction
behind it. So the answer counts for one `Verification`: a marker of a higher epoch fences it, one of
its own epoch makes it stale. The coordinator is asked again for a stale one, because that marker
may as well have ended the transaction before: in transaction version 2 a marker has the epoch of
the next transaction, whose first request waits for it. Soft state: pure.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Producer


class Verification:
    """One request's producer, verified or being verified."""

    __slots__ = ("ended_by_epoch", "is_open", "producer")

    def __init__(self, producer: Producer, *, is_open: bool) -> None:
        self.producer = producer
        self.is_open = is_open
        """True: the transaction has records in this partition, and needs no further answer."""
        self.ended_by_epoch: int | None = None
        """Producer epoch of the marker that came meanwhile."""

    @property
    def is_stale(self) -> bool:
        """True: a marker of the producer's own epoch came meanwhile; verify again."""
        return self.ended_by_epoch == self.producer.producer_epoch


class Verifications:
    """The verifications under way in one shard."""

    def __init__(self) -> None:
        self._by_producer: dict[int, list[Verification]] = {}

    def begin(self, producer: Producer, *, is_open: bool) -> Verification:
        """A request begins; `end` must follow."""
        verification = Verification(producer, is_open=is_open)
        self._by_producer.setdefault(producer.producer_id, []).append(verification)
        return verification

    def end(self, verification: Verification) -> None:
        """The request is answered."""
        producer_id = verification.producer.producer_id
        rows = self._by_producer.get(producer_id, [])
        if verification in rows:
            rows.remove(verification)
            if not rows:
                del self._by_producer[producer_id]

    def transaction_ended(self, producer_id: int, producer_epoch: int) -> None:
        """A marker is in the log: verifications of its epoch and of older ones do not count."""
        for verification in self._by_producer.get(producer_id, ()):
            if verification.producer.producer_epoch <= producer_epoch:
                verification.ended_by_epoch = producer_epoch

    def check(self, verification: Verification) -> None:
        """Raises COORDINATOR_LOAD_IN_PROGRESS when the shard was loaded anew since `begin`,
        INVALID_PRODUCER_EPOCH when a marker has fenced the producer."""
        producer = verification.producer
        if verification not in self._by_producer.get(producer.producer_id, ()):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"groups were loaded while producer {producer.producer_id} was verified",
            )
        ended_by = verification.ended_by_epoch
        if ended_by is not None and ended_by > producer.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer.producer_id} epoch {producer.producer_epoch}: its transaction "
                f"was ended by a marker of epoch {ended_by}",
            )
