"""OffsetsAtBytes: byte limits as offsets, for the Spark source's `maxBytesPerTrigger`."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10010_offsets_at_bytes import (
    OffsetAtBytesPartition,
    OffsetAtBytesResult,
    OffsetsAtBytesRequest,
    OffsetsAtBytesResponse,
)
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(OffsetsAtBytesRequest, OffsetsAtBytesResponse)
def offsets_at_bytes(ctx: RequestContext, request: OffsetsAtBytesRequest) -> OffsetsAtBytesResponse:
    """Read on each topic, as for Fetch; the right comes before the topic's existence."""
    return OffsetsAtBytesResponse(partitions=tuple(_result(ctx, row) for row in request.partitions))


def _result(ctx: RequestContext, row: OffsetAtBytesPartition) -> OffsetAtBytesResult:
    code, end = ErrorCode.NONE, -1
    try:
        if not may_on_topic(ctx, Operation.READ, row.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, row.topic)
        partition = ctx.broker.replicas.leader(row.topic, row.partition)
        at = partition.log.offset_at_bytes(row.start_offset, row.max_bytes)
        end = min(at, partition.last_stable_offset)
    except KafkaError as error:
        code = error.code
    return OffsetAtBytesResult(
        topic=row.topic, partition=row.partition, error_code=code, end_offset=end
    )
