"""Admin requests are answered once this broker's metadata shows their effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater.wire.apis.k19_create_topics import CreatableTopic, CreateTopicsRequest
from headwater.wire.apis.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater.wire.apis.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from headwater.wire.schema import Message, encode
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.k19_create_topics import create_topics
from headwater_broker.api.k20_delete_topics import delete_topics
from headwater_broker.api.k37_create_partitions import create_partitions
from headwater_broker.api.k43_elect_leaders import elect_leaders
from headwater_broker.api.k45_alter_partition_reassignments import alter_partition_reassignments
from headwater_broker.api.k46_list_partition_reassignments import list_partition_reassignments
from unit.api.test_moving import context, play
from unit.controller.brokers_in_memory import Cluster, FakeBroker
from unit.controller.test_controller import create

Answer = Callable[[], Awaitable[Message]]


def answered(ctx: RequestContext, answer: Answer, spent_s: float = 0.0) -> RequestContext:
    """The same with a controller that says this, having taken `spent_s` of this broker's time."""
    now_s = 100.0

    class Controller:
        async def forward(self, key: int, version: int, *_: Any) -> bytes:
            nonlocal now_s
            now_s += spent_s
            return encode(await answer(), version)

    services = SimpleNamespace(
        controller=Controller(),
        view=ctx.broker.view,
        clock=SimpleNamespace(monotonic=lambda: now_s),
        config=ctx.broker.config,
        quotas=ctx.broker.quotas,
        acls=ctx.broker.acls,
    )
    return replace(ctx, broker=cast(Services, services))


def grow(*counts: tuple[str, int], timeout_ms: int) -> CreatePartitionsRequest:
    rows = tuple(
        CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts
    )
    return CreatePartitionsRequest(topics=rows, timeout_ms=timeout_ms)


def test_only_the_topic_that_is_late_is_told_to_be() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        for name in ("quick", "late"):
            await create(one, name, (1, 2))

        async def answer() -> CreatePartitionsResponse:
            grown = await create_partitions(context(one, 3), grow(("quick", 2), timeout_ms=5_000))
            assert grown.results[0].error_code == ErrorCode.NONE
            done = [CreatePartitionsTopicResult(name=n, error_code=0) for n in ("quick", "late")]
            return CreatePartitionsResponse(results=tuple(done))

        began_s = asyncio.get_running_loop().time()
        ctx = answered(context(one, 3), answer, spent_s=20)
        asked = grow(("quick", 2), ("late", 2), timeout_ms=20_000)
        reply = await create_partitions(ctx, asked)
        codes = {r.name: r.error_code for r in reply.results}
        assert codes == {"quick": ErrorCode.NONE, "late": ErrorCode.REQUEST_TIMED_OUT}
        spent_s = asyncio.get_running_loop().time() - began_s
        assert spent_s < 15, "the forward has taken all of the client's time"

    play(story)


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_deletion_is_answered_when_this_broker_has_forgotten_the_topic(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        topic_id = one.view.topics["t"].topic_id
        request = DeleteTopicsRequest(topic_names=("t",), timeout_ms=20_000)
        later: list[asyncio.Task[None]] = []

        async def answer() -> DeleteTopicsResponse:
            later.append(asyncio.create_task(soon(one, request)))
            row = DeletableTopicResult(name="t", topic_id=topic_id, error_code=0)
            return DeleteTopicsResponse(responses=(row,))

        ctx = answered(context(one, version), answer)
        asked = request if version < 6 else with_rows(request)
        await delete_topics(ctx, asked)
        assert "t" not in one.view.topics
        await asyncio.gather(*later)

    play(story)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_any_time_nothing_is_done(timeout_ms: int) -> None:
    """As in KRaft, whose controller drops what is late before it begins."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        late = ErrorCode.REQUEST_TIMED_OUT
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        new = CreateTopicsRequest(topics=(topic,), timeout_ms=timeout_ms)
        [made] = (await create_topics(context(one, 7), new)).topics
        assert (made.name, made.error_code) == ("new", late)
        [grown] = (
            await create_partitions(context(one, 3), grow(("t", 3), timeout_ms=timeout_ms))
        ).results
        assert (grown.name, grown.error_code) == ("t", late)
        old = DeleteTopicsRequest(topic_names=("t",), timeout_ms=timeout_ms)
        [gone] = (await delete_topics(context(one, 5), old)).responses
        assert (gone.name, gone.error_code) == ("t", late)
        assert {n: len(v.partitions) for n, v in one.view.topics.items()} == {"t": 1}
        row = ReassignablePartition(partition_index=0, replicas=(3,))
        move = AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms, topics=(ReassignableTopic(name="t", partitions=(row,)),)
        )
        moved = await alter_partition_reassignments(context(one, 1), move)
        [of_topic] = moved.responses
        assert moved.error_code == late
        assert [(p.partition_index, p.error_code) for p in of_topic.partitions] == [(0, late)]
        state = one.view.partition("t", 0)
        assert state is not None and state.replicas == (1, 2)
        election = ElectLeadersRequest(
            topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),), timeout_ms=timeout_ms
        )
        elected = await elect_leaders(context(one, 2), election)
        [of_topic] = elected.replica_election_results
        assert elected.error_code == late
        assert [(p.partition_id, p.error_code) for p in of_topic.partition_result] == [(0, late)]
        listing = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms)
        listed = await list_partition_reassignments(context(one, 0), listing)
        assert listed.error_code == ErrorCode.NONE, "reading takes no time of the controller's"

    play(story)


async def soon(broker: FakeBroker, request: DeleteTopicsRequest) -> None:
    """The controller's word comes after its answer."""
    await asyncio.sleep(0.02)
    await delete_topics(context(broker, 5), request)


def with_rows(request: DeleteTopicsRequest) -> DeleteTopicsRequest:
    rows = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    return replace(request, topic_names=(), topics=rows)
