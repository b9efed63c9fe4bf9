"""One object for equal parts of many transactions: clients, partitions, topic ids.

A broker may hold 100,000 transactional ids of a few clients and topics: shared, an id takes a third
less memory.
"""

from __future__ import annotations

from uuid import UUID

from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    Partition,
    Transaction,
)

SHARED_MAX = 10_000
"""Objects of a kind that are remembered; one more forgets them all."""


class SharedValues:
    """Remembers the parts of transactions."""

    def __init__(self) -> None:
        self._clients: dict[ClientIdentity, ClientIdentity] = {}
        self._partitions: dict[Partition, Partition] = {}
        self._topic_ids: dict[UUID, UUID] = {}

    def client(self, client: ClientIdentity) -> ClientIdentity:
        """An equal client that is shared."""
        if len(self._clients) >= SHARED_MAX:
            self._clients.clear()
        return self._clients.setdefault(client, client)

    def apply(self, transaction: Transaction) -> Transaction:
        """An equal transaction, of parts that are shared."""
        for known in (self._partitions, self._topic_ids):
            if len(known) >= SHARED_MAX:
                known.clear()
        client = self.client(transaction.client)
        if not transaction.partitions:
            return transaction._replace(client=client)
        return transaction._replace(
            client=client,
            partitions={
                self._partitions.setdefault(partition, partition): self._topic_ids.setdefault(
                    topic_id, topic_id
                )
                for partition, topic_id in transaction.partitions.items()
            },
        )
