"""Verification of producers that commit offsets in a transaction (TxnOffsetCommit, KIP-890).

The group coordinator appends an offset of a transaction only while that transaction is open: it has
records here already, or its coordinator says that this partition is part of it. Between the answer
and the append the transaction may end, and a marker must never have an offset of its transaction
behind it. So the answer counts for one `Verification`: a marker of a higher epoch fences it, one of
its own epoch makes it stale. The coordinator is asked again for a stale one, because that marker
may as well have ended the transaction before: in transaction version 2 a marker has the epoch of
the next transaction, whose first request waits for it.

Offsets have no sequence numbers. A request that arrives late, on a connection which its client has
given up, would put an older offset over a newer one, or into the next transaction: it is refused.
Soft state: pure.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Producer

CONNECTIONS_MAX = 10_000
"""Producers whose latest connection is remembered; the oldest is forgotten first."""


class Verification:
    """One request's producer, verified or being verified."""

    __slots__ = ("connection", "ended_by_epoch", "is_open", "producer")

    def __init__(self, producer: Producer, connection: int, *, is_open: bool) -> None:
        self.producer = producer
        self.connection = connection
        """Its number: connections are numbered in the order in which they were accepted."""
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
        self._connections: dict[int, tuple[int, int]] = {}
        """Producer id -> (epoch, connection) of its latest offsets."""

    def begin(self, producer: Producer, connection: int, *, is_open: bool) -> Verification:
        """A request begins; `end` must follow."""
        verification = Verification(producer, connection, is_open=is_open)
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
        INVALID_PRODUCER_EPOCH when a marker has fenced the producer, CONCURRENT_TRANSACTIONS for a
        connection that is older than that of its latest offsets."""
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
        epoch, connection = self._connections.get(producer.producer_id, (-1, 0))
        if epoch == producer.producer_epoch and verification.connection < connection:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"producer {producer.producer_id} epoch {producer.producer_epoch} has committed "
                "offsets on a newer connection",
            )

    def committed(self, verification: Verification) -> None:
        """The request's offsets are decided: requests on older connections are late."""
        producer = verification.producer
        latest = (producer.producer_epoch, verification.connection)
        known = self._connections.pop(producer.producer_id, latest)
        if len(self._connections) >= CONNECTIONS_MAX:
            del self._connections[next(iter(self._connections))]
        self._connections[producer.producer_id] = max(known, latest)
