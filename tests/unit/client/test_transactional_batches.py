"""RecordClient's transactional batches: the bit in the batch, the id in the request."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.client.blocking.record_client import RecordClient
from headwater.columnar.encode import encode_rows
from headwater.errors import KafkaError
from headwater.records.batch import read_header
from headwater.wire.apis.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.wire.apis.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Leader:
    """A connection to the one broker, which leads t-0 and serves Produce up to `version`."""

    def __init__(self, version: int) -> None:
        self.host, self.port, self.is_open = "host", 9092, True
        self._version = version
        self.produced: list[ProduceRequest] = []

    def version_for(self, _request: object, cap: int) -> int:
        return min(cap, self._version)

    def call(self, request: Any, _reply: object, **_more: object) -> Any:
        if isinstance(request, ProduceRequest):
            self.produced.append(request)
            row = PartitionProduceResponse(index=0, error_code=0, base_offset=17)
            return ProduceResponse(
                responses=(TopicProduceResponse(name="t", partition_responses=(row,)),)
            )
        broker = MetadataResponseBroker(node_id=1, host="host", port=9092)
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
        )
        topic = MetadataResponseTopic(name="t", partitions=(partition,))
        return MetadataResponse(brokers=(broker,), controller_id=1, topics=(topic,))

    def close(self) -> None:
        self.is_open = False


def client_of(leader: Leader) -> RecordClient:
    return RecordClient("host:9092", connect=lambda *_a, **_k: leader)


def transactional_batch() -> memoryview:
    [batch] = encode_rows(
        key=None, value=pa.array([b"v"]), timestamps_ms=5,
        producer_id=900, producer_epoch=4, base_sequence=0, transactional=True,
    )  # fmt: skip
    return batch.data


def test_the_leader_gets_the_batch_with_its_transactional_id() -> None:
    leader = Leader(13)
    offset = client_of(leader).produce_batch(
        "t", 0, transactional_batch(), transactional_id="__hw.sink.2"
    )
    assert offset == 17
    [request] = leader.produced
    assert request.transactional_id == "__hw.sink.2"
    header = read_header(request.topic_data[0].partition_data[0].records)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (900, 4, 0)


def test_a_leader_that_does_not_enlist_is_refused() -> None:
    leader = Leader(11)
    with pytest.raises(KafkaError, match="does not enlist partitions"):
        client_of(leader).produce_batch("t", 0, transactional_batch(), transactional_id="id")
    assert not leader.produced
    assert client_of(leader).produce_batch("t", 0, transactional_batch()) == 17
