"""Worlds with log operations while brokers fail: replicas move between data folders, records are
deleted, keys are compacted. Their invariants allow for the deleted records.
"""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater.records.record import read_records
from headwater.wire.apis import k21_delete_records as k21
from headwater.wire.apis import k34_alter_replica_log_dirs as k34
from headwater_broker.app.wiring import BrokerServer
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.replica.partition import Partition
from sim import invariants as rules
from sim.broker import Broker
from sim.clients import LOST, Client, Consumer, IdempotentProducer, Producer
from sim.ledger import Acked, Batch, Ledger, batches
from sim.loop import ProcessLoop
from sim.plan import Plan
from sim.world import World

TOPIC = "log"
FOLDERS = ("/disk/a", "/disk/b")
PAUSE_S = 0.4
PASS_S = 0.3
"""The longest time of a compaction until it has read, and again until the swap of segments."""
KEYS = 5
TOMBSTONE_EACH = 7


class Operator(Client):
    """Sends `_request` again and again, and counts the replies."""

    async def work(self) -> None:
        random = self.world.random
        while not self.world.is_healing:
            await asyncio.sleep(random.random() * PAUSE_S)
            try:
                code = await self.once(random.randrange(self.world.topics[TOPIC]))
            except LOST:
                continue
            if code is not None:
                counts = self.world.admin_ledger.counts
                counts[code.name] = counts.get(code.name, 0) + 1

    async def once(self, index: int) -> ErrorCode | None:
        """Send one request about a partition; None if no broker could be asked."""
        raise NotImplementedError


class FolderMover(Operator):
    """AlterReplicaLogDirs: moves any replica to any folder."""

    async def once(self, index: int) -> ErrorCode | None:
        random = self.world.random
        topic = k34.AlterReplicaLogDirTopic(name=TOPIC, partitions=(index,))
        row = k34.AlterReplicaLogDir(path=random.choice(FOLDERS), topics=(topic,))
        request = k34.AlterReplicaLogDirsRequest(dirs=(row,))
        host = await self.any_broker()
        reply = await self.ask(host, request, k34.AlterReplicaLogDirsResponse, 2)
        return ErrorCode(reply.results[0].partitions[0].error_code)


class Deleter(Operator):
    """DeleteRecords: deletes up to a random committed offset."""

    async def once(self, index: int) -> ErrorCode | None:
        random, end = self.world.random, self.world.ledger(TOPIC, index).end
        host = await self.leader(TOPIC, index)
        if host is None:
            return None
        offset = random.choice([-1, max(0, end - random.randrange(10)), random.randint(0, end)])
        assert isinstance(self.world, Deleting)
        self.world.shortened.asked(index, offset)
        row = k21.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = k21.DeleteRecordsTopic(name=TOPIC, partitions=(row,))
        request = k21.DeleteRecordsRequest(topics=(topic,), timeout_ms=500)
        reply = await self.ask(host, request, k21.DeleteRecordsResponse, 2)
        return ErrorCode(reply.topics[0].partitions[0].error_code)


class _Start:
    """The offset at which a partition's logs may start, and the segments that they last had."""

    def __init__(self) -> None:
        self.may_be = 0
        self.asked = 0
        """The highest offset in a DeleteRecords request; its reply may be lost."""
        self.is_all_asked = False
        """Whether a request named the high watermark."""
        self.sizes: dict[int, dict[int, int]] = {}
        """Broker -> base offset of a segment -> its size, after the last event."""


