"""Consume, transform, produce, exactly once, with Headwater's SDK.

    python jobs/exactly_once/sdk_worker.py 127.0.0.1:9092 INPUT OUTPUT GROUP worker-0

Start as many workers as you like, each with a name of its own. A name is the member's
`group_instance_id`, so that a worker which is started again gets its partitions at once, and its
producer's `transactional_id`, so that it ends the transaction of the run before it. A record and
the offset behind it are in one transaction: both are committed, or neither.
"""

from __future__ import annotations

import sys

from headwater import AbortableTransactionError, Consumer, Producer

POLL_MS = 200


def transformed(value: bytes) -> bytes:
    """The work."""
    return value.upper()


def rewind(consumer: Consumer) -> None:
    """After an abort: back to the group's offsets, as the consumer has read past them."""
    committed = consumer.committed()
    for at in consumer.assignment():
        if at in committed:
            consumer.seek(at, committed[at])
        else:
            consumer.seek_to_beginning(at)


def work(servers: str, source: str, output: str, group: str, name: str) -> None:
    """Until it is killed."""
    with (
        Consumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=name,
            session_timeout_ms=6_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
        Producer(servers, transactional_id=f"{group}-{name}") as producer,
    ):
        producer.init_transactions()
        while True:
            records = consumer.poll(POLL_MS)
            if not records:
                continue
            try:
                # Leaving the block commits; an error aborts.
                with producer.transaction():
                    for at, rows in records.items():
                        for row in rows:
                            value = transformed(row.value or b"")
                            producer.send(output, value, key=row.key, partition=at.partition)
                    producer.send_offsets(None, consumer)
            except AbortableTransactionError:
                rewind(consumer)


if __name__ == "__main__":
    work(*sys.argv[1:])
