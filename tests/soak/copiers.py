"""Consume, transform, produce: copiers of the recorded workload, librdkafka's and the SDK's.

Members of one group copy each partition of the transacted topic into the same partition of another,
and commit the group's offsets in the transaction of the copies. Members leave and come back, some
with a transaction open.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from headwater import Consumer, ConsumerRecord, Producer, TopicPartition
from headwater.errors import HeadwaterError
from soak.consumers import CONFLUENT_SETTINGS, GROUP_SESSION_MS, HEARTBEAT_MS, SDK_SETTINGS
from soak.history import COPIED_FROM, History, decode, encode
from soak.overdue import OverdueError, Statistics, UnansweredError, in_time
from soak.pulse import MAIN_THREAD_STOPPED, Pulse, StoodStillError, closing, with_pulse
from soak.transactional_writers import (
    CALL_S,
    LIFE_S,
    RESTART_S,
    AbortError,
    InstanceError,
    confluent_producer,
    leave,
    raised,
    sdk_producer,
    sdk_settled,
    settled,
)

GROUP = "copiers"
BATCH_MAX = 200
POLL_S = 0.2
COPY = "copy"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Transaction:
    """One transaction, and how it ended."""

    name: str
    how: str = "unknown"


class Copier(threading.Thread):
    """One member of the group, with a transactional id of its own (KIP-447). `_live` runs once per
    start of its clients."""

    def __init__(
        self, name: str, bootstrap: str, source: str, target: str, history: History, seed: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.source, self.target = bootstrap, source, target
        self.history = history
        self.stopping = threading.Event()
        self._random = random.Random(seed)
        self._number = 0
        self._is_revoked = False
        self.pulses: list[Pulse] = []
        """The pulses of librdkafka's main threads, if there are some."""

    def has_stopped(self) -> bool:
        """Whether one of the two clients stands still, for good."""
        return any(pulse.has_stopped() for pulse in self.pulses)

    def stood_still(self, why: str = MAIN_THREAD_STOPPED) -> None:
        """Record that the client itself stands still."""
        self.history.add("stood_still", c=self.name, why=why)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._live()
            except StoodStillError:
                self.stood_still()
            except OverdueError as error:
                self.stood_still(str(error))
            except UnansweredError as error:
                self.history.add("stuck", why=f"{self.name}: {error}")
            except (AbortError, InstanceError, KafkaException, HeadwaterError) as error:
                logger.warning("%s begins again: %s", self.name, error)
                self.stopping.wait(RESTART_S)

    def _live(self) -> None:
        raise NotImplementedError

    def _revoked(self, *_: object) -> None:
        self._is_revoked = True

    def _until(self) -> float:
        return time.monotonic() + self._random.uniform(*LIFE_S)

    @contextmanager
    def _transaction(self) -> Iterator[_Transaction]:
        """Record how a transaction ends: unknown unless its `how` is set."""
        self._number += 1
        transaction = _Transaction(f"{self.name}:{self._number}")
        try:
            yield transaction
        finally:
            self.history.add("end", c=self.name, x=transaction.name, how=transaction.how)

    def _copied(self, transaction: _Transaction, partition: int, value: bytes | None) -> str:
        """Record that the copy of a value is about to be sent; the copy's identity."""
        identity = f"{COPY}:{partition}:{decode(value)}"
        place = COPIED_FROM + partition
        self.history.add("send", c=self.name, p=place, v=identity, x=transaction.name)
        return identity


