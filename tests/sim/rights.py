"""Worlds with an authorizer, whose ACLs change while brokers die and lose their sessions.

One client adds and removes a DENY on the topic `guarded`, another writes to it. What ZooKeeper
says must be what every broker decides within `SETTLED_S`, and what its clients meet.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, Principal, ResourceType
from headwater.records.builder import BatchBuilder
from headwater.security.acl import AclBinding, PatternType, PermissionType
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater_broker.metadata import acl_znodes
from headwater_broker.security.standard_authorizer import ResourcePattern
from sim.broker import Broker
from sim.clients import LOST, PRODUCE_TIMEOUT_MS, RETRIED, Client
from sim.invariants import Invariant, ViolationError
from sim.plan import Plan
from sim.world import World

TOPIC = "guarded"
PATTERNS = (
    ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
    ResourcePattern(ResourceType.TOPIC, "guard", PatternType.PREFIXED),
)
PATHS = {acl_znodes.acl_path(pattern): pattern for pattern in PATTERNS}
EVERYBODY = "User:*"
SETTLED_S = 2.0
"""A session that is lost is back in a few tenths of a second, and what changed is read then."""
LOOK_S = 0.05
CHANGE_S = 6.0
"""The longest pause between two changes: decisions settle in between, mostly."""
WRITE_S = 0.1
STRIKES = 0.2
"""How often the controller dies while it handles a change."""
RIGHTS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:nobody",
    "allow.everyone.if.no.acl.found": "true",
}
FAULTS = {"kill": 0.7, "expire": 1.5, "cut_store": 0.7, "power": 0.3, "isolate": 0.3, "stop": 0.3}


def guarded_plan(chaos_s: float = 25.0) -> Plan:
    """A plan with ACLs, whose faults hit sessions."""
    return Plan(
        chaos_s=chaos_s,
        fault_pause_s=1.5,
        down_s=(0.1, 3.0),
        faults=FAULTS,
        topics={"log": 1, TOPIC: 1},
        topic_configs={"min.insync.replicas": "2", "retention.ms": "-1"},
        properties=dict(RIGHTS),
    )


@dataclass(slots=True)
class Asker:
    """The producer, as the authorizer sees it."""

    principal: Principal = Principal("User", "ANONYMOUS")
    host: str = "producer"
    asks_quietly: bool = True


ASKER = Asker()


@dataclass(slots=True)
class Truth:
    """What the ACLs in ZooKeeper say about writing to the topic."""

    is_denied: bool = False
    since_s: float = 0.0


@dataclass(slots=True)
class Offered:
    """One record of the producer."""

    may_be_written: bool = False
    """Whether an attempt met brokers that could not yet know of a DENY, or has no known end."""


@dataclass(slots=True)
class Copies:
    """What the brokers' copies of the ACLs were at the last look."""

    differ_since_s: dict[int, float] = field(default_factory=dict)
    cut_s: dict[int, float] = field(default_factory=dict)
    """When a running broker was last without ZooKeeper."""


class BrokersFollowTheAcls(Invariant):
    """A broker that reaches ZooKeeper decides as its ACLs say, at most `SETTLED_S` later."""

    def store(self, paths: set[str]) -> None:
        world = self.world
        if isinstance(world, Guarded) and paths & PATHS.keys():
            is_denied = any(
                acl.permission is PermissionType.DENY
                for path, pattern in PATHS.items()
                if (node := world.ensemble.tree.find(path)) is not None
                for acl in acl_znodes.decode_acls(pattern, node.data)
            )
            if is_denied is not world.truth.is_denied:
                world.truth = Truth(is_denied, world.scheduler.now)
                world.note(f"the ACLs {'deny' if is_denied else 'allow'} to write")

    def look(self, broker: Broker, now_s: float) -> None:
        """Compare one broker's decision."""
        world = self.world
        assert isinstance(world, Guarded)
        copies = world.copies
        if broker.is_up and not _reaches_store(broker):
            copies.cut_s[broker.id] = now_s
        node = broker.node
        if node is None or node.acls is None or not node.is_ready or not _reaches_store(broker):
            copies.differ_since_s.pop(broker.id, None)
            return
        is_allowed = node.acls.authorizer.authorize(
            ASKER, Operation.WRITE, ResourceType.TOPIC, TOPIC
        )
        if is_allowed is not world.truth.is_denied:
            copies.differ_since_s.pop(broker.id, None)
            return
        since_s = copies.differ_since_s.setdefault(broker.id, now_s)
        if now_s - since_s > SETTLED_S:
            said = "allows" if is_allowed else "denies"
            self.fail(f"{broker} {said} to write since {since_s:.2f}, against ZooKeeper")


def _reaches_store(broker: Broker) -> bool:
    store = broker.store
    return store is not None and store.can_talk() and store.is_connected


class DeniedIsNotWritten(Invariant):
    """No record is in the log whose every attempt met settled brokers and a DENY."""

    def ended(self) -> None:
        world = self.world
        assert isinstance(world, Guarded)
        for _, partition in world.replicas_of((TOPIC, 0)):
            for value in world.values_of(partition).values():
                if not world.offered[value].may_be_written:
                    self.fail(f"{partition!r} has {value!r}")


