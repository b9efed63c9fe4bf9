"""Produce requests: batches to their bytes, a request for one node, the response by partition."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.client.core.partition_queue import ProducerBatch
from headwater.client.producer_options import ProducerOptions
from headwater.records.batch import AT_ATTRIBUTES, TRANSACTIONAL_MASK
from headwater.records.builder import build_single, stamp_producer
from headwater.records.compression import Compression
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.framing import encode_request, encode_request_parts
from headwater.wire.schema import BLOB_BYTES

NAMES_PRODUCE_VERSION = 12
"""The last Produce version with topic names; later ones have topic ids (KIP-516)."""
V1_TRANSACTION_PRODUCE_VERSION = 11
"""The last Produce version of transactions whose partitions the producer adds; from the next one on
the leader adds them (KIP-890)."""


def built_batch(batch: ProducerBatch, compression: Compression, level: int | None) -> bytearray:
    """The batch's bytes with its current producer id, epoch and sequence."""
    if batch.data is None:
        columns = batch.columns
        assert columns is not None
        if batch.count == 1 and compression is Compression.NONE and not columns.headers:
            batch.data = build_single(
                *columns.single(),
                batch.producer_id,
                batch.producer_epoch,
                base_sequence=batch.sequence,
                transactional=batch.queue.is_transactional,
            )
            batch.columns = None
            return batch.data
        batch.data = columns.builder().build(
            compression=compression,
            level=level,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.sequence,
            transactional=batch.queue.is_transactional,
        )
        batch.columns = None
    elif batch.queue.is_idempotent:
        if batch.queue.is_transactional:
            batch.data[AT_ATTRIBUTES + 1] |= TRANSACTIONAL_MASK
        stamp_producer(batch.data, batch.producer_id, batch.producer_epoch, batch.sequence)
    return batch.data


def produce_request(
    batches: list[ProducerBatch],
    options: ProducerOptions,
    compression: Compression,
    topic_ids: Mapping[str, UUID],
) -> ProduceRequest:
    """One request with these batches, at most one per partition."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        data = built_batch(batch, compression, options.compression_level)
        row = PartitionProduceData(index=batch.queue.partition, records=memoryview(data))
        topics.setdefault(batch.queue.topic, []).append(row)
    return ProduceRequest(
        transactional_id=options.transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, topic_id=topic_ids[name], partition_data=tuple(rows))
            for name, rows in topics.items()
        ),
    )


def responses_by_partition(
    response: ProduceResponse, names: Mapping[UUID, str]
) -> dict[tuple[str, int], PartitionProduceResponse]:
    """(topic, partition) -> its part of the response; `names` resolves topic ids."""
    return {
        (topic.name or names.get(topic.topic_id, ""), row.index): row
        for topic in response.responses
        for row in topic.partition_responses
    }


def request_parts(
    request: ProduceRequest, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | bytearray | memoryview]:
    """The encoded request; large batches are parts of their own, which are not copied."""
    sizes = (
        len(row.records or b"") for topic in request.topic_data for row in topic.partition_data
    )
    encode = encode_request_parts if max(sizes) >= BLOB_BYTES else _whole
    return encode(request, version, correlation_id, client_id)


def _whole(
    request: ProduceRequest, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | bytearray | memoryview]:
    return [encode_request(request, version, correlation_id, client_id)]
