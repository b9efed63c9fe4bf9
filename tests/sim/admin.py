"""An admin client that works while brokers fail: reassignments, elections, new, grown, changed and
deleted topics.

A successful reply must be true at once (the rule `AdminIsToldTheTruth`), and hold on every broker
once the cluster is healed (`unfinished`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k37_create_partitions as k37
from headwater.wire.apis import k43_elect_leaders as k43
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k45_alter_partition_reassignments as k45
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater.wire.schema import Message
from headwater_broker.metadata import znodes
from sim.clients import LOST, RETRIED, Client
from sim.plan import CONFIG, MOVED

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World

R = TypeVar("R", bound=Message)

PARTITIONS_MAX = 4
SAFE = (CreatableTopicConfig(name="min.insync.replicas", value="2"),)
"""With a lower minimum an ISR may shrink to the one replica whose disk is lost next."""
MADE_MAX = 3
"""Topics that may exist at a time, to be deleted."""
TIMEOUT_MS = 2000
PAUSE_S = 1.0
STRIKES = 0.15
"""How often the controller dies while it handles a request."""
AWAITED = RETRIED | {ErrorCode.INVALID_REPLICATION_FACTOR}
"""Codes that the admin retries in addition: too few brokers may be live now."""
TOPIC_KIND = 2
SET = 0
CONFIG_MIN = 1_000_000


class Admin(Client):
    """Sends one request after the other, and repeats each until its outcome is known."""

    is_awaited = True

    def __init__(self, world: World) -> None:
        super().__init__(world, "admin")
        self._made: list[str] = []
        self._number = 0

    async def work(self) -> None:
        random = self.world.random
        kinds = (self._move, self._cancel, self._grow, self._make, self._delete, self._elect,
                 self._configure)  # fmt: skip
        while not self.world.is_healing:
            work = random.choices(kinds, (4, 1, 1, 2, 2, 1, 1))[0]
            await work()
            await asyncio.sleep(random.random() * PAUSE_S)

    # -- requests

    async def _move(self) -> None:
        random = self.world.random
        await self._reassign("moved", tuple(random.sample((1, 2, 3), random.choice((2, 2, 3)))))

    async def _cancel(self) -> None:
        await self._reassign("cancelled", None)

    async def _reassign(self, kind: str, target: tuple[int, ...] | None) -> None:
        index = self.world.random.randrange(self.world.topics[MOVED])
        row = k45.ReassignablePartition(partition_index=index, replicas=target)
        request = k45.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=(k45.ReassignableTopic(name=MOVED, partitions=(row,)),),
        )
        refused = {
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        }
        response = k45.AlterPartitionReassignmentsResponse

        def code(reply: k45.AlterPartitionReassignmentsResponse) -> int:
            return reply.error_code or reply.responses[0].partitions[0].error_code

        await self._until_known(f"{kind} {index} {target}", request, response, 0, code, refused)

    async def _grow(self) -> None:
        count = self.world.topics[MOVED] + 1
        if count > PARTITIONS_MAX:
            return
        row = k37.CreatePartitionsTopic(name=MOVED, count=count, assignments=None)
        request = k37.CreatePartitionsRequest(topics=(row,), timeout_ms=TIMEOUT_MS)
        known = await self._until_known(
            f"grown to {count}", request, k37.CreatePartitionsResponse, 3,
            lambda reply: reply.results[0].error_code, {ErrorCode.INVALID_PARTITIONS},
        )  # fmt: skip
        if known is None:
            return
        self.world.admin_ledger.partitions = count
        self.world.administered()
        self.world.topics[MOVED] = count
        if not self.world.is_healing:
            self.world.start_clients(MOVED, count - 1)

    async def _make(self) -> None:
        if len(self._made) >= MADE_MAX:
            return
        random = self.world.random
        self._number += 1
        name = f"made.{self._number}"
        row = CreatableTopic(
            name=name,
            num_partitions=random.randint(1, 2),
            replication_factor=random.randint(2, 3),
            configs=SAFE,
        )
        request = CreateTopicsRequest(topics=(row,), timeout_ms=TIMEOUT_MS)
        known = await self._until_known(
            f"made {name}", request, CreateTopicsResponse, 7,
            lambda reply: reply.topics[0].error_code, {ErrorCode.TOPIC_ALREADY_EXISTS},
        )  # fmt: skip
        if known is not None:
            self._made.append(name)

    async def _delete(self) -> None:
        if not self._made:
            return
        name = self._made.pop(self.world.random.randrange(len(self._made)))
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=TIMEOUT_MS)
        known = await self._until_known(
            f"deleted {name}", request, DeleteTopicsResponse, 6,
            lambda reply: reply.responses[0].error_code, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )  # fmt: skip
        row = None if known is None else known.responses[0]
        if row is not None and not row.error_code:
            self.world.admin_ledger.gone.add(row.topic_id)
            self.world.administered()

    async def _elect(self) -> None:
        request = k43.ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS
        )
        response = k43.ElectLeadersResponse
        await self._until_known(
            "elected", request, response, 2, lambda reply: reply.error_code, set()
        )

    async def _configure(self) -> None:
        value = str(CONFIG_MIN + self.world.random.randrange(1000))
        config = k44.AlterableConfig(name=CONFIG, config_operation=SET, value=value)
        request = k44.IncrementalAlterConfigsRequest(
            resources=(
                k44.AlterConfigsResource(
                    resource_type=TOPIC_KIND, resource_name=MOVED, configs=(config,)
                ),
            )
        )
        self.world.admin_ledger.configs.add(value)
        known = await self._until_known(
            f"configured {value}", request, k44.IncrementalAlterConfigsResponse, 1,
            lambda reply: reply.responses[0].error_code, set(),
        )  # fmt: skip
        if known is not None:
            self.world.admin_ledger.is_configured = True
            self.world.administered()

    # -- retries

    async def _until_known(
        self,
        what: str,
        request: Message,
        response: type[R],
        version: int,
        code_of: Callable[[R], int],
        refused: set[ErrorCode],
    ) -> R | None:
        """The reply with the outcome; None if there is none before the end.

        `refused`: error codes that count as an outcome: an earlier try may have succeeded.
        """
        world = self.world
        while not world.has_given_up:
            if not world.is_healing and world.random.random() < STRIKES:
                world.injector.strike_controller()
            try:
                reply = await self.ask(await self.any_broker(), request, response, version)
            except LOST:
                await self.pause()
                continue
            code = ErrorCode(code_of(reply))
            if code is ErrorCode.NONE or code in refused:
                world.note(f"admin: {what}: {code.name}")
                kind = what.partition(" ")[0] if code is ErrorCode.NONE else "refused"
                world.admin_ledger.counts[kind] = world.admin_ledger.counts.get(kind, 0) + 1
                return reply
            if not code.retriable and code not in AWAITED:
                raise KafkaError(code, f"admin: {what}")
            await self.pause()
        return None


def unfinished(world: World) -> str:
    """The part of the admin's work that is not done on every broker; empty if all is done."""
    tree = world.ensemble.tree
    for name in tree.children(znodes.DELETIONS):
        return f"a pending deletion is left: {name}"
    topics = {topic: world.assignment(topic) for topic in tree.children(znodes.TOPICS)}
    for topic, assignment in topics.items():
        if assignment is None or assignment.adding or assignment.removing:
            return f"{topic} still moves: {assignment}"
    for broker in world.brokers:
        missing = _unfinished_at(world, broker, topics)
        if missing:
            return f"{broker} {missing}"
    return ""


def _unfinished_at(
    world: World, broker: Broker, topics: Mapping[str, znodes.TopicAssignment | None]
) -> str:
    assert broker.node is not None
    views = broker.node.view.topics
    if views.keys() != topics.keys():
        return f"knows of the topics {sorted(views)}, there are {sorted(topics)}"
    for topic, view in views.items():
        configs = world.overrides(topic)
        if dict(view.configs) != configs:
            return f"knows {topic} with {view.configs}, the store says {configs}"
    for (topic, index), log in broker.node.logs.logs.items():
        assignment = topics.get(topic)
        replicas = () if assignment is None else assignment.partitions.get(index, ())
        if assignment is None or assignment.topic_id != log.topic_id or broker.id not in replicas:
            if log.path in broker.disk.given_back:
                continue  # its deletion was confirmed: no broker gets the request again
            return f"still has a log of {topic}-{index} ({log.topic_id})"
        wanted = world.overrides(topic).get(CONFIG, str(log.config.max_message_bytes))
        if str(log.config.max_message_bytes) != wanted:
            return f"{topic}-{index}: {CONFIG} is {log.config.max_message_bytes}, not {wanted}"
    return ""
