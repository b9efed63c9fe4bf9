"""Consume, transform, produce, exactly once, with aiokafka.

    python jobs/exactly_once/aiokafka_worker.py 127.0.0.1:9092 INPUT OUTPUT GROUP 0

aiokafka sends offsets without the member's generation, so that no coordinator can tell a worker
which has lost its partitions from the one that has them now. Therefore a worker is bound to one
partition (the last argument), and its transactional id is the partition's: a second worker for the
partition fences the first. A record and the offset behind it are in one transaction.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS_PER_TRANSACTION = 200


def transformed(value: bytes) -> bytes:
    """The work."""
    return value.upper()


async def work(bootstrap: str, source: str, output: str, group: str, partition: int) -> None:
    """Until it is killed. An error ends it: start it again, and it goes on where it was."""
    at = TopicPartition(source, partition)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"{group}-{source}-{partition}"
    )
    # The producer first: it ends the transaction of the run before, and with it the run's offsets.
    async with producer, consumer:
        consumer.assign([at])
        while True:
            records = (
                await consumer.getmany(at, timeout_ms=200, max_records=RECORDS_PER_TRANSACTION)
            ).get(at)
            if not records:
                continue
            async with producer.transaction():
                for record in records:
                    await producer.send(
                        output, transformed(record.value), record.key, partition=partition
                    )
                offsets = {at: records[-1].offset + 1}
                await producer.send_offsets_to_transaction(offsets, group)


if __name__ == "__main__":
    servers, read, written, members, number = sys.argv[1:]
    asyncio.run(work(servers, read, written, members, int(number)))
