"""Members of groups with the clients in Python, each a process of its own.

    python -m suites.python_members confluent group BOOTSTRAP GROUP PROTOCOL TOPICS [NAME=VALUE ...]
    python -m suites.python_members confluent share BOOTSTRAP GROUP MODE TOPICS

What a member must do and print is said in group_members.py.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka
from confluent_kafka import AcknowledgeType

from headwater import Consumer, Producer
from headwater.errors import HeadwaterError

POLL_S = 0.1
RECORDS_MAX = 20
WAIT_S = 30.0
SESSION_MS = 10000
HEARTBEAT_MS = 500
SHARE_POLL_S = 1.0
"""A shorter one would end before the reply of its own fetch."""
HOLD_S = 8.0

_closing = threading.Event()
_telling = threading.Lock()


def _tell(text: str) -> None:
    with _telling:
        print(f"{time.time_ns() // 1_000_000} {text}", flush=True)


def _names(partitions: Sequence[confluent_kafka.TopicPartition]) -> str:
    return " ".join(sorted(f"{at.topic}:{at.partition}" for at in partitions))


# confluent-kafka (librdkafka).


def _confluent_settings(
    bootstrap: str, group: str, protocol: str, options: Mapping[str, str]
) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": 2000,
    }
    if "instance" in options:
        settings["group.instance.id"] = options["instance"]
    if protocol == "classic":
        settings["session.timeout.ms"] = SESSION_MS
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
    elif "assignor" in options:
        settings["group.remote.assignor"] = options["assignor"]
    return settings


def _confluent_group(
    bootstrap: str, group: str, protocol: str, topics: str, options: Mapping[str, str]
) -> None:
    consumer = confluent_kafka.Consumer(_confluent_settings(bootstrap, group, protocol, options))

    def telling(what: str) -> Callable[[object, Sequence[confluent_kafka.TopicPartition]], None]:
        return lambda _, partitions: _tell(f"{what} {_names(partitions)}") if partitions else None

    consumer.subscribe(
        topics.split(","),
        on_assign=telling("assigned"),
        on_revoke=telling("revoked"),
        on_lost=telling("lost"),
    )
    producer = None
    if "out" in options:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": options["id"]}
        )
        producer.init_transactions(WAIT_S)
    _tell("started")
    while not _closing.is_set():
        messages = [m for m in consumer.consume(RECORDS_MAX, POLL_S) if _is_record(m)]
        if not messages:
            continue
        if producer is not None:
            _confluent_copy(consumer, producer, messages, options["out"])
            continue
        for message in messages:
            where = f"{message.topic()} {message.partition()} {message.offset()}"
            _tell(f"record {where} {(message.value() or b'').decode()}")
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            _tell(f"refused {error.args[0].name()}")
    consumer.close()


def _is_record(message: confluent_kafka.Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.fatal():
        raise confluent_kafka.KafkaException(error)
    _tell(f"told {error.name()}")
    return False


def _confluent_copy(
    consumer: confluent_kafka.Consumer,
    producer: confluent_kafka.Producer,
    messages: Sequence[confluent_kafka.Message],
    out: str,
) -> None:
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(out, message.value())
        # Up to what is copied: the consumer may have been assigned others meanwhile.
        after: dict[tuple[str, int], int] = {}
        for message in messages:
            after[message.topic(), message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(*key, at) for key, at in after.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
    except confluent_kafka.KafkaException as error:
        if error.args[0].fatal():
            raise
        _tell(f"refused {error.args[0].name()}")
        producer.abort_transaction(WAIT_S)
        for at in consumer.committed(consumer.assignment(), WAIT_S):
            back = at.offset if at.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
            consumer.seek(confluent_kafka.TopicPartition(at.topic, at.partition, back))


def _confluent_share(bootstrap: str, group: str, mode: str, topics: str) -> None:
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
            "max.poll.records": 10,
        }
    )

    def told(
        offsets: Mapping[confluent_kafka.TopicPartition, set[int]],
        error: confluent_kafka.KafkaException | None,
    ) -> None:
        for at, numbers in offsets.items():
            for number in numbers:
                where = f"{at.topic} {at.partition} {number}"
                _tell(f"acked {where}" if error is None else f"refused {where} {error}")

    consumer.set_acknowledgement_commit_callback(told)
    consumer.subscribe(topics.split(","))
    _tell("started")
    while not _closing.is_set():
        for message in consumer.poll(SHARE_POLL_S):
            if not _is_record(message):
                continue
            value, deliveries = (message.value() or b"").decode(), message.delivery_count()
            where = f"{message.topic()} {message.partition()} {message.offset()}"
            _tell(f"record {where} {value} {deliveries}")
            if mode == "explicit":
                if value.startswith("hold") and deliveries == 1:
                    time.sleep(HOLD_S)
                consumer.acknowledge(message, _verdict(value, deliveries))
        consumer.commit_sync(WAIT_S)
    consumer.close()


def _verdict(value: str, deliveries: int) -> AcknowledgeType:
    word = value.partition("-")[0]
    if word == "poison" or (word == "release" and deliveries == 1):
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if word == "reject" else AcknowledgeType.ACCEPT


# Headwater's SDK.


def _sdk_group(
    bootstrap: str, group: str, protocol: str, topics: str, options: Mapping[str, str]
) -> None:
    names: dict[str, object] = {"group_instance_id": options.get("instance")}
    if protocol == "classic":
        names |= {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    else:
        names |= {"group_protocol": protocol}
        if "assignor" in options:
            names["group_remote_assignor"] = options["assignor"]
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=2000,
        **names,  # type: ignore[arg-type]
    )
    if topics.startswith("^"):
        consumer.subscribe(pattern=topics)
    else:
        consumer.subscribe(topics.split(","))
    producer = None
    if "out" in options:
        producer = Producer(bootstrap, transactional_id=options["id"])
    owned: set[str] = set()
    _tell("started")
    while not _closing.is_set():
        found = consumer.poll(POLL_S * 1000, RECORDS_MAX)
        now = {f"{at.topic}:{at.partition}" for at in consumer.assignment()}
        if owned - now:
            _tell(f"revoked {' '.join(sorted(owned - now))}")
        if now - owned:
            _tell(f"assigned {' '.join(sorted(now - owned))}")
        owned = now
        rows = list(itertools.chain.from_iterable(found.values()))
        if not rows:
            continue
        try:
            if producer is not None:
                with producer.transaction():
                    for row in rows:
                        producer.send(options["out"], row.value)
                    producer.send_offsets(None, consumer)
                continue
            for row in rows:
                text = (row.value or b"").decode()
                _tell(f"record {row.topic} {row.partition} {row.offset} {text}")
            consumer.commit()
        except HeadwaterError as error:
            _tell(f"refused {type(error).__name__}")
            if producer is None:
                continue
            if getattr(error, "remedy", "abort") == "close":
                raise
            for at, committed in consumer.committed(*consumer.assignment()).items():
                consumer.seek(at, max(committed.offset, 0))
    if producer is not None:
        producer.close()
    consumer.close()


def main(arguments: Sequence[str]) -> None:
    """Be a member until a byte, or the end, comes on standard input."""
    client, kind, *rest = arguments
    threading.Thread(target=_wait_for_the_end, name="told", daemon=True).start()
    if kind == "share":
        _confluent_share(*rest)
    else:
        options = dict(pair.split("=", 1) for pair in rest[4:])
        group = {"confluent": _confluent_group, "sdk": _sdk_group}[client]
        group(rest[0], rest[1], rest[2], rest[3], options)
    _tell("closed")


def _wait_for_the_end() -> None:
    sys.stdin.read(1)
    _closing.set()


if __name__ == "__main__":
    main(sys.argv[1:])
