"""Consume, transform, produce, exactly once, with confluent-kafka (librdkafka).

    python jobs/exactly_once/confluent_worker.py 127.0.0.1:9092 INPUT OUTPUT GROUP worker-0

Start as many workers as you like, each with a name of its own. A name is the member's
`group.instance.id`, so that a worker which is started again gets its partitions at once, and its
producer's `transactional.id`, so that it ends the transaction of the run before it. A record and
the offset behind it are in one transaction: both are committed, or neither.
"""

from __future__ import annotations

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer

RECORDS_PER_TRANSACTION = 200
WAIT_S = 60.0


def transformed(value: bytes) -> bytes:
    """The work."""
    return value.upper()


def rewind(consumer: Consumer) -> None:
    """After an abort: back to the group's offsets, as the consumer has read past them."""
    for at in consumer.committed(consumer.assignment(), WAIT_S):
        at.offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(at)


def work(bootstrap: str, source: str, output: str, group: str, name: str) -> None:
    """Until it is killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": name,
            "session.timeout.ms": 6_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-{name}"})
    producer.init_transactions(WAIT_S)
    consumer.subscribe([source])
    while True:
        records = [m for m in consumer.consume(RECORDS_PER_TRANSACTION, 0.2) if m.error() is None]
        if not records:
            continue
        producer.begin_transaction()
        try:
            for record in records:
                value = transformed(record.value())
                producer.produce(output, value, record.key(), partition=record.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                WAIT_S,
            )
            producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            # Otherwise another worker has this name, or nothing helps: this one ends.
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
            rewind(consumer)


if __name__ == "__main__":
    work(*sys.argv[1:])
