"""Every API of the protocol we carry: which response answers which request.

The client picks versions from it, the tests walk it. The broker's own list of what it *serves* is
`headwater_broker.api.registry`, so that ApiVersions cannot promise what is only spelled here.
"""

from __future__ import annotations

from headwater.wire.apis.k00_produce import ProduceRequest, ProduceResponse
from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse
from headwater.wire.apis.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headwater.wire.apis.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headwater.wire.apis.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.apis.k11_join_group import JoinGroupRequest, JoinGroupResponse
from headwater.wire.apis.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.wire.apis.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.apis.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headwater.wire.apis.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from headwater.wire.apis.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headwater.wire.apis.k21_delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from headwater.wire.apis.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.apis.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.wire.apis.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headwater.wire.apis.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from headwater.wire.apis.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from headwater.wire.apis.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from headwater.wire.apis.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from headwater.wire.apis.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headwater.wire.apis.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from headwater.wire.apis.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headwater.wire.apis.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headwater.wire.apis.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from headwater.wire.apis.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater.wire.apis.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import Message, decode, decoder, encoder

RESPONSE_OF: dict[type[Message], type[Message]] = {
    ProduceRequest: ProduceResponse,
    FetchRequest: FetchResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    MetadataRequest: MetadataResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    JoinGroupRequest: JoinGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    ListGroupsRequest: ListGroupsResponse,
    ApiVersionsRequest: ApiVersionsResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    DeleteRecordsRequest: DeleteRecordsResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    EndTxnRequest: EndTxnResponse,
    WriteTxnMarkersRequest: WriteTxnMarkersResponse,
    TxnOffsetCommitRequest: TxnOffsetCommitResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    AlterConfigsRequest: AlterConfigsResponse,
    AlterReplicaLogDirsRequest: AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest: DescribeLogDirsResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    DescribeClusterRequest: DescribeClusterResponse,
    DescribeProducersRequest: DescribeProducersResponse,
    DescribeTransactionsRequest: DescribeTransactionsResponse,
    ListTransactionsRequest: ListTransactionsResponse,
    DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse,
}
"""Request class -> response class, one row per API."""

REQUEST_OF_KEY: dict[int, type[Message]] = {cls.api_key: cls for cls in RESPONSE_OF}
"""API key -> request class."""

API_VERSIONS_KEY = 18


def request_header_version(cls: type[Message], version: int) -> int:
    """Header 2 goes with flexible bodies (KIP-482)."""
    return 2 if version >= cls.flexible else 1


def response_header_version(cls: type[Message], version: int) -> int:
    """Header 1 goes with flexible bodies, but ApiVersions is always answered with 0 (KIP-511)."""
    return 1 if version >= cls.flexible and cls.api_key != API_VERSIONS_KEY else 0


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Header and body of `request`, without the length prefix."""
    cls = type(request)
    header = RequestHeader(
        request_api_key=cls.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    head = encoder(RequestHeader, request_header_version(cls, version))(header)
    return head + encoder(cls, version)(request)


def decode_response(
    cls: type[Message], version: int, reply: memoryview | bytes, correlation_id: int
) -> Message:
    """The body of a reply (header and body) to a request of class `cls`. Raises SchemaError.

    Raises ValueError when the reply answers another request.
    """
    response_cls = RESPONSE_OF[cls]
    header, at = decoder(ResponseHeader, response_header_version(cls, version))(reply)
    if header.correlation_id != correlation_id:
        raise ValueError(
            f"reply to request {header.correlation_id} where {correlation_id} was expected"
        )
    return decode(response_cls, version, memoryview(reply)[at:])
