"""Worlds that play one script: a client that holds frames, loses replies and kills brokers.

No faults but the script's own. When it has ended, the world is healed and judged as any other, so
the invariants of transactions are checked after every script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import ErrorCode
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.schema import Message
from headwater_broker.metadata import znodes
from sim.clients import Client
from sim.epoch_rules import EPOCHAL
from sim.invariants import Invariant, ViolationError
from sim.ledger import Acked, Key
from sim.network import RESET_S, Transport
from sim.plan import TRANSACTED, Plan, transact
from sim.transaction_clients import Identity, TransactionalClient
from sim.transaction_ledger import Transaction
from sim.transactional import CommittedConsumer
from sim.world import World

if TYPE_CHECKING:
    from sim.broker import Broker

R = TypeVar("R", bound=Message)
Play = Callable[["Script"], Awaitable[None]]

SCRIPT_S = 120.0
KEY: Key = (TRANSACTED, 0)
OTHER: Key = (TRANSACTED, 1)
API_KEY_AT = slice(4, 6)
TICK_S = 0.01


class Held:
    """Requests of one API key that were taken off their streams."""

    def __init__(self, api_key: int, limit: int) -> None:
        self.frames: list[tuple[Transport, bytes]] = []
        self._api_key = api_key
        self._limit = limit

    def takes(self, transport: Transport, data: bytes) -> bool:
        """Take a frame, if it is one of these."""
        if int.from_bytes(data[API_KEY_AT], "big") != self._api_key or not self._limit:
            return False
        self._limit -= 1
        self.frames.append((transport, data))
        assert transport.peer is not None
        transport.peer.is_pinned = True
        return True

    async def caught(self) -> None:
        """Wait for the first one."""
        while not self.frames:
            await asyncio.sleep(TICK_S)

    async def release(self) -> None:
        """Let them arrive on their connections, although their senders may have given them up."""
        for peer, data in self._freed():
            peer.take(data)
        await asyncio.sleep(TICK_S)

    async def lose_reply(self) -> None:
        """Let them arrive, and reset their connections before the replies come back."""
        for peer, data in self._freed():
            peer.is_orphan = True  # what it writes is lost
            peer.take(data)
            assert peer.peer is not None
            peer.peer.reset_later(1.0)

    def _freed(self) -> Iterator[tuple[Transport, bytes]]:
        self._limit = 0
        frames, self.frames = self.frames, []
        for transport, data in frames:
            peer = transport.peer
            assert peer is not None
            if not peer.loop.is_dead:
                yield peer, data
            peer.is_pinned = False
            if transport.is_closed:
                peer.reset_later(RESET_S)


class Script(TransactionalClient):
    """The client that plays a script."""

    def __init__(self, world: Scripted, version: int, play: Play) -> None:
        super().__init__(world, "scripted", version)
        self.timeout_ms = 8_000
        self._play = play
        self._holds: list[Held] = []
        self._count = 0
        world.network.tap = self._tap

    def successor(self, instance: int) -> TransactionalClient:
        raise NotImplementedError

    async def work(self) -> None:
        await self.initialise()
        await self._play(self)
        for held in self._holds:
            await held.release()

    def _tap(self, transport: Transport, data: bytes) -> bool:
        return any(held.takes(transport, data) for held in self._holds)

    # -- frames

    def hold(self, request: type[Message], limit: int = 1) -> Held:
        """Hold the next requests of this kind, whoever sends them."""
        held = Held(request.api_key, limit)
        self._holds.append(held)
        return held

    async def late(
        self, request: Message, reply: type[R], version: int, held: Held, leads: Key | None = None
    ) -> Callable[[], Awaitable[R]]:
        """Send a request to the coordinator, or to the leader of a partition, on a connection of
        its own, and hold it. Returns what waits for its reply, once it is released."""
        host = await (self.coordinator_host() if leads is None else self.leader_host(leads))
        client = Client(self.world, f"{self.name}.{self._count}")
        self._count += 1
        self.world.clients.append(client)
        client.is_done = True

        answer = client.loop.create_task(client.ask(host, request, reply, version))
        await held.caught()
        self.disconnect()  # as a client does that has no reply: it goes on with another connection

        async def reply_of() -> R:
            await self.until(answer.done, f"an answer to {type(request).__name__}")
            return answer.result()

        return reply_of

    def disconnect(self) -> None:
        """Close all connections; the next requests open others."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- requests as they are

    def end_request(self, *, commit: bool, identity: Identity | None = None) -> k26.EndTxnRequest:
        """EndTxn of the current identity, or of another."""
        producer = identity or self.identity
        return k26.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

    async def end_code(self, *, commit: bool, identity: Identity | None = None) -> ErrorCode:
        """The final code of an EndTxn, which changes nothing here."""
        reply, _ = await self.to_coordinator(
            self.own_coordinator,
            self.end_request(commit=commit, identity=identity),
            k26.EndTxnResponse,
            3 + self.version,
            lambda r: r.error_code,
        )
        return ErrorCode(reply.error_code)

    async def init_again(self) -> Identity:
        """InitProducerId of a second instance, which fences this one; its identity."""
        request = k22.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        reply, _ = await self.to_coordinator(
            self.own_coordinator, request, k22.InitProducerIdResponse, 4, lambda r: r.error_code
        )
        self.expect(ErrorCode(reply.error_code), ErrorCode.NONE)
        return Identity(reply.producer_id, reply.producer_epoch)

    def add_request(self, *keys: Key) -> k24.AddPartitionsToTxnRequest:
        """AddPartitionsToTxn v3 of the current identity."""
        return k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=tuple(
                k24.AddPartitionsToTxnTopic(name=topic, partitions=(index,))
                for topic, index in keys
            ),
        )

    async def produce_code(self, key: Key, value: bytes, sequence: int) -> ErrorCode:
        """The final code of one batch with the current identity, outside of the ledger's books."""
        request = self.produce_request(key, (value,), sequence)
        while True:
            host = await self.leader(*key)
            row = None if host is None else await self.try_produce(host, request)
            code = None if row is None else ErrorCode(row.error_code)
            if code is not None and not code.retriable:
                is_kept = key[0] in self.world.topics
                if row is not None and code is ErrorCode.NONE and is_kept:
                    self.world.acked(*key, Acked(row.base_offset, (value,), self.name))
                return code
            await self.pause()

    def adopt(self, identity: Identity) -> None:
        """Go on as the instance with this identity."""
        self._begin_epoch(identity)

    # -- transactions

    def begin(self) -> Transaction:
        """A transaction of this client."""
        self._number += 1
        name = f"{self.name}.{self._number}"
        made = self.ledger.begin(name, self.transactional_id, self.world.scheduler.now)
        self.transaction = made
        self.enlisted.clear()
        return made

    def value(self, transaction: Transaction) -> bytes:
        """A new value of a transaction."""
        self._count += 1
        return b"%b#%d" % (transaction.name.encode(), self._count)

    async def whole(self, *keys: Key, commit: bool = True) -> Transaction:
        """A whole transaction with a record in each of these partitions."""
        made = self.begin()
        for key in keys or (KEY,):
            await self.write(made, key, (self.value(made),))
        await self.end(made, commit=commit)
        return made

    def expect(self, found: object, *wanted: object) -> None:
        """Raises ViolationError unless `found` is one of these."""
        if found not in wanted:
            raise ViolationError("TheScriptHolds", f"found {found!r}, expected {wanted!r}")

    # -- the cluster

    def broker(self, host: str) -> Broker:
        """The broker of a host."""
        return next(b for b in self.world.brokers if b.host == host)

    async def coordinator_host(self) -> str:
        """The host of this id's coordinator."""
        while (host := await self.find_coordinator(self.own_coordinator)) is None:
            await self.pause()
        return host

    async def leader_host(self, key: Key = KEY) -> str:
        """The host of a partition's leader."""
        while (host := await self.leader(*key)) is None:
            await self.pause()
        return host

    def leader_of(self, key: Key) -> Broker:
        """A partition's leader, by ZooKeeper."""
        state = self.world.partition_state(znodes.state_path(*key))
        assert state is not None
        return self.world.brokers[state[0].leader - 1]

    def is_completed_without_record(self, broker: Broker) -> bool:
        """True when this id's transaction is complete in the coordinator, not in its log."""
        services = None if broker.node is None else broker.node.services
        shards = () if services is None else services.transactions.coordinator.runtime.shards
        return any(
            known.state.is_preparing and shard.described(self.transactional_id).state.is_complete
            for shard in shards
            if (known := shard.transactions.get(self.transactional_id)) is not None
        )

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        """Wait until it holds. Raises ViolationError."""
        end = self.world.scheduler.now + seconds
        while not holds():
            if self.world.scheduler.now > end:
                raise ViolationError("TheScriptHolds", f"never: {what}")
            await asyncio.sleep(TICK_S)


