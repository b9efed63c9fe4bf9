"""The requests of the rights matrix that name topics by their ids (KIP-516), and those of groups of
KIP-848.

Each leaves both servers as they were, whatever rights its sender has.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k01_fetch as k01
from headwater.wire.apis import k03_metadata as k03
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k68_consumer_group_heartbeat as k68
from headwater.wire.apis import k69_consumer_group_describe as k69
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from suites.rights_requests import GONE, HERE, TIMEOUT_MS, Request
from unit.network.test_data_plane import batch

GONE_ID = UUID("7b1d2c3e-0000-4000-8000-00000000abcd")
"""The id of no topic."""
STRANGER = "AAAAAAAAAAAAAAAAAAAAAA"
"""A member id that no group knows; some servers take none but ids of 22 letters."""


def requests_by_id(here: UUID) -> Iterator[Request]:
    """`here`: the id of the topic that exists."""
    for name, topic_id in ((HERE, here), (GONE, GONE_ID)):
        yield from _on_topic(name, topic_id)
        yield from _on_offsets(name, topic_id)
        yield from _on_members(name, topic_id)
    gone = k20.DeleteTopicState(topic_id=GONE_ID)
    yield Request(
        "DeleteTopics by an id",
        k20.DeleteTopicsRequest(topics=(gone,), timeout_ms=TIMEOUT_MS),
        k20.DeleteTopicsResponse,
        6,
    )


def _on_topic(name: str, topic_id: UUID) -> Iterator[Request]:
    rows = k00.PartitionProduceData(index=0, records=batch())
    data = k00.TopicProduceData(topic_id=topic_id, partition_data=(rows,))
    yield Request(
        f"Produce by the id of {name}",
        k00.ProduceRequest(acks=1, timeout_ms=1000, topic_data=(data,)),
        k00.ProduceResponse,
        13,
    )
    part = k01.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetched = k01.FetchTopic(topic_id=topic_id, partitions=(part,))
    yield Request(
        f"Fetch by the id of {name}",
        k01.FetchRequest(max_wait_ms=0, min_bytes=0, topics=(fetched,)),
        k01.FetchResponse,
        13,
    )
    asked = k03.MetadataRequest(
        topics=(k03.MetadataRequestTopic(topic_id=topic_id, name=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    yield Request(f"Metadata by the id of {name}", asked, k03.MetadataResponse, 12)


def _on_offsets(name: str, topic_id: UUID) -> Iterator[Request]:
    row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = k08.OffsetCommitRequest(
        group_id=HERE,
        generation_id_or_member_epoch=7,
        member_id="stranger",
        topics=(k08.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(row,)),),
    )
    yield Request(f"OffsetCommit by the id of {name}", commit, k08.OffsetCommitResponse, 10)
    asked = k09.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,))
    one = k09.OffsetFetchRequestGroup(group_id=HERE, topics=(asked,))
    yield Request(
        f"OffsetFetch by the id of {name}",
        k09.OffsetFetchRequest(groups=(one,)),
        k09.OffsetFetchResponse,
        10,
    )


def _on_members(group: str, topic_id: UUID) -> Iterator[Request]:
    beat = k68.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=STRANGER, member_epoch=7, subscribed_topic_names=(HERE,),
        topic_partitions=None,
    )  # fmt: skip
    yield Request(f"ConsumerGroupHeartbeat {group}", beat, k68.ConsumerGroupHeartbeatResponse, 1)
    described = k69.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=True
    )
    yield Request(f"ConsumerGroupDescribe {group}", described, k69.ConsumerGroupDescribeResponse, 1)
    yield from _on_shared(group, topic_id)


def _on_shared(group: str, topic_id: UUID) -> Iterator[Request]:
    part = k78.FetchPartition(partition_index=0, acknowledgement_batches=())
    row = k78.FetchTopic(topic_id=topic_id, partitions=(part,))
    fetch = k78.ShareFetchRequest(
        group_id=group, member_id=STRANGER, share_session_epoch=7, max_wait_ms=0, min_bytes=0,
        max_records=1, batch_size=1, topics=(row,),
    )  # fmt: skip
    yield Request(f"ShareFetch by the id of {group}", fetch, k78.ShareFetchResponse, 1)
    accepted = k79.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(1,))
    done = k79.AcknowledgePartition(partition_index=0, acknowledgement_batches=(accepted,))
    accept = k79.ShareAcknowledgeRequest(
        group_id=group, member_id=STRANGER, share_session_epoch=7,
        topics=(k79.AcknowledgeTopic(topic_id=topic_id, partitions=(done,)),),
    )  # fmt: skip
    yield Request(f"ShareAcknowledge by the id of {group}", accept, k79.ShareAcknowledgeResponse, 1)
