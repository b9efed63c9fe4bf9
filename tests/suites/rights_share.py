"""The requests of share groups and their coordinators (KIP-932), for the matrix of rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater.wire.apis import k77_share_group_describe as k77
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from headwater.wire.apis import k83_initialize_share_group_state as k83
from headwater.wire.apis import k84_read_share_group_state as k84
from headwater.wire.apis import k85_write_share_group_state as k85
from headwater.wire.apis import k86_delete_share_group_state as k86
from headwater.wire.apis import k87_read_share_group_state_summary as k87
from headwater.wire.apis import k90_describe_share_group_offsets as k90
from headwater.wire.apis import k91_alter_share_group_offsets as k91
from headwater.wire.apis import k92_delete_share_group_offsets as k92
from headwater.wire.schema import Message
from suites.rights_by_id import GONE_ID

STRANGER = "AAAAAAAAAAAAAAAAAAAABQ"
SHARE_PARTITION = "rights-here:AAAAAAAAAAAAAAAAAAAABQ:0"
"""The key of a share partition, of a topic that does not exist."""


class ShareRequest(NamedTuple):
    """One request, by a name of its own."""

    name: str
    message: Message
    response: type[Message]
    version: int


def share_requests(here: str, gone: str) -> Iterator[ShareRequest]:
    """Of members and tools on groups `here` and `gone`, and of brokers. They change nothing: the
    member is a stranger, the group has no share partitions."""
    for group in (here, gone):
        yield from _of_members(group, here)
        yield from _of_tools(group, here, gone)
    yield from _of_brokers(here, GONE_ID)


def _of_members(g: str, topic: str) -> Iterator[ShareRequest]:
    beat = k76.ShareGroupHeartbeatRequest(
        group_id=g, member_id=STRANGER, member_epoch=7, subscribed_topic_names=(topic,)
    )
    yield ShareRequest(f"ShareGroupHeartbeat {g}", beat, k76.ShareGroupHeartbeatResponse, 1)
    fetch = k78.ShareFetchRequest(
        group_id=g, member_id=STRANGER, share_session_epoch=7, max_wait_ms=0, min_bytes=0,
        max_bytes=1, max_records=1, batch_size=1, topics=(), forgotten_topics_data=(),
    )  # fmt: skip
    yield ShareRequest(f"ShareFetch {g}", fetch, k78.ShareFetchResponse, 1)
    accept = k79.ShareAcknowledgeRequest(
        group_id=g, member_id=STRANGER, share_session_epoch=7, topics=()
    )
    yield ShareRequest(f"ShareAcknowledge {g}", accept, k79.ShareAcknowledgeResponse, 1)


def _of_tools(g: str, here: str, gone: str) -> Iterator[ShareRequest]:
    described = k77.ShareGroupDescribeRequest(group_ids=(g,), include_authorized_operations=True)
    yield ShareRequest(f"ShareGroupDescribe {g}", described, k77.ShareGroupDescribeResponse, 1)
    for t in (here, gone):
        asked = k90.DescribeShareGroupOffsetsRequestTopic(topic_name=t, partitions=(0,))
        one = k90.DescribeShareGroupOffsetsRequestGroup(group_id=g, topics=(asked,))
        yield ShareRequest(
            f"DescribeShareGroupOffsets {g} of {t}",
            k90.DescribeShareGroupOffsetsRequest(groups=(one,)),
            k90.DescribeShareGroupOffsetsResponse,
            1,
        )
        row = k91.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        moved = k91.AlterShareGroupOffsetsRequestTopic(topic_name=t, partitions=(row,))
        yield ShareRequest(
            f"AlterShareGroupOffsets {g} of {t}",
            k91.AlterShareGroupOffsetsRequest(group_id=g, topics=(moved,)),
            k91.AlterShareGroupOffsetsResponse,
            0,
        )
        away = k92.DeleteShareGroupOffsetsRequestTopic(topic_name=t)
        yield ShareRequest(
            f"DeleteShareGroupOffsets {g} of {t}",
            k92.DeleteShareGroupOffsetsRequest(group_id=g, topics=(away,)),
            k92.DeleteShareGroupOffsetsResponse,
            0,
        )


def _of_brokers(g: str, topic_id: UUID) -> Iterator[ShareRequest]:
    begun = k83.PartitionData(partition=0, state_epoch=0, start_offset=0)
    begin = k83.InitializeShareGroupStateRequest(
        group_id=g, topics=(k83.InitializeStateData(topic_id=topic_id, partitions=(begun,)),)
    )
    yield ShareRequest("InitializeShareGroupState", begin, k83.InitializeShareGroupStateResponse, 0)
    asked = k84.PartitionData(partition=0, leader_epoch=0)
    read = k84.ReadShareGroupStateRequest(
        group_id=g, topics=(k84.ReadStateData(topic_id=topic_id, partitions=(asked,)),)
    )
    yield ShareRequest("ReadShareGroupState", read, k84.ReadShareGroupStateResponse, 0)
    changed = k85.PartitionData(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=()
    )
    write = k85.WriteShareGroupStateRequest(
        group_id=g, topics=(k85.WriteStateData(topic_id=topic_id, partitions=(changed,)),)
    )
    yield ShareRequest("WriteShareGroupState", write, k85.WriteShareGroupStateResponse, 1)
    deleted = k86.PartitionData(partition=0)
    delete = k86.DeleteShareGroupStateRequest(
        group_id=g, topics=(k86.DeleteStateData(topic_id=topic_id, partitions=(deleted,)),)
    )
    yield ShareRequest("DeleteShareGroupState", delete, k86.DeleteShareGroupStateResponse, 0)
    summed = k87.PartitionData(partition=0, leader_epoch=0)
    summary = k87.ReadShareGroupStateSummaryRequest(
        group_id=g, topics=(k87.ReadStateSummaryData(topic_id=topic_id, partitions=(summed,)),)
    )
    yield ShareRequest(
        "ReadShareGroupStateSummary", summary, k87.ReadShareGroupStateSummaryResponse, 1
    )
    find = k10.FindCoordinatorRequest(key_type=2, coordinator_keys=(SHARE_PARTITION,))
    yield ShareRequest("FindCoordinator of a share partition", find, k10.FindCoordinatorResponse, 6)