class NothingElseIsDeleted(rules.Invariant):
    """A log starts no later than a DeleteRecords request asked for, or where retention deleted
    whole segments and retention.bytes are left."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._starts: dict[int, _Start] = {}
        self._retention_bytes = int(world.plan.topic_configs.get("retention.bytes", 0))

    def asked(self, index: int, offset: int) -> None:
        """A DeleteRecords request is about to be sent."""
        start = self._start(index)
        start.asked = max(start.asked, offset)
        start.is_all_asked |= offset == -1

    def look(self, broker: Broker, partition: Partition) -> None:
        """Check after any event of the broker."""
        log, start = partition.log, self._start(partition.partition)
        begin = max(log.log_start_offset, log.local_log_start_offset, log.bases[0])
        if begin > start.may_be:
            if not self._is_due(start, begin, broker, partition):
                self.fail(
                    f"{broker} {partition!r}: begins at {begin}; DeleteRecords asked for "
                    f"{start.asked}, {log.size_bytes} bytes are left in {log.bases}"
                )
            start.may_be = begin
        start.sizes[broker.id] = {s.base_offset: s.file.size_bytes for s in log.segments}

    def _is_due(self, start: _Start, begin: int, broker: Broker, partition: Partition) -> bool:
        if begin <= start.asked or (start.is_all_asked and begin == partition.high_watermark):
            return True
        # By the sizes before: after a power loss a log may be shorter than retention left it.
        before = start.sizes.get(broker.id, {})
        left = sum(size for base, size in before.items() if base >= begin)
        is_whole = begin == partition.log.bases[0]
        return is_whole and max(left, partition.log.size_bytes) >= self._retention_bytes > 0

    def _start(self, index: int) -> _Start:
        return self._starts.setdefault(index, _Start())


class CommittedPrefixAgreesFromTheStart(rules.CommittedPrefixAgrees):
    """`CommittedPrefixAgrees` for records that are not deleted. A divergence below the leader's log
    start offset cannot be detected, and does not matter."""

    def counts(self, partition: Partition, batch: Batch) -> bool:
        return batch.last_offset >= partition.log.log_start_offset


class LeaderHasAllFromItsStart(rules.LeaderHasAllCommitted):
    """`LeaderHasAllCommitted` for records that are not deleted."""

    def replica(
        self, broker: Broker, partition: Partition, before: rules.Seen, ledger: Ledger
    ) -> None:
        if not partition.is_leader or partition.leader_epoch == before.epoch:
            return
        start = partition.log.log_start_offset
        if start > ledger.end:
            self.fail(f"{broker} {partition!r}: starts at {start}, committed is {ledger.end}")
        held = {batch.base_offset: batch for batch in batches(partition.log, ledger.end)}
        for wanted in ledger.before(partition.leader_epoch):
            if wanted.last_offset >= start and held.get(wanted.base_offset) != wanted:
                self.fail(f"{broker} {partition!r}: leads from {start} on without {wanted}")


class NoAckedRecordIsLostFromTheStart(rules.NoAckedRecordIsLost):
    """`NoAckedRecordIsLost` for records that are not deleted."""

    def _check(self, broker: Broker, partition: Partition, ledger: Ledger) -> None:
        start, found = partition.log.log_start_offset, self.world.values_of(partition)
        for acked in ledger.acked:
            for offset, value in enumerate(acked.values, acked.base_offset):
                if offset >= start and found.get(offset) != value:
                    self.fail(f"{broker} {partition!r}: {value!r} was acked at {offset}")


class ReplicasEndEqualFromTheStart(rules.ReplicasEndEqual):
    """`ReplicasEndEqual` for records that no replica has deleted."""

    def ended(self) -> None:
        for ledger in self.world.ledgers.values():
            replicas = self.world.replicas_of(ledger.key)
            start = max(partition.log.log_start_offset for _, partition in replicas)
            logs = [_from(start, partition) for _, partition in replicas]
            for found in logs[1:]:
                if found != logs[0]:
                    self.fail(f"{ledger.key} from {start}: {rules.differ(logs[0], found)}")


def _from(start: int, partition: Partition) -> list[Batch]:
    log = partition.log
    return [batch for batch in batches(log, log.log_end_offset) if batch.last_offset >= start]


class Kept(World):
    """A world with an operator. Invariants over all records start at the log start offset."""

    operator: type[Operator]
    left_out: frozenset[type[rules.Invariant]] = frozenset(
        {
            rules.CommittedPrefixAgrees,
            rules.LeaderHasAllCommitted,
            rules.NoAckedRecordIsLost,
            rules.ReplicasEndEqual,
        }
    )
    added: tuple[type[rules.Invariant], ...] = (
        CommittedPrefixAgreesFromTheStart, LeaderHasAllFromItsStart,
        NoAckedRecordIsLostFromTheStart, ReplicasEndEqualFromTheStart,
    )  # fmt: skip

    def invariants(self) -> tuple[type[rules.Invariant], ...]:
        chosen = [rule for rule in super().invariants() if rule not in self.left_out]
        return (*chosen, *self.added)

    def _start_clients(self) -> None:
        if hasattr(self, "operator"):
            self.clients.append(self.operator(self, "operator"))
        super()._start_clients()


class Moving(Kept):
    """A world where replicas move between data folders; at the end no move is left."""

    operator = FolderMover

    def _not_whole(self) -> str:
        for broker in self.brokers:
            if broker.node is not None and broker.node.logs.futures.logs:
                return f"{broker} still moves {list(broker.node.logs.futures.logs)}"
        return super()._not_whole()


class Deleting(Kept):
    """A world where records are deleted."""

    operator = Deleter
    added = (*Kept.added, NothingElseIsDeleted)

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        super().__init__(seed, plan)
        (self.shortened,) = [r for r in self.rules if isinstance(r, NothingElseIsDeleted)]

    def _after_event(self, loop: ProcessLoop) -> None:
        super()._after_event(loop)
        broker, partitions = self._watched.get(loop, (None, {}))
        if broker is None:
            return
        try:
            for partition in partitions.values():
                self.shortened.look(broker, partition)
        except rules.ViolationError as violation:
            self.broken(violation)


class _Keyed(Producer):
    """A producer of records with keys and some tombstones, by the record's number."""

    def _batch(self, values: tuple[bytes, ...]) -> bytes:
        builder = BatchBuilder()
        for value in values:
            stored = None if _is_tombstone(value) else value
            builder.append(self.world.now_ms, _key_of(value), stored)
        return bytes(
            builder.build(
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._sequence if self._producer_id >= 0 else -1,
            )
        )


