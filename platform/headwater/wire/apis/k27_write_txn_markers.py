"""WriteTxnMarkers (API key 27), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class WritableTxnMarkerTopic(Struct):
    """Each topic that we want to write transaction marker(s) for."""

    name: str = wire("string", "0+")
    partition_indexes: tuple[int, ...] = wire("int32", "0+", array=True)
    topic_id: UUID = wire("uuid", "1+", tag=10000, tagged="1+", ignorable=True)
    """Headwater's own field: brokers name the topic's id, other senders leave it out."""


@wire_schema
class WritableTxnMarker(Struct):
    """The transaction markers to be written."""

    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    transaction_result: bool = wire("bool", "0+")
    topics: tuple[WritableTxnMarkerTopic, ...] = wire(WritableTxnMarkerTopic, "0+", array=True)
    coordinator_epoch: int = wire("int32", "0+")
    transaction_version: int = wire("int8", "2+", ignorable=True)


@wire_schema
class WriteTxnMarkersRequest(Message):
    """API key 27, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 27
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    markers: tuple[WritableTxnMarker, ...] = wire(WritableTxnMarker, "0+", array=True)
    broker_id: int = wire("int32", "1+", default=-1, tag=10000, tagged="1+", ignorable=True)
    """Headwater's own field: the broker of the coordinator; -1 from an operator's tool."""


@wire_schema
class WritableTxnMarkerPartitionResult(Struct):
    """The results by partition."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class WritableTxnMarkerTopicResult(Struct):
    """The results by topic."""

    name: str = wire("string", "0+")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire(
        WritableTxnMarkerPartitionResult, "0+", array=True
    )


@wire_schema
class WritableTxnMarkerResult(Struct):
    """The results for writing makers."""

    producer_id: int = wire("int64", "0+")
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire(
        WritableTxnMarkerTopicResult, "0+", array=True
    )


@wire_schema
class WriteTxnMarkersResponse(Message):
    """API key 27, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 27
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    markers: tuple[WritableTxnMarkerResult, ...] = wire(WritableTxnMarkerResult, "0+", array=True)
