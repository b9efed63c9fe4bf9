"""Share groups by the protocol: membership, offsets, deletion, rights, keys between brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k16_list_groups as k16
from headwater.wire.apis import k18_api_versions as k18
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater.wire.apis import k77_share_group_describe as k77
from headwater.wire.apis import k83_initialize_share_group_state as k83
from headwater.wire.apis import k84_read_share_group_state as k84
from headwater.wire.apis import k85_write_share_group_state as k85
from headwater.wire.apis import k86_delete_share_group_state as k86
from headwater.wire.apis import k87_read_share_group_state_summary as k87
from headwater.wire.apis import k90_describe_share_group_offsets as k90
from headwater.wire.apis import k91_alter_share_group_offsets as k91
from headwater.wire.apis import k92_delete_share_group_offsets as k92
from headwater_broker.coordinator.share_state.service import coordinator_key
from headwater_broker.replica.share.ports import ShareState
from share_persister import acknowledged, share_partition
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, produce, serve

SMALL = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
}


async def beat(
    c: Connection, member: str, epoch: int, *topics: str
) -> k76.ShareGroupHeartbeatResponse:
    request = k76.ShareGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=topics or None,
    )
    return await c.call(request, k76.ShareGroupHeartbeatResponse)


async def joined(c: Connection, *topics: str) -> k76.ShareGroupHeartbeatResponse:
    """Heartbeats of member "m" until it has partitions."""
    reply = await beat(c, "m", 0, *topics)
    assert reply.error_code == 0, reply
    while not (reply.assignment and reply.assignment.topic_partitions):
        await asyncio.sleep(0.02)
        reply = await beat(c, "m", reply.member_epoch)
        assert reply.error_code == 0, reply
    return reply


async def offsets_of(c: Connection, *topics: Any) -> k90.DescribeShareGroupOffsetsResponseGroup:
    group = k90.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics or None)
    request = k90.DescribeShareGroupOffsetsRequest(groups=(group,))
    reply = await c.call(request, k90.DescribeShareGroupOffsetsResponse)
    return reply.groups[0]


def alteration(*rows: tuple[str, int, int]) -> k91.AlterShareGroupOffsetsRequest:
    return k91.AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=tuple(
            k91.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=(
                    k91.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=start
                    ),
                ),
            )
            for topic, index, start in rows
        ),
    )


def test_a_share_group_from_its_first_member_to_its_end(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, configs={"cleanup.policy": "compact"})
        topic_id = broker.create_topic("t", 2)
        await produce(c, "t", batch(10))
        reply = await joined(c, "t")
        assert reply.assignment == k76.Assignment(
            topic_partitions=(k76.TopicPartitions(topic_id=topic_id, partitions=(0, 1)),)
        )
        described = await c.call(
            k77.ShareGroupDescribeRequest(group_ids=("g", "h"), include_authorized_operations=True),
            k77.ShareGroupDescribeResponse,
        )
        states = [(g.group_state, g.error_code) for g in described.groups]
        assert states == [("Stable", 0), ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)]
        listed = await c.call(
            k16.ListGroupsRequest(types_filter=("Share",)), k16.ListGroupsResponse
        )
        assert [(r.group_id, r.group_type) for r in listed.groups] == [("g", "share")]
        busy = await c.call(k42.DeleteGroupsRequest(groups_names=("g",)), k42.DeleteGroupsResponse)
        assert busy.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        refused = await c.call(alteration(("t", 0, 1)), k91.AlterShareGroupOffsetsResponse)
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await beat(c, "m", -1)).member_epoch == -1

        await _offsets_are_moved(broker, c, topic_id)
        await _offsets_are_deleted(broker, c, topic_id)

        # It is deleted with its states.
        reply = await joined(c, "t")
        await beat(c, "m", -1)
        gone = await c.call(k42.DeleteGroupsRequest(groups_names=("g",)), k42.DeleteGroupsResponse)
        assert gone.results[0].error_code == 0
        shards = broker.services.share_states.coordinator.runtime.shards
        assert not any(shard.states for shard in shards)
        assert ((of_none := await offsets_of(c)).error_code, of_none.topics) == (0, ())

    serve(tmp_path, story, **SMALL)


@pytest.mark.parametrize("is_altered", [False, True], ids=["a member joins", "offsets are set"])
def test_a_deletion_that_failed_half_way_ends_before_states_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_altered: bool
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, configs={"cleanup.policy": "compact"})
        topic_id = broker.create_topic("t", 2)
        await joined(c, "t")
        await beat(c, "m", -1)
        await c.call(alteration(("t", 0, 4), ("t", 1, 5)), k91.AlterShareGroupOffsetsResponse)
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share coordinator")

        async def refuse(*_: object) -> None:
            raise refusal

        with monkeypatch.context() as patch:
            patch.setattr(type(broker.services.persister), "delete", refuse)
            request = k92.DeleteShareGroupOffsetsRequest(
                group_id="g", topics=(k92.DeleteShareGroupOffsetsRequestTopic(topic_name="t"),)
            )
            deleted = await c.call(request, k92.DeleteShareGroupOffsetsResponse)
            assert [r.error_code for r in deleted.responses] == [refusal.code]
        if is_altered:
            await c.call(alteration(("t", 0, 7)), k91.AlterShareGroupOffsetsResponse)
        else:
            await joined(c, "t")
        persister = broker.services.persister
        starts = [
            (await persister.read_summary(share_partition(topic_id, index, "g"))).start_offset
            for index in (0, 1)
        ]
        assert starts == [7 if is_altered else -1, -1]
        if is_altered:
            (topic,) = (await offsets_of(c)).topics
            assert [(p.partition_index, p.start_offset) for p in topic.partitions] == [(0, 7)]

    serve(tmp_path, story, **SMALL)


async def _offsets_are_moved(broker: SoloBroker, c: Connection, topic_id: UUID) -> None:
    altered = await c.call(
        alteration(("t", 0, 4), ("t", 7, 4), ("x", 0, 4)), k91.AlterShareGroupOffsetsResponse
    )
    codes = [p.error_code for topic in altered.responses for p in topic.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (altered.error_code, codes) == (0, [0, unknown, unknown])
    key = share_partition(topic_id, 0, "g")
    state = await broker.services.persister.read(key, 0)
    assert state.start_offset == 4
    change = ShareState(state.state_epoch, 0, 4, (acknowledged(5, 6),), 2)
    await broker.services.persister.write(key, change)
    (topic,) = (await offsets_of(c)).topics
    rows = [(p.partition_index, p.start_offset, p.lag) for p in topic.partitions]
    assert rows == [(0, 4, 4), (1, -1, -1)]
    named = await offsets_of(
        c,
        k90.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=(0, 5)),
        k90.DescribeShareGroupOffsetsRequestTopic(topic_name="x", partitions=(0,)),
    )
    assert [p.error_code for t in named.topics for p in t.partitions] == [0, unknown, 0]
    (part,) = named.topics[1].partitions
    assert (part.start_offset, part.lag) == (-1, -1), "of an unknown topic"


async def _offsets_are_deleted(broker: SoloBroker, c: Connection, topic_id: UUID) -> None:
    unknown, key = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, share_partition(topic_id, 0, "g")
    deleted = await c.call(
        k92.DeleteShareGroupOffsetsRequest(
            group_id="g",
            topics=tuple(
                k92.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "x")
            ),
        ),
        k92.DeleteShareGroupOffsetsResponse,
    )
    assert [r.error_code for r in deleted.responses] == [0, unknown]
    assert (await offsets_of(c)).topics == ()
    assert (await broker.services.persister.read_summary(key)).start_offset == -1


def test_share_groups_are_announced(tmp_path: Path) -> None:
    async def story(_broker: SoloBroker, c: Connection) -> None:
        request = k18.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        reply = await c.call(request, k18.ApiVersionsResponse, version=4)
        features = {f.name: f.max_version_level for f in reply.finalized_features}
        assert features["share.version"] == 1
        keys = {row.api_key for row in reply.api_keys}
        assert {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92} <= keys

    serve(tmp_path, story)


def test_coordinators_of_share_partitions_are_found(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        good = coordinator_key(share_partition(topic_id))
        request = k10.FindCoordinatorRequest(
            key_type=2, coordinator_keys=(good, "nonsense"), key=""
        )
        reply = await c.call(request, k10.FindCoordinatorResponse, version=6)
        codes = [row.error_code for row in reply.coordinators]
        assert codes == [0, ErrorCode.INVALID_REQUEST]
        assert SHARE_STATE_TOPIC in broker.view.topics
        early = await c.call(request, k10.FindCoordinatorResponse, version=5)
        assert early.coordinators[0].error_code == ErrorCode.INVALID_REQUEST

    serve(tmp_path, story, **SMALL)


class MayAllBut(AllowAll):
    """Everything is allowed but one operation."""

    def __init__(self, denied: Operation) -> None:
        self.denied = denied

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return operation is not self.denied


def between_brokers(topic_id: UUID) -> list[tuple[Any, Any]]:
    asked = {"group_id": "g"}
    return [
        (k83.InitializeShareGroupStateRequest(**asked, topics=(k83.InitializeStateData(
            topic_id=topic_id, partitions=(
                k83.PartitionData(partition=0, state_epoch=1, start_offset=3),)),)),
         k83.InitializeShareGroupStateResponse),
        (k84.ReadShareGroupStateRequest(**asked, topics=(k84.ReadStateData(
            topic_id=topic_id, partitions=(k84.PartitionData(partition=0, leader_epoch=2),)),)),
         k84.ReadShareGroupStateResponse),
        (k85.WriteShareGroupStateRequest(**asked, topics=(k85.WriteStateData(
            topic_id=topic_id, partitions=(k85.PartitionData(
                partition=0, state_epoch=1, leader_epoch=2, start_offset=4,
                state_batches=(k85.StateBatch(
                    first_offset=6, last_offset=7, delivery_state=2, delivery_count=1),)),)),)),
         k85.WriteShareGroupStateResponse),
        (k87.ReadShareGroupStateSummaryRequest(**asked, topics=(k87.ReadStateSummaryData(
            topic_id=topic_id, partitions=(k87.PartitionData(partition=0, leader_epoch=-1),)),)),
         k87.ReadShareGroupStateSummaryResponse),
        (k86.DeleteShareGroupStateRequest(**asked, topics=(k86.DeleteStateData(
            topic_id=topic_id, partitions=(k86.PartitionData(partition=0),)),)),
         k86.DeleteShareGroupStateResponse),
    ]  # fmt: skip


@pytest.mark.parametrize("may", [True, False])
def test_states_are_for_brokers(tmp_path: Path, may: bool) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        broker.create_topic(SHARE_STATE_TOPIC, 2)
        for request, response in between_brokers(topic_id):
            reply = await c.call(request, response)
            (row,) = reply.results[0].partitions
            expected = 0 if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert (row.partition, row.error_code) == (0, expected), row
            if may and response is k87.ReadShareGroupStateSummaryResponse:
                assert (row.state_epoch, row.leader_epoch, row.start_offset) == (1, 2, 4)

    denied = Operation.CLUSTER_ACTION if not may else Operation.IDEMPOTENT_WRITE
    serve(tmp_path, story, MayAllBut(denied))


def test_rights_of_members_and_tools(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, configs={"cleanup.policy": "compact"})
        broker.create_topic("t")
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await beat(c, "m", 0, "t")).error_code == code
        refused = await c.call(alteration(("t", 0, 1)), k91.AlterShareGroupOffsetsResponse)
        assert refused.error_code == code

    serve(tmp_path, story, MayAllBut(Operation.READ), **SMALL)


def test_members_may_not_name_topics_that_they_cannot_describe(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, configs={"cleanup.policy": "compact"})
        broker.create_topic("t")
        reply = await beat(c, "m", 0, "t")
        assert reply.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    serve(tmp_path, story, MayAllBut(Operation.DESCRIBE), **SMALL)
