"""ElectLeaders and partition reassignments: real handlers, a real controller in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Principal, Requester, ResourceType
from headwater.ports.metadata_store import Delete
from headwater.wire.apis.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from headwater_broker.api.api_config import ApiConfig
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.k43_elect_leaders import elect_leaders
from headwater_broker.api.k45_alter_partition_reassignments import alter_partition_reassignments
from headwater_broker.api.k46_list_partition_reassignments import list_partition_reassignments
from headwater_broker.metadata import znodes
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.quota.rate import Windows
from headwater_broker.security.audit_entry import AskedChange
from headwater_broker.security.session import Session
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until
from unit.controller.test_controller import create, leader, rejoin_partition

Key = tuple[str, int]
Codes = dict[Key, ErrorCode]


class DeniesCluster(AllowAll):
    """No rights on the cluster."""

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return resource is not ResourceType.CLUSTER


def context(
    broker: FakeBroker, version: int, authorizer: Any = None, audited: list[str] | None = None
) -> RequestContext:
    """A request that reached `broker`: whichever it is, the controller decides. `audited` takes
    the audit lines."""
    lines = [] if audited is None else audited

    def note(change: AskedChange) -> None:
        lines.append(f"{change.principal} {change.text}")

    audit = SimpleNamespace(changed=note, refused=note)
    services = SimpleNamespace(
        controller=broker.calls,
        view=broker.view,
        clock=broker.clock,
        config=ApiConfig(),
        quotas=ClientQuotas(broker.clock, Windows()),
        acls=SimpleNamespace(authorizer=SimpleNamespace(audit=audit)),
    )
    session = Session(
        authorizer or AllowAll(), listener="PLAINTEXT", principal=Principal("User", "test")
    )
    return RequestContext(cast(Services, services), session, "test", version, 1)


async def elect(
    broker: FakeBroker, kind: int, partitions: list[Key] | None, version: int = 2
) -> Codes:
    named = None
    if partitions is not None:
        named = tuple(TopicPartitions(topic=t, partitions=(p,)) for t, p in partitions)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=named)
    reply = await elect_leaders(context(broker, version), request)
    assert isinstance(reply, ElectLeadersResponse)
    assert reply.error_code == 0
    return {
        (t.topic, p.partition_id): ErrorCode(p.error_code)
        for t in reply.replica_election_results
        for p in t.partition_result
    }


async def reassign(broker: FakeBroker, targets: dict[Key, tuple[int, ...] | None]) -> Codes:
    request = AlterPartitionReassignmentsRequest(
        topics=tuple(
            ReassignableTopic(
                name=t, partitions=(ReassignablePartition(partition_index=p, replicas=r),)
            )
            for (t, p), r in targets.items()
        )
    )
    reply = await alter_partition_reassignments(context(broker, 1), request)
    assert isinstance(reply, AlterPartitionReassignmentsResponse)
    assert reply.error_code == 0
    return {
        (t.name, p.partition_index): ErrorCode(p.error_code)
        for t in reply.responses
        for p in t.partitions
    }


async def moves(
    broker: FakeBroker, partitions: list[Key] | None = None
) -> dict[Key, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    asked = None
    if partitions is not None:
        asked = tuple(
            ListPartitionReassignmentsTopics(name=t, partition_indexes=(p,)) for t, p in partitions
        )
    request = ListPartitionReassignmentsRequest(topics=asked)
    reply = await list_partition_reassignments(context(broker, 0), request)
    assert isinstance(reply, ListPartitionReassignmentsResponse)
    assert reply.error_code == 0
    return {
        (t.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for t in reply.topics
        for p in t.partitions
    }


def play(story: Callable[[Cluster], Awaitable[None]], brokers: int = 3) -> None:
    async def main() -> None:
        async with Cluster(brokers) as cluster:
            await asyncio.wait_for(story(cluster), 30)

    asyncio.run(main())


def standby(cluster: Cluster) -> FakeBroker:
    """Not the controller, so that the request is forwarded."""
    return next(b for b in cluster.all() if not b.controller.is_active)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_preferred_leader_comes_back_on_request(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (3, 1), (1, 3))
        await cluster.kill(3)
        await until(lambda: leader(one, "t") == 1)
        asked = standby(cluster)
        refused = await elect(asked, 0, [("t", 0), ("t", 1), ("t", 9)], version)
        assert refused == {
            ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        await cluster.add(3)
        await until(lambda: all(3 in b.view.brokers for b in cluster.all()))
        await rejoin_partition(one, "t", 0)
        twice: list[Key] = [("t", 0), ("t", 0)]
        assert await elect(asked, 0, twice, version) == {("t", 0): ErrorCode.NONE}
        assert [leader(b, "t") for b in cluster.all()] == [3, 3, 3]
        assert await elect(asked, 0, None, version) == {}

    play(story)


@pytest.mark.parametrize("kind", [0, 1])
def test_an_election_of_all_tells_of_every_topic(kind: int) -> None:
    """In Kafka's response, too, topics stand there of which no partition needs a leader."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "quiet", (1, 2), (2, 1))
        await create(one, "lost", (3,))
        await cluster.kill(3)
        await until(lambda: leader(one, "lost") == -1)
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        reply = await elect_leaders(context(one, 2), request)
        told = {
            t.topic: [(p.partition_id, p.error_code) for p in t.partition_result]
            for t in reply.replica_election_results
        }
        refused = (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            if kind
            else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
        assert told == {"quiet": [], "lost": [(0, refused)]}

    play(story)


def test_an_unknown_kind_of_election_moves_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        row = TopicPartitions(topic="t", partitions=(0,))
        for asked in cluster.all():
            request = ElectLeadersRequest(election_type=7, topic_partitions=(row,))
            reply = await elect_leaders(context(asked, 2), request)
            assert reply.error_code == ErrorCode.INVALID_REQUEST
            [told] = reply.replica_election_results
            assert [p.error_code for p in told.partition_result] == [ErrorCode.INVALID_REQUEST]
            assert leader(asked, "t") == 1

    play(story)


def told(cluster: Cluster) -> tuple[int, int]:
    """What metrics tell, over all brokers: partitions that nobody leads, unclean elections."""
    rows = [b.controller for b in cluster.all()]
    return sum(r.offline_partitions for r in rows), sum(r.unclean_elections_total for r in rows)


def test_an_unclean_election_only_where_nobody_leads() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (3, 1))
        await cluster.kill(1)
        lead = cluster.brokers[3]
        await until(lambda: (s := lead.view.partition("t", 0)) is not None and s.isr == (3,))
        one = await cluster.add(1)
        await until(lambda: all(1 in b.view.brokers for b in cluster.all()))
        assert await elect(one, 1, [("t", 0)]) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
        await cluster.kill(3)
        await until(lambda: leader(one, "t") == -1)
        assert told(cluster) == (1, 0), "nobody that hosts it runs in sync"
        assert await elect(one, 1, [("t", 0)]) == {("t", 0): ErrorCode.NONE}
        assert leader(one, "t") == 1
        assert told(cluster) == (0, 1)
        rows = [b.controller for b in cluster.all()]
        first = cluster.controller().controller.controller_loop
        await one.store.multi([Delete(znodes.CONTROLLER)])
        await until(lambda: any(r.is_active and r.controller_loop is not first for r in rows))
        assert told(cluster) == (0, 1), "a term that is over counts, too"

    play(story)