class Guarded(World):
    """A world with ACLs."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.truth = Truth()
        self.copies = Copies()
        self.offered: dict[bytes, Offered] = {}
        super().__init__(seed, plan or guarded_plan())

    def invariants(self) -> tuple[type[Invariant], ...]:
        return (*super().invariants(), BrokersFollowTheAcls, DeniedIsNotWritten)

    @property
    def follows(self) -> BrokersFollowTheAcls:
        """The rule that is checked by the clock."""
        return next(rule for rule in self.rules if isinstance(rule, BrokersFollowTheAcls))

    def is_settled(self, *, denied: bool) -> bool:
        """Whether every broker must know by now that writing is denied, or allowed."""
        before_s = self.scheduler.now - SETTLED_S
        return (
            self.truth.is_denied is denied
            and self.truth.since_s < before_s
            and all(cut_s < before_s for cut_s in self.copies.cut_s.values())
        )

    def _start_clients(self) -> None:
        super()._start_clients()
        guards = [Watcher(self, "watcher"), Changer(self, "changer"), Writer(self, "writer")]
        self.clients += guards
        for client in guards:
            client.run()

    def _clients_of(self, topic: str, index: int) -> list[Client]:
        return [] if topic == TOPIC else super()._clients_of(topic, index)


class Watcher(Client):
    """Looks at the brokers' decisions again and again."""

    async def work(self) -> None:
        world = self.world
        assert isinstance(world, Guarded)
        while not world.is_over:
            for broker in world.brokers:
                world.follows.look(broker, world.scheduler.now)
            await asyncio.sleep(LOOK_S)


class Changer(Client):
    """Allows everything to everybody, then adds and removes a DENY."""

    is_awaited = True

    async def work(self) -> None:
        world = self.world
        assert isinstance(world, Guarded)
        await self._create(PATTERNS[0], EVERYBODY, Operation.ALL, PermissionType.ALLOW)
        while not world.is_healing:
            await asyncio.sleep(world.random.random() * CHANGE_S)
            if not world.is_healing and world.random.random() < STRIKES:
                world.injector.strike_controller()
            if world.truth.is_denied:
                await self._remove()
            else:
                pattern = world.random.choice(PATTERNS)
                await self._create(pattern, "User:ANONYMOUS", Operation.WRITE, PermissionType.DENY)

    async def _create(
        self, pattern: ResourcePattern, who: str, operation: Operation, permission: PermissionType
    ) -> None:
        acl = AclBinding(
            pattern.resource_type, pattern.name, pattern.pattern_type, who, "*", operation,
            permission,
        )  # fmt: skip
        row = k30.AclCreation(
            resource_type=acl.resource_type, resource_name=acl.name,
            resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
            operation=acl.operation, permission_type=acl.permission,
        )  # fmt: skip
        request = k30.CreateAclsRequest(creations=(row,))

        async def once() -> int:
            reply = await self.ask(await self.any_broker(), request, k30.CreateAclsResponse, 3)
            return reply.results[0].error_code

        await self._until_done(f"added {permission.name}", once)

    async def _remove(self) -> None:
        deny = k31.DeleteAclsFilter(
            resource_type_filter=ResourceType.TOPIC, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=None, host_filter=None,
            operation=Operation.ANY, permission_type=PermissionType.DENY,
        )  # fmt: skip
        request = k31.DeleteAclsRequest(filters=(deny,))

        async def once() -> int:
            reply = await self.ask(await self.any_broker(), request, k31.DeleteAclsResponse, 3)
            return reply.filter_results[0].error_code

        await self._until_done("removed DENY", once)

    async def _until_done(self, what: str, once: object) -> None:
        world, counts = self.world, self.world.admin_ledger.counts
        while not world.has_given_up:
            try:
                code = ErrorCode(await once())  # type: ignore[operator]
            except LOST:
                await self.pause()
                continue
            if code is ErrorCode.NONE:
                counts[what] = counts.get(what, 0) + 1
                return
            if not code.retriable and code not in RETRIED:
                raise KafkaError(code, what)
            await self.pause()


class Writer(Client):
    """Offers one record after the other to the guarded topic."""

    is_awaited = True

    async def work(self) -> None:
        number = 0
        while not self.world.is_healing:
            await self._offer(b"%d" % number)
            number += 1
            await asyncio.sleep(self.world.random.random() * WRITE_S)

    async def _offer(self, value: bytes) -> None:
        """Try until the record is written or refused, or a reply is lost."""
        world = self.world
        assert isinstance(world, Guarded)
        offered = world.offered[value] = Offered()
        builder = BatchBuilder()
        builder.append(world.now_ms, None, value)
        rows = (PartitionProduceData(index=0, records=bytes(builder.build())),)
        data = (TopicProduceData(name=TOPIC, partition_data=rows),)
        request = ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=data)
        host: str | None = None
        while not world.has_given_up:
            host = host or await self.leader(TOPIC, 0)
            if host is None:
                await self.pause()
                continue
            denied, allowed = world.is_settled(denied=True), world.is_settled(denied=False)
            try:
                reply = await self.ask(host, request, ProduceResponse, 9)
            except LOST:
                offered.may_be_written = True  # it may arrive at any time
                return
            code = ErrorCode(reply.responses[0].partition_responses[0].error_code)
            denied = denied and world.is_settled(denied=True)
            allowed = allowed and world.is_settled(denied=False)
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                offered.may_be_written |= not denied
            if self._is_answered(code, value, denied=denied, allowed=allowed):
                return
            host = None
            await self.pause()

    def _is_answered(self, code: ErrorCode, value: bytes, *, denied: bool, allowed: bool) -> bool:
        """Whether the record's fate is known."""
        counts = self.world.admin_ledger.counts
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            counts["refused"] = counts.get("refused", 0) + 1
            if allowed:
                raise ViolationError("AllowedIsServed", f"{value!r} was refused")
            return True
        if code is ErrorCode.NONE:
            counts["written"] = counts.get("written", 0) + 1
            if denied:
                raise ViolationError("DeniedIsNotWritten", f"{value!r} was written")
            return True
        if not code.retriable:
            raise KafkaError(code, f"{self.name}: {value!r}")
        return False
