"""What transactional clients of the world share: coordinators, identities, transactions, retries.

They follow the protocol as Kafka's own producer does, in transaction version 1 (AddPartitionsToTxn,
EndTxn v4) or 2 (KIP-890: the leader adds partitions, EndTxn v5 raises the epoch). Each error that a
healthy cluster has no reason for is a broken invariant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder
from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.schema import Message
from sim.clients import LOST, PRODUCE_TIMEOUT_MS, RETRIED, Client
from sim.invariants import ViolationError
from sim.ledger import Acked, Key
from sim.transaction_ledger import Fate, Initialisation, Transaction

if TYPE_CHECKING:
    from sim.world import World

R = TypeVar("R", bound=Message)

GROUP, TRANSACTION = 0, 1
"""Types of keys of FindCoordinator."""
TIMEOUTS_MS = (2_000, 6_000, 15_000)
CLOCK_SLACK = 0.9
"""A coordinator's timer may be this much earlier than the client's."""
INSTANCES_MAX = 8
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
ABORTED_FOR = FENCED | {ErrorCode.INVALID_TXN_STATE}
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class GaveUpError(Exception):
    """The world is over: the client's request has no reply that counts any more."""


class AbortableError(Exception):
    """The transaction can only be aborted now."""


class FencedError(Exception):
    """This instance can do no more."""


class CoordinatorClient(Client):
    """Finds coordinators, and remembers them until one has moved."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._coordinators: dict[tuple[int, str], str] = {}

    async def find_coordinator(self, key: tuple[int, str]) -> str | None:
        """The host of a key's coordinator, (type, key); None: there is none now."""
        request = k10.FindCoordinatorRequest(key_type=key[0], coordinator_keys=(key[1],))
        try:
            reply = await self.ask(await self.any_broker(), request, k10.FindCoordinatorResponse, 4)
        except LOST:
            return None
        row = reply.coordinators[0]
        if row.error_code:
            return None
        self._coordinators[key] = row.host
        return row.host