class Scripted(World):
    """A world of one script and of consumers."""

    version = 2
    play: Play

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        super().__init__(seed, plan or script_plan())

    def invariants(self) -> tuple[type[Invariant], ...]:
        """Those of epochs, too."""
        return (*super().invariants(), *EPOCHAL)

    def _start_clients(self) -> None:
        self.script = Script(self, self.version, type(self).play)
        self.clients.append(self.script)
        for index in range(self.plan.topics[TRANSACTED]):
            self.clients.append(CommittedConsumer(self, (TRANSACTED, index)))
        for client in self.clients:
            client.run()

    def work(self) -> None:
        """Play the script."""
        self.until(SCRIPT_S, lambda: self.script.is_done)
        if not self.script.is_done and self.violation is None:
            self.broken(ViolationError("TheScriptHolds", f"no end within {SCRIPT_S:.0f} s"))


def script_plan(**properties: str) -> Plan:
    """A plan without faults; `properties` are the brokers'."""
    plan = Plan(
        topics={},
        topic_configs={"min.insync.replicas": "2", "retention.ms": "-1"},
        supervised=1.0,
    )
    transact(plan)
    plan.properties.update(properties)
    return plan


def scripted(play: Play, version: int) -> type[Scripted]:
    """The world of a script."""
    return type(play.__name__, (Scripted,), {"play": staticmethod(play), "version": version})
