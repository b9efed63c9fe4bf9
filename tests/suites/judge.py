"""What a topic and a group hold, as librdkafka sees them: the judge of every suite's output."""

from __future__ import annotations

import time
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"
WAIT_S = 60.0
BATCH = 10_000


class Row(NamedTuple):
    """One record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes


class Reader:
    """Reads a topic from its beginning, as far as it is readable; `rows` grows."""

    def __init__(self, bootstrap: str, topic: str, isolation: str = COMMITTED) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        partitions = _partitions(self._consumer, topic)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        self.rows: list[Row] = []
        self.ends: dict[int, int] = dict.fromkeys(partitions, 0)
        """Up to where each partition was readable when it was last read to its end."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_error: object) -> None:
        self._consumer.close()

    def advance(self, timeout_s: float = 0.2) -> int:
        """Read what has come; the number of rows so far."""
        for message in self._consumer.consume(BATCH, timeout_s):
            error = message.error()
            if error is None:
                value = message.value() or b""
                row = Row(message.partition(), message.offset(), message.key(), value)
                self.rows.append(row)
            elif error.code() == KafkaError._PARTITION_EOF:
                # It comes at the last stable offset, too, and again when that has moved.
                self.ends[message.partition()] = message.offset()
            elif not error.retriable():
                raise confluent_kafka.KafkaException(error)
        return len(self.rows)


def rows(
    bootstrap: str, topic: str, isolation: str = COMMITTED, wait_s: float = WAIT_S
) -> list[Row]:
    """All records of a topic, to the high watermarks of this moment.

    Raises TimeoutError when an open transaction keeps a reader of committed records from them.
    """
    ends = watermarks(bootstrap, topic)
    with Reader(bootstrap, topic, isolation) as reader:
        deadline = time.monotonic() + wait_s
        while any(reader.ends[p] < end for p, end in ends.items()):
            reader.advance()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: read to {reader.ends} of {ends} in {wait_s} s")
        return sorted(reader.rows)


def values(bootstrap: str, topic: str, isolation: str = COMMITTED) -> list[str]:
    """The values of a topic's records, by partition and offset."""
    return [row.value.decode() for row in rows(bootstrap, topic, isolation)]


def watermarks(bootstrap: str, topic: str, isolation: str = UNCOMMITTED) -> dict[int, int]:
    """Each partition's high watermark; its last stable offset for a reader of committed records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": isolation}
    consumer = confluent_kafka.Consumer(settings)
    try:
        partitions = _partitions(consumer, topic)
        ends = {}
        for partition in partitions:
            at = TopicPartition(topic, partition)
            ends[partition] = int(consumer.get_watermark_offsets(at, WAIT_S)[1])
        return ends
    finally:
        consumer.close()


def is_stable(bootstrap: str, topic: str) -> bool:
    """Whether no open transaction holds a reader of committed records back."""
    ends = watermarks(bootstrap, topic)
    return watermarks(bootstrap, topic, COMMITTED) == ends


def committed_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The group's stable offsets by partition; negative without one."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": COMMITTED}
    consumer = confluent_kafka.Consumer(settings)
    try:
        partitions = _partitions(consumer, topic)
        asked = [TopicPartition(topic, p) for p in partitions]
        return {at.partition: int(at.offset) for at in consumer.committed(asked, WAIT_S)}
    finally:
        consumer.close()


def _partitions(consumer: confluent_kafka.Consumer, topic: str) -> list[int]:
    """A topic's partitions; waits for a topic that not every broker has heard of yet."""
    deadline = time.monotonic() + WAIT_S
    while not (found := sorted(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: has no partitions after {WAIT_S} s")
        time.sleep(0.1)
    return found