class TransactionalClient(CoordinatorClient):
    """One instance of an application with a transactional id."""

    is_awaited = True

    def __init__(
        self, world: World, transactional_id: str, version: int, instance: int = 0
    ) -> None:
        super().__init__(world, f"{transactional_id}.{instance}")
        self.transactional_id = transactional_id
        self.version = version
        self.instance = instance
        self.timeout_ms = world.random.choice(TIMEOUTS_MS)
        self.ledger = world.transactions
        self.ledger.instances[transactional_id] = instance + 1
        self.identity = Identity(-1, -1)
        self.initialised: Initialisation | None = None
        self.transaction: Transaction | None = None
        self._number = 0
        self._sequences: dict[Key, int] = {}
        self.enlisted: set[Key] = set()
        self._is_unresolved = False
        """Whether a batch has no reply: its sequence may be in the log or not."""
        self._leaders: dict[Key, str] = {}

    # -- work

    async def work(self) -> None:
        random = self.world.random
        try:
            await self.initialise()
            while not self.world.is_healing:
                await self._one_transaction()
                await asyncio.sleep(random.random() * self.world.plan.produce_pause_s * 3)
                if random.random() < 0.04:
                    self.succeed()
        except GaveUpError:
            return
        except FencedError:
            self.ledger.count("fenced")
            if not self.world.is_healing:
                self.succeed()

    def successor(self, instance: int) -> TransactionalClient:
        """The next instance of this application."""
        raise NotImplementedError

    def succeed(self) -> None:
        """Start another instance. This one is a zombie once the other is initialised."""
        instance = self.ledger.instances[self.transactional_id]
        if instance < INSTANCES_MAX:
            client = self.successor(instance)
            self.world.clients.append(client)
            client.run()

    async def _one_transaction(self) -> None:
        self._number += 1
        name = f"{self.name}.{self._number}"
        transaction = self.ledger.begin(name, self.transactional_id, self.world.scheduler.now)
        self.transaction = transaction
        self.enlisted.clear()
        try:
            commit = await self.body(transaction)
        except AbortableError:
            self.ledger.count("abortable")
            commit = False
        await self.end(transaction, commit=commit)
        if transaction.fate is not Fate.COMMITTED:
            self.not_committed()

    def not_committed(self) -> None:
        """The last transaction was not committed, whatever `body` wanted."""

    async def body(self, transaction: Transaction) -> bool:
        """The work of one transaction; True to commit it. Raises AbortableError."""
        raise NotImplementedError

    # -- requests

    async def to_coordinator(
        self,
        key: tuple[int, str],
        request: Message,
        reply: type[R],
        version: int,
        code_of: Callable[[R], int],
    ) -> tuple[R, int]:
        """Send a request until its code is final; also returns how many were sent in vain.

        Raises GaveUpError.
        """
        in_vain = 0
        while True:
            if self.world.has_given_up:
                raise GaveUpError
            host = self._coordinators.get(key) or await self.find_coordinator(key)
            if host is not None:
                try:
                    found = await self.ask(host, request, reply, version)
                except LOST:
                    self._coordinators.pop(key, None)
                    in_vain += 1
                else:
                    code = ErrorCode(code_of(found))
                    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                        raise ViolationError("NothingUnforeseen", f"{self.name}: {request} {code}")
                    if not (code.retriable or code in RETRIED):
                        return found, in_vain
                    in_vain += 1
                    if code in MOVED:
                        self._coordinators.pop(key, None)
            await self.pause()

    @property
    def own_coordinator(self) -> tuple[int, str]:
        return TRANSACTION, self.transactional_id

    # -- identity

    async def initialise(self) -> None:
        """InitProducerId without an identity: it fences all earlier instances."""
        request = k22.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        rows = self.ledger.initialisations.setdefault(self.transactional_id, [])
        while True:
            if self.world.has_given_up:
                raise GaveUpError
            host = self._coordinators.get(self.own_coordinator) or await self.find_coordinator(
                self.own_coordinator
            )
            attempt = Initialisation(self.instance, self.world.scheduler.now)
            if host is not None:
                rows.append(attempt)
                try:
                    reply = await self.ask(host, request, k22.InitProducerIdResponse, 4)
                except LOST:
                    self._coordinators.clear()
                else:
                    code = ErrorCode(reply.error_code)
                    if code is ErrorCode.NONE:
                        attempt.answered_s = self.world.scheduler.now
                        self._begin_epoch(Identity(reply.producer_id, reply.producer_epoch))
                        self.initialised = attempt
                        return
                    if not (code.retriable or code in RETRIED):
                        raise KafkaError(code, f"{self.name}: InitProducerId")
                    if code in MOVED:
                        self._coordinators.clear()
            await self.pause()

    async def raise_epoch(self) -> None:
        """InitProducerId with the current identity (KIP-360), after a batch without a reply."""
        request = k22.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
        )
        reply, _ = await self.to_coordinator(
            self.own_coordinator, request, k22.InitProducerIdResponse, 4, lambda r: r.error_code
        )
        code = ErrorCode(reply.error_code)
        if code in FENCED:
            self.check_fenced(code, "InitProducerId")
            raise FencedError
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self.name}: InitProducerId")
        self.ledger.count("raised")
        self._begin_epoch(Identity(reply.producer_id, reply.producer_epoch))

    def _begin_epoch(self, identity: Identity) -> None:
        self.identity = identity
        self._sequences.clear()
        self._is_unresolved = False

    def check_fenced(self, code: ErrorCode, request: str) -> None:
        """Raises ViolationError if nothing can have fenced this instance."""
        began = self.transaction.began_s if self.transaction is not None else 0.0
        open_ms = (self.world.scheduler.now - began) * 1000
        is_late = open_ms >= self.timeout_ms * CLOCK_SLACK or "clock" in self.world.plan.faults
        assert self.initialised is not None
        if not is_late and not self.ledger.was_fenced(self.transactional_id, self.initialised):
            raise ViolationError(
                "NobodyIsFencedWithoutReason",
                f"{self.name} {self.identity}: {request} got {code.name} after {open_ms:.0f} ms",
            )

    # -- transactions

    async def enlist(self, *keys: Key) -> None:
        """AddPartitionsToTxn v3, of transaction version 1. Raises AbortableError."""
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=tuple(
                k24.AddPartitionsToTxnTopic(name=topic, partitions=(index,))
                for topic, index in keys
            ),
        )

        def code_of(reply: k24.AddPartitionsToTxnResponse) -> int:
            codes = [
                row.partition_error_code
                for topic in reply.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            return next((code for code in codes if code), 0)

        reply, _ = await self.to_coordinator(
            self.own_coordinator, request, k24.AddPartitionsToTxnResponse, 3, code_of
        )
        self.checked(ErrorCode(code_of(reply)), "AddPartitionsToTxn")
        self.enlisted.update(keys)

    def checked(self, code: ErrorCode, request: str) -> None:
        """Raises AbortableError for an error that has a reason, ViolationError for another."""
        if code is ErrorCode.NONE:
            return
        if code is not ErrorCode.TRANSACTION_ABORTABLE:
            if code not in ABORTED_FOR:
                raise KafkaError(code, f"{self.name}: {request}")
            self.check_fenced(code, request)
            if code in FENCED and not self.enlisted and self.transaction is not None:
                self.transaction.fate = Fate.ABORTED
                raise FencedError
        raise AbortableError

    async def write(self, transaction: Transaction, key: Key, *batches: tuple[bytes, ...]) -> None:
        """Produce batches, all in flight at once, until each has its offset.

        Raises AbortableError.
        """
        if self.version == 1 and key not in self.enlisted:
            await self.enlist(key)
        self.enlisted.add(key)
        waiting: list[tuple[tuple[bytes, ...], k00.ProduceRequest]] = []
        for values in batches:
            sequence = self._sequences.get(key, 0)
            self._sequences[key] = sequence + len(values)
            waiting.append((values, self.produce_request(key, values, sequence)))
            transaction.records += [(key, value) for value in values]
        self._is_unresolved = True
        while waiting:
            if self.world.has_given_up:
                raise GaveUpError
            host = self._leaders.get(key) or await self.leader(*key)
            if host is None:
                await self.pause()
                continue
            self._leaders[key] = host
            rows = await self._produce_all(host, [request for _, request in waiting])
            waiting = self._unanswered(key, waiting, rows)
            if waiting:
                await self.pause()
        self._is_unresolved = False

    async def _produce_all(
        self, host: str, requests: list[k00.ProduceRequest]
    ) -> list[k00.PartitionProduceResponse | None]:
        """Send them one behind the other on one connection, which keeps their order."""
        try:
            await self.connect(host)
        except LOST:
            return [None] * len(requests)
        return await asyncio.gather(*(self.try_produce(host, request) for request in requests))

    def _unanswered(
        self,
        key: Key,
        waiting: list[tuple[tuple[bytes, ...], k00.ProduceRequest]],
        rows: list[k00.PartitionProduceResponse | None],
    ) -> list[tuple[tuple[bytes, ...], k00.ProduceRequest]]:
        """The batches to be sent again."""
        left: list[tuple[tuple[bytes, ...], k00.ProduceRequest]] = []
        for (values, request), row in zip(waiting, rows, strict=True):
            code = None if row is None else ErrorCode(row.error_code)
            if row is not None and code is ErrorCode.NONE:
                self.world.acked(*key, Acked(row.base_offset, values, self.name))
                continue
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not left:
                text = f"{self.name} {self.identity}: {values[0]!r}: {code.name}"
                raise ViolationError("NoAckedRecordIsLost", text)
            if code is not None and not (code.retriable or code in RETRIED or left):
                self.checked(code, f"Produce to {key}")
            left.append((values, request))
            if code is not ErrorCode.NOT_ENOUGH_REPLICAS:
                self._leaders.pop(key, None)
        return left

    def produce_request(
        self, key: Key, values: tuple[bytes, ...], sequence: int
    ) -> k00.ProduceRequest:
        builder = BatchBuilder()
        for value in values:
            builder.append(self.world.now_ms, None, value)
        batch = builder.build(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = k00.PartitionProduceData(index=key[1], records=bytes(batch))
        return k00.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=(k00.TopicProduceData(name=key[0], partition_data=(data,)),),
        )

    async def try_produce(
        self, host: str, request: k00.ProduceRequest
    ) -> k00.PartitionProduceResponse | None:
        try:
            reply = await self.ask(host, request, k00.ProduceResponse, 10 + self.version)
        except LOST:
            return None
        return reply.responses[0].partition_responses[0]

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """EndTxn, until it is answered. Raises FencedError."""
        if not self.enlisted:
            transaction.fate = Fate.ABORTED
            return
        request = k26.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        transaction.fate = Fate.UNKNOWN if commit else Fate.OPEN
        sent_s = self.world.scheduler.now
        reply, in_vain = await self.to_coordinator(
            self.own_coordinator,
            request,
            k26.EndTxnResponse,
            3 + self.version,
            lambda r: r.error_code,
        )
        code = ErrorCode(reply.error_code)
        if code in FENCED:
            if not commit or not in_vain:
                transaction.fate = Fate.ABORTED
            self.check_fenced(code, "EndTxn")
            raise FencedError
        if code is ErrorCode.TRANSACTION_ABORTABLE and commit:
            # Its timeout has aborted it. In version 2 the abort is answered as a retry, with the
            # next epoch; in version 1 the producer is fenced.
            transaction.fate = Fate.ABORTED
            self.check_fenced(code, "EndTxn")
            self.ledger.count("timed out")
            await self.end(transaction, commit=False)
            return
        if code is not ErrorCode.NONE:
            raise ViolationError(
                "NothingUnforeseen",
                f"{self.name} {self.identity}: EndTxn(commit={commit}) got {code.name}",
            )
        transaction.fate = Fate.COMMITTED if commit else Fate.ABORTED
        self.ledger.count("committed" if commit else "aborted")
        self.world.note(f"{transaction.name} {transaction.fate.name.lower()}")
        assert self.initialised is not None
        if commit and self.ledger.must_be_fenced(self.transactional_id, self.initialised, sent_s):
            raise ViolationError("ZombiesAreFenced", f"{self.name} committed {transaction.name}")
        if self.version == 2:
            self._begin_epoch(Identity(reply.producer_id, reply.producer_epoch))
        elif self._is_unresolved:
            await self.raise_epoch()