class _IdempotentKeyed(_Keyed, IdempotentProducer):
    """An idempotent producer of such records."""


def _key_of(value: bytes) -> bytes:
    name, _, number = value.partition(b":")
    return b"%b/%d" % (name, int(number) % KEYS)


def _is_tombstone(value: bytes) -> bool:
    return int(value.partition(b":")[2]) % TOMBSTONE_EACH == 0


class TheLastOfEachKeyStays(rules.Invariant):
    """After healing all replicas have the same last value of each key, none older than the last
    acked one."""

    def ended(self) -> None:
        for ledger in self.world.ledgers.values():
            replicas = self.world.replicas_of(ledger.key)
            found = [_latest(partition) for _, partition in replicas]
            for other in found[1:]:
                if other != found[0]:
                    self.fail(f"{ledger.key}: {set(other.items()) ^ set(found[0].items())}")
            self._check(ledger, found[0])

    def _check(self, ledger: Ledger, found: dict[bytes, tuple[int, bytes]]) -> None:
        wanted: dict[bytes, tuple[int, bytes]] = {}
        for acked in sorted(ledger.acked, key=_offset):
            for offset, value in enumerate(acked.values, acked.base_offset):
                wanted[_key_of(value)] = offset, value
        for key, (offset, value) in wanted.items():
            there = found.get(key)
            if there is None and not _is_tombstone(value):
                self.fail(f"{ledger.key}: {value!r} was acked at {offset}, {key!r} is gone")
            if there is not None and there[0] < offset:
                self.fail(f"{ledger.key}: {value!r} was acked at {offset}, {there} is seen again")


def _offset(acked: Acked) -> int:
    return acked.base_offset


def _latest(partition: Partition) -> dict[bytes, tuple[int, bytes]]:
    """Key -> (offset, value), without deleted keys."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for segment in partition.log.segments:
        for record in read_records(bytes(segment.file.data)):  # type: ignore[attr-defined]
            assert record.key is not None
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.offset, record.value
    return found


class Compacting(Kept):
    """A world with compaction. Batches change, so other invariants apply."""

    left_out = Kept.left_out | {rules.AckedIsCommitted}
    added = (TheLastOfEachKeyStays,)

    def watch(self, broker: Broker, node: BrokerServer) -> None:
        """Run its log cleaner in this process."""
        super().watch(broker, node)

        async def work(job: CleanJob) -> CleanResult:
            await asyncio.sleep(self.random.random() * PASS_S)
            result = clean(broker.disk, job, lambda size: None)
            await asyncio.sleep(self.random.random() * PASS_S)
            counts = self.admin_ledger.counts
            counts["dropped"] = counts.get("dropped", 0) + result.records_dropped
            return result

        node.cleaner.run_clean = work

    def _clients_of(self, topic: str, index: int) -> list[Client]:
        where, pause_s = f"{topic}.{index}", self.plan.produce_pause_s
        return [
            _IdempotentKeyed(self, f"idempotent.{where}", topic, index, pause_s),
            _Keyed(self, f"plain.{where}", topic, index, pause_s * 2),
            Consumer(self, f"consumer.{where}", topic, index),
        ]