class ConfluentCopier(Copier):
    """librdkafka's producer and consumer."""

    def _live(self) -> None:
        statistics = Statistics()
        producer, producing = with_pulse(
            lambda: confluent_producer(self.bootstrap, self.name, statistics.settings)
        )
        self.pulses = [producing]
        settled(self.stopping, lambda: producer.init_transactions(CALL_S))
        settings = CONFLUENT_SETTINGS | {
            "bootstrap.servers": self.bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": GROUP_SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
        consumer, consuming = with_pulse(lambda: ConfluentConsumer(settings))
        self.pulses.append(consuming)

        with closing(consumer):
            consumer.subscribe([self.source], on_revoke=self._revoked, on_lost=self._revoked)
            end = self._until()
            while not self.stopping.is_set():
                self._is_revoked = False
                messages = [m for m in consumer.consume(BATCH_MAX, POLL_S) if m.error() is None]
                consuming.check()
                if self._is_revoked:
                    # They may be of the assignment before or of the one after.
                    self._rewind(consumer)
                elif messages:
                    leaves = time.monotonic() > end
                    self._one(producer, consumer, messages, statistics, leaves=leaves)
                    if leaves:
                        break
        producer.purge()

    def _one(
        self,
        producer: ConfluentProducer,
        consumer: ConfluentConsumer,
        messages: list[Message],
        statistics: Statistics,
        *,
        leaves: bool,
    ) -> None:
        with self._transaction() as transaction:
            settled(self.stopping, producer.begin_transaction)
            try:
                places = self._send(transaction, producer, messages)
                if leaves:
                    return
                offsets = [ConfluentPartition(self.source, p, o) for p, o in places.items()]
                metadata = consumer.consumer_group_metadata()

                def send_offsets() -> None:
                    producer.send_offsets_to_transaction(offsets, metadata, CALL_S)

                settled(
                    self.stopping,
                    lambda: in_time(send_offsets, CALL_S, statistics, lambda: producer.poll(0)),
                )
                settled(self.stopping, lambda: producer.commit_transaction(CALL_S))
                transaction.how = "commit"
                return
            except KafkaException as error:
                if isinstance(cause := raised(error), InstanceError):
                    raise cause from error
            except AbortError:
                pass
            settled(self.stopping, lambda: producer.abort_transaction(CALL_S))
            transaction.how = "abort"
        self._rewind(consumer)

    def _send(
        self, transaction: _Transaction, producer: ConfluentProducer, messages: list[Message]
    ) -> dict[int, int]:
        """Send the copies; the offsets to commit with them, by partition."""
        places: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            identity = self._copied(transaction, partition, message.value())
            producer.produce(self.target, encode(identity), partition=partition)
            places[partition] = offset + 1
        return places

    def _rewind(self, consumer: ConfluentConsumer) -> None:
        """Go back to the committed offsets of the partitions that this member has."""
        for place in consumer.committed(consumer.assignment(), timeout=CALL_S):
            start = place.offset if place.offset >= 0 else 0
            consumer.seek(ConfluentPartition(place.topic, place.partition, start))


class SdkCopier(Copier):
    """The SDK's producer and consumer."""

    def _live(self) -> None:
        producer = sdk_producer(self.bootstrap, self.name)
        try:
            sdk_settled(producer.init_transactions)
            settings = SDK_SETTINGS | {
                "auto_offset_reset": "earliest",
                "group_id": GROUP,
                "isolation_level": "read_committed",
                "max_poll_records": BATCH_MAX,
                "session_timeout_ms": GROUP_SESSION_MS,
                "heartbeat_interval_ms": HEARTBEAT_MS,
            }
            with Consumer(bootstrap_servers=self.bootstrap, **settings) as consumer:
                consumer.subscribe(self.source, on_revoke=self._revoked)
                self._copy_until(self._until(), producer, consumer)
        finally:
            leave(producer)

    def _copy_until(self, end: float, producer: Producer, consumer: Consumer) -> None:
        while not self.stopping.is_set():
            self._is_revoked = False
            polled = consumer.poll(POLL_S * 1000)
            records = [record for rows in polled.values() for record in rows]
            if self._is_revoked:
                # They may be of the assignment before or of the one after.
                self._rewind(consumer)
            elif records:
                leaves = time.monotonic() > end
                self._one(producer, consumer, records, leaves=leaves)
                if leaves:
                    return

    def _one(
        self,
        producer: Producer,
        consumer: Consumer,
        records: list[ConsumerRecord],
        *,
        leaves: bool,
    ) -> None:
        with self._transaction() as transaction:
            sdk_settled(producer.begin_transaction)
            try:
                places: dict[TopicPartition, int] = {}
                for record in records:
                    self._send(transaction, producer, record)
                    places[TopicPartition(self.source, record.partition)] = record.offset + 1
                if leaves:
                    return
                metadata = consumer.group_metadata()
                sdk_settled(lambda: producer.send_offsets(places, metadata, CALL_S * 1000))
                sdk_settled(lambda: producer.commit_transaction(CALL_S * 1000))
                transaction.how = "commit"
                return
            except AbortError:
                pass
            sdk_settled(lambda: producer.abort_transaction(CALL_S * 1000))
            transaction.how = "abort"
        self._rewind(consumer)

    def _send(self, transaction: _Transaction, producer: Producer, record: ConsumerRecord) -> None:
        partition = record.partition
        value = encode(self._copied(transaction, partition, record.value))
        sdk_settled(lambda: producer.send(self.target, value, partition=partition))

    def _rewind(self, consumer: Consumer) -> None:
        """Go back to the committed offsets of the partitions that this member has."""
        committed = consumer.committed()
        for place in consumer.assignment():
            consumer.seek(place, committed.get(place, 0))
