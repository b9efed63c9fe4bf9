"""The transactional clients of a world: producers, read_committed consumers, a copier."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.errors import ErrorCode
from headwater.wire.apis import k01_fetch as k01
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k28_txn_offset_commit as k28
from sim.clients import LOST, Client
from sim.ledger import Key
from sim.plan import COPIED, TRANSACTED
from sim.transaction_clients import GROUP, TransactionalClient
from sim.transaction_ledger import Transaction, committed_of

if TYPE_CHECKING:
    from sim.world import World

COMMITS = 0.75
LINGERS = 0.05
"""How often a transaction stays open until its timeout."""
GROUP_ID = "copier"
SOURCE: Key = (TRANSACTED, 0)
TARGET: Key = (COPIED, 0)
READ_WAIT_MS = 300
COPY_WAIT_MS = 200


class TransactionalProducer(TransactionalClient):
    """Writes to the partitions of a topic, in transactions that it commits or aborts."""

    def successor(self, instance: int) -> TransactionalClient:
        return TransactionalProducer(self.world, self.transactional_id, self.version, instance)

    async def body(self, transaction: Transaction) -> bool:
        random = self.world.random
        count = 0
        for _ in range(random.randint(1, 3)):
            key = (TRANSACTED, random.randrange(self.world.topics[TRANSACTED]))
            batches = []
            for _ in range(random.choice((1, 1, 2))):
                size = random.randint(1, 2)
                batches.append(
                    tuple(b"%b#%d" % (transaction.name.encode(), count + i) for i in range(size))
                )
                count += size
            await self.write(transaction, key, *batches)
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 0.5)
        if random.random() < LINGERS:
            self.ledger.count("lingered")
            await asyncio.sleep(self.timeout_ms / 1000 * random.uniform(0.5, 2.0))
        return random.random() < COMMITS


class _Fetching:
    """Fetch v12 with read_committed."""

    @staticmethod
    async def fetch(
        client: Client, host: str, key: Key, offset: int, wait_ms: int
    ) -> tuple[list[tuple[int, bytes]], int, ErrorCode]:
        """Records, the next offset, the error. Raises OSError, TimeoutError."""
        partition = k01.FetchPartition(
            partition=key[1], fetch_offset=offset, partition_max_bytes=65536
        )
        request = k01.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=1,
            topics=(k01.FetchTopic(topic=key[0], partitions=(partition,)),),
        )
        reply = await client.ask(host, request, k01.FetchResponse, 12)
        if not reply.responses:
            return [], offset, ErrorCode(reply.error_code)
        row = reply.responses[0].partitions[0]
        aborted = [(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()]
        records, after = committed_of(bytes(row.records or b""), aborted, offset)
        return records, after, ErrorCode(row.error_code)


class CommittedConsumer(Client):
    """Reads one partition with read_committed, again and again, from any of its replicas."""

    def __init__(self, world: World, key: Key) -> None:
        super().__init__(world, f"committed.{key[0]}.{key[1]}")
        self.key = key

    async def work(self) -> None:
        offset, found = 0, set[int]()
        while not self.world.is_over:
            host = await self.any_broker()
            try:
                records, after, code = await _Fetching.fetch(
                    self, host, self.key, offset, READ_WAIT_MS
                )
            except LOST:
                continue
            if code is not ErrorCode.NONE:
                await self.pause()  # not a replica, or a follower that is behind
                continue
            for at, value in records:
                self.world.read_committed(self.key, at, value)
                found.add(at)
            offset = after
            if self.world.random.random() < 0.02:
                self._passed(offset, found)
                offset, found = 0, set()
        self._passed(offset, found)

    def _passed(self, offset: int, found: set[int]) -> None:
        self.world.transactions.passes.append((self.key, offset, frozenset(found)))


class Copier(TransactionalClient):
    """Consume, transform, produce: copies one partition, and commits its offsets in the
    transaction of the copies."""

    position: int | None = None

    def successor(self, instance: int) -> TransactionalClient:
        return Copier(self.world, self.transactional_id, self.version, instance)

    def not_committed(self) -> None:
        self.position = None

    async def body(self, transaction: Transaction) -> bool:
        if self.position is None:
            self.position = await self.committed_offset()
        records, after = await self._read(self.position)
        if after == self.position:
            return False
        if records:
            prefix = transaction.name.encode()
            copies = tuple(b"%b#%d/%b" % (prefix, offset, value) for offset, value in records)
            await self.write(transaction, TARGET, copies)
        await self._commit_offset(after)
        self.ledger.count("copied")
        self.position = after
        return self.world.random.random() < 0.9

    async def _read(self, offset: int) -> tuple[list[tuple[int, bytes]], int]:
        host = self._leaders.get(SOURCE) or await self.leader(*SOURCE)
        if host is None:
            return [], offset
        try:
            records, after, code = await _Fetching.fetch(self, host, SOURCE, offset, COPY_WAIT_MS)
        except LOST:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code is not ErrorCode.NONE:
            self._leaders.pop(SOURCE, None)
            return [], offset
        self._leaders[SOURCE] = host
        return records, after

    async def committed_offset(self) -> int:
        """OffsetFetch with requireStable: waits for the end of pending commits."""
        topic = k09.OffsetFetchRequestTopics(name=SOURCE[0], partition_indexes=(SOURCE[1],))
        group = k09.OffsetFetchRequestGroup(group_id=GROUP_ID, topics=(topic,))
        request = k09.OffsetFetchRequest(groups=(group,), require_stable=True)

        def code_of(reply: k09.OffsetFetchResponse) -> int:
            row = reply.groups[0]
            return row.error_code or row.topics[0].partitions[0].error_code

        reply, _ = await self.to_coordinator(
            (GROUP, GROUP_ID), request, k09.OffsetFetchResponse, 8, code_of
        )
        self.checked(ErrorCode(code_of(reply)), "OffsetFetch")
        return max(0, reply.groups[0].topics[0].partitions[0].committed_offset)

    async def _commit_offset(self, offset: int) -> None:
        if self.version == 1:
            added, _ = await self.to_coordinator(
                self.own_coordinator,
                k25.AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    group_id=GROUP_ID,
                ),
                k25.AddOffsetsToTxnResponse,
                3,
                lambda r: r.error_code,
            )
            self.checked(ErrorCode(added.error_code), "AddOffsetsToTxn")
        self.enlisted.add(("__consumer_offsets", 0))
        partition = k28.TxnOffsetCommitRequestPartition(
            partition_index=SOURCE[1], committed_offset=offset, committed_metadata=""
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP_ID,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            topics=(k28.TxnOffsetCommitRequestTopic(name=SOURCE[0], partitions=(partition,)),),
        )

        def code_of(reply: k28.TxnOffsetCommitResponse) -> int:
            return reply.topics[0].partitions[0].error_code

        reply, _ = await self.to_coordinator(
            (GROUP, GROUP_ID), request, k28.TxnOffsetCommitResponse, 3 + self.version, code_of
        )
        self.checked(ErrorCode(code_of(reply)), "TxnOffsetCommit")


class Judge(Copier):
    """After healing it asks for the offset that the copier's group has committed."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "judge", 1)

    async def work(self) -> None:
        while not self.world.is_healing or any(
            isinstance(c, Copier) and c is not self and not c.is_done for c in self.world.clients
        ):
            await asyncio.sleep(0.5)
        self.ledger.copied_to = await self.committed_offset()


def transactional_clients(world: World) -> list[Client]:
    """The transactional clients of a world: half of them have transaction version 1."""
    found: list[Client] = []
    for number in range(world.plan.transactional_producers):
        version = world.random.choice((1, 2))
        found.append(TransactionalProducer(world, f"transactional-{number}", version))
    found.append(Copier(world, "copier", world.random.choice((1, 2))))
    found.append(Judge(world))
    for topic in (TRANSACTED, COPIED):
        for index in range(world.plan.topics[topic]):
            found.append(CommittedConsumer(world, (topic, index)))
    return found
