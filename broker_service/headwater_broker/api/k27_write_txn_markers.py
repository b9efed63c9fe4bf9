"""WriteTxnMarkers: end transactions on the partitions that this broker leads (KIP-98, KIP-1228).

The coordinators of other brokers send it, and so does an operator who aborts a hanging transaction
(KIP-664, `kafka-transactions.sh abort`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import ErrorCode, KafkaError
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
    is_late = is_broker and ctx.broker.markers.is_late(request.broker_id, ctx.session.number)
    refusals: dict[int, ErrorCode] = {}
    for place, row in enumerate(request.markers):
        if not may_write:
            refusals[place] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif is_late:
            refusals[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not is_broker and row.transaction_result:
            # Only a coordinator knows that every partition of a transaction may be committed.
            refusals[place] = ErrorCode.INVALID_REQUEST
    accepted = [place for place in range(len(request.markers)) if place not in refusals]
    markers = [_marker(request.markers[place]) for place in accepted]
    claimed = [] if is_broker else await _claimed(ctx, markers)
    kept = markers if is_broker else list(map(_without, markers, claimed))
    written = await ctx.broker.markers.write(kept)
    outcomes: dict[int, Mapping[TopicPartition, ErrorCode]] = dict(
        zip(accepted, written, strict=True)
    )
    for place, codes in zip(accepted, claimed, strict=False):
        outcomes[place] = {**outcomes[place], **codes}
    return WriteTxnMarkersResponse(
        markers=tuple(
            _result(row, outcomes.get(place, {}), refusals.get(place))
            for place, row in enumerate(request.markers)
        )
    )


async def _claimed(
    ctx: RequestContext, markers: list[TransactionMarker]
) -> list[Mapping[TopicPartition, ErrorCode]]:
    """Of each marker the partitions that an operator may not end, with the reason: a coordinator
    will, and may commit the others; or a coordinator that may know the producer does not answer."""
    found: list[Mapping[TopicPartition, ErrorCode]] = []
    for marker in markers:
        try:
            claimed = await ctx.broker.claimed_partitions(marker.producer_id)
        except KafkaError as error:
            found.append(dict.fromkeys(marker.partitions, error.code))
            continue
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        found.append({p: fenced for p in marker.partitions if p in claimed})
    return found


def _without(
    marker: TransactionMarker, refused: Mapping[TopicPartition, ErrorCode]
) -> TransactionMarker:
    kept = {p: topic_id for p, topic_id in marker.partitions.items() if p not in refused}
    return marker._replace(partitions=kept)


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
    outcome: Mapping[TopicPartition, ErrorCode],
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