def test_a_move_is_listed_while_it_runs_and_ends_when_the_new_replica_is_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        one, asked = cluster.brokers[1], standby(cluster)
        await create(one, "t", (1, 2), (2, 3))
        assert await moves(asked) == {}
        codes = await reassign(asked, {("t", 0): (3, 1), ("t", 1): (2, 3), ("u", 0): (1,)})
        assert codes == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.NONE,
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        under_way = {("t", 0): ((3, 1, 2), (3,), (2,))}
        assert await moves(asked) == under_way
        assert await moves(asked, [("t", 0)]) == under_way
        assert await moves(asked, [("t", 1)]) == {}
        await until(lambda: one.view.topics["t"].partitions[0].replicas == (3, 1, 2))
        await rejoin_partition(one, "t", 0)
        await until(lambda: one.view.topics["t"].partitions[0].replicas == (3, 1))
        assert await moves(asked) == {}
        await until(lambda: ("t", 0, True) in cluster.brokers[2].stopped)
        assert leader(one, "t") == 1

    play(story)


def test_a_move_outlives_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        first = next(b.broker_id for b in cluster.all() if b.controller.is_active)
        stays, comes = (b for b in (1, 2, 3, 4) if b != first and b != 4), 4
        a, b = stays
        await create(cluster.brokers[a], "t", (a, b))
        assert await reassign(cluster.brokers[a], {("t", 0): (comes, a)}) == {
            ("t", 0): ErrorCode.NONE
        }
        await cluster.kill(first)
        await until(lambda: any(x.controller.is_active for x in cluster.all()))
        lead = cluster.brokers[a]
        assert await moves(lead) == {("t", 0): ((comes, a, b), (comes,), (b,))}
        await until(lambda: lead.view.topics["t"].partitions[0].replicas == (comes, a, b))
        await rejoin_partition(lead, "t", 0)
        await until(lambda: lead.view.topics["t"].partitions[0].replicas == (comes, a))
        assert await moves(lead) == {}

    play(story, brokers=4)


