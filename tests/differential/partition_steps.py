"""The requests that leaders of partitions answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from differential.session import Answer, Session, Step, Who, name_of
from headwater.records.batch import read_header
from headwater.records.builder import BatchBuilder
from headwater.records.record import read_records
from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k01_fetch as k01
from headwater.wire.apis import k02_list_offsets as k02
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k61_describe_producers as k61


@dataclass(frozen=True, kw_only=True)
class Write(Step):
    """Produce one batch of `count` records."""

    sequence: int = 0
    partition: int = 0
    who: Who = Who()
    tid: str | None = "t"
    version: int = 11
    transactional: bool = True
    count: int = 1
    value: str = "v"

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        builder = BatchBuilder()
        for number in range(self.count):
            value = f"{self.value}{self.sequence + number}"
            builder.append(time.time_ns() // 1_000_000, None, value.encode())
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        data = k00.PartitionProduceData(index=self.partition, records=bytes(batch))
        request = k00.ProduceRequest(
            transactional_id=None if self.tid is None else session.transactional_id(self.tid),
            acks=-1,
            timeout_ms=10_000,
            topic_data=(k00.TopicProduceData(name=session.topic, partition_data=(data,)),),
        )
        reply = session.exchange.ask(request, k00.ProduceResponse, self.version)
        row = reply.responses[0].partition_responses[0]
        return {"error": name_of(row.error_code), "offset": row.base_offset}


@dataclass(frozen=True, kw_only=True)
class Mark(Step):
    """WriteTxnMarkers as a foreign administrator sends it."""

    commit: bool = False
    who: Who = Who()
    coordinator_epoch: int = 0
    partition: int = 0
    version: int = 1
    transaction_version: int = 0

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        topic = k27.WritableTxnMarkerTopic(name=session.topic, partition_indexes=(self.partition,))
        marker = k27.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=self.commit,
            topics=(topic,),
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.transaction_version,
        )
        request = k27.WriteTxnMarkersRequest(markers=(marker,))
        reply = session.exchange.ask(request, k27.WriteTxnMarkersResponse, self.version)
        return [
            name_of(row.error_code)
            for marker in reply.markers
            for topic in marker.topics
            for row in topic.partitions
        ]


@dataclass(frozen=True, kw_only=True)
class Producers(Step):
    """DescribeProducers of one partition."""

    partition: int = 0

    def ask(self, session: Session) -> Answer:
        topic = k61.TopicRequest(name=session.topic, partition_indexes=(self.partition,))
        request = k61.DescribeProducersRequest(topics=(topic,))
        reply = session.exchange.ask(request, k61.DescribeProducersResponse, 0)
        row = reply.topics[0].partitions[0]
        return {
            "error": name_of(row.error_code),
            "active": [
                {
                    "producer": session.symbol(p.producer_id),
                    "epoch": p.producer_epoch,
                    "sequence": p.last_sequence,
                    "timestamp": p.last_timestamp > 0,
                    "marked": p.coordinator_epoch >= 0,
                    "began": p.current_txn_start_offset,
                }
                for p in sorted(row.active_producers, key=lambda p: p.producer_id)
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Read(Step):
    """Fetch from an offset: values, LSO and aborted transactions."""

    committed: bool = True
    offset: int = 0
    version: int = 11
    partition: int = 0

    def ask(self, session: Session) -> Answer:
        partition = k01.FetchPartition(
            partition=self.partition, fetch_offset=self.offset, partition_max_bytes=1 << 20
        )
        request = k01.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1 if self.committed else 0,
            topics=(k01.FetchTopic(topic=session.topic, partitions=(partition,)),),
        )
        reply = session.exchange.ask(request, k01.FetchResponse, self.version)
        row = reply.responses[0].partitions[0]
        aborted = row.aborted_transactions
        return {
            "error": name_of(row.error_code),
            "high watermark": row.high_watermark,
            "stable": row.last_stable_offset,
            "aborted": None
            if aborted is None
            else [f"{session.symbol(a.producer_id)} from {a.first_offset}" for a in aborted],
            "records": _shown(bytes(row.records or b""), session),
        }


def _shown(data: bytes, session: Session) -> list[str]:
    """Each record as `offset value`; of a marker, its kind, producer and epoch."""
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        part = data[at : at + header.size_bytes]
        at += header.size_bytes
        if header.is_control:
            kind = "commit" if _commits(part) else "abort"
            found.append(
                f"{header.base_offset} {kind} of {session.symbol(header.producer_id)}"
                f"/{header.producer_epoch}"
            )
        else:
            found += [f"{r.offset} {bytes(r.value or b'').decode()}" for r in read_records(part)]
    return found


def _commits(marker: bytes) -> bool:
    """Whether a control batch is a commit marker: its key is a version and a type."""
    (record,) = read_records(marker, with_control=True)
    return int.from_bytes(bytes(record.key or b"")[2:4], "big") == 1


@dataclass(frozen=True, kw_only=True)
class Stable(Step):
    """ListOffsets at the end, for read_committed: the LSO."""

    version: int = 6
    timestamp: int = -1

    def ask(self, session: Session) -> Answer:
        partition = k02.ListOffsetsPartition(partition_index=0, timestamp=self.timestamp)
        request = k02.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1,
            topics=(k02.ListOffsetsTopic(name=session.topic, partitions=(partition,)),),
        )
        reply = session.exchange.ask(request, k02.ListOffsetsResponse, self.version)
        row = reply.topics[0].partitions[0]
        return {"error": name_of(row.error_code), "offset": row.offset}
