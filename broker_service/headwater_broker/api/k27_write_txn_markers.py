"""WriteTxnMarkers: end transactions on the partitions that this broker leads (KIP-98, KIP-1228).

The coordinators of other brokers send it, and so does an operator who aborts a hanging transaction
(KIP-664, `kafka-transactions.sh abort`).
"""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.replica.marker_writer import TopicPartition, TransactionMarker

NO_BROKER = -1


@handles(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
async def write_txn_markers(
    ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Answer each marker once it is replicated. A broker needs CLUSTER_ACTION, an operator ALTER on
    the cluster."""
    is_broker = request.broker_id != NO_BROKER and may_on_cluster(ctx, Operation.CLUSTER_ACTION)
    may_write = (
        is_broker
        or may_on_cluster(ctx, Operation.ALTER)
        or may_on_cluster(ctx, Operation.CLUSTER_ACTION)
    )
    refusals: dict[int, ErrorCode] = {}
    for place, row in enumerate(request.markers):
        if not may_write:
            refusals[place] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif not is_broker and row.transaction_result:
            # Only a coordinator knows that every partition of a transaction may be committed.
            refusals[place] = ErrorCode.INVALID_REQUEST
    accepted = [place for place in range(len(request.markers)) if place not in refusals]
    written = await ctx.broker.markers.write([_marker(request.markers[p]) for p in accepted])
    outcomes: dict[int, dict[TopicPartition, ErrorCode]] = dict(zip(accepted, written, strict=True))
    return WriteTxnMarkersResponse(
        markers=tuple(
            _result(row, outcomes.get(place, {}), refusals.get(place))
            for place, row in enumerate(request.markers)
        )
    )


def _marker(row: WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        commit=row.transaction_result,
        coordinator_epoch=row.coordinator_epoch,
        transaction_version=row.transaction_version,
        partitions={
            (topic.name, index): topic.topic_id
            for topic in row.topics
            for index in topic.partition_indexes
        },
    )


def _result(
    row: WritableTxnMarker,
    outcome: dict[TopicPartition, ErrorCode],
    refusal: ErrorCode | None,
) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=row.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=outcome[topic.name, index] if refusal is None else refusal,
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in row.topics
        ),
    )