def test_a_move_is_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        none = await reassign(one, {("t", 0): None})
        assert none == {("t", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        await reassign(one, {("t", 0): (3,)})
        assert await moves(one) == {("t", 0): ((3, 1, 2), (3,), (1, 2))}
        assert await reassign(one, {("t", 0): None}) == {("t", 0): ErrorCode.NONE}
        assert await moves(one) == {}
        await until(lambda: one.view.topics["t"].partitions[0].replicas == (1, 2))
        await until(lambda: ("t", 0, True) in cluster.brokers[3].stopped)
        assert leader(one, "t") == 1

    play(story)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_impossible_targets_are_refused(target: tuple[int, ...]) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        codes = await reassign(one, {("t", 0): target})
        assert codes == {("t", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        assert await moves(one) == {}

    play(story)


def test_the_number_of_replicas_stays_when_asked_so() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        row = ReassignablePartition(partition_index=0, replicas=(1, 2, 3))
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=(ReassignableTopic(name="t", partitions=(row,)),),
        )
        reply = await alter_partition_reassignments(context(one, 1), request)
        code = reply.responses[0].partitions[0].error_code
        assert code == ErrorCode.INVALID_REPLICATION_FACTOR

    play(story)


def test_all_three_are_for_those_with_rights_on_the_cluster() -> None:
    async def story(cluster: Cluster) -> None:
        one, refused = cluster.brokers[1], ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ctx = context(one, 1, DeniesCluster())
        elected = await elect_leaders(ctx, ElectLeadersRequest(topic_partitions=None))
        assert elected.error_code == refused
        # Without an error code of its own version 0 told nothing.
        row = TopicPartitions(topic="t", partitions=(0, 3))
        oldest = ElectLeadersRequest(topic_partitions=(row,))
        elected = await elect_leaders(context(one, 0, DeniesCluster()), oldest)
        [told] = elected.replica_election_results
        assert [(p.partition_id, p.error_code) for p in told.partition_result] == [
            (0, refused),
            (3, refused),
        ]
        altered = await alter_partition_reassignments(ctx, AlterPartitionReassignmentsRequest())
        assert altered.error_code == refused
        ctx = context(one, 0, DeniesCluster())
        listed = await list_partition_reassignments(ctx, ListPartitionReassignmentsRequest())
        assert listed.error_code == refused

    play(story)
