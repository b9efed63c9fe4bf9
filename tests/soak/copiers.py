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

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from soak.consumers import CONFLUENT_SETTINGS, GROUP_SESSION_MS, HEARTBEAT_MS
from soak.history import COPIED_FROM, History, decode, encode
from soak.pulse import Pulse, StoodStillError, closing, with_pulse
from soak.transactional_writers import (
    CALL_S,
    LIFE_S,
    RESTART_S,
    AbortError,
    InstanceError,
    confluent_producer,
    raised,
    settled,
)

GROUP = "copiers"
BATCH_MAX = 200
POLL_S = 0.2
COPY = "copy"

logger = logging.getLogger(__name__)


class Copier(threading.Thread):
    """One member of the group, with a transactional id of its own (KIP-447)."""

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
        self.pulses = [Pulse(set())]
        """The pulses of the main threads of its producer and its consumer."""

    def has_stopped(self) -> bool:
        """Whether one of the two clients stands still, for good."""
        return any(pulse.has_stopped() for pulse in self.pulses)

    def stood_still(self) -> None:
        """Record that the client itself stands still."""
        self.history.add("stood_still", c=self.name)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._live()
            except StoodStillError:
                self.stood_still()
            except (InstanceError, KafkaException) as error:
                logger.warning("%s begins again: %s", self.name, error)
                self.stopping.wait(RESTART_S)

    def _live(self) -> None:
        producer, producing = with_pulse(lambda: confluent_producer(self.bootstrap, self.name))
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

        def revoked(*_: object) -> None:
            self._is_revoked = True

        with closing(consumer):
            consumer.subscribe([self.source], on_revoke=revoked, on_lost=revoked)
            end = time.monotonic() + self._random.uniform(*LIFE_S)
            while not self.stopping.is_set():
                self._is_revoked = False
                messages = [m for m in consumer.consume(BATCH_MAX, POLL_S) if m.error() is None]
                consuming.check()
                if self._is_revoked:
                    # They may be of the assignment before or of the one after.
                    self._rewind(consumer)
                elif messages:
                    leaves = time.monotonic() > end
                    self._one(producer, consumer, messages, leaves=leaves)
                    if leaves:
                        break
        producer.purge()

    def _one(
        self,
        producer: object,
        consumer: ConfluentConsumer,
        messages: list[Message],
        *,
        leaves: bool,
    ) -> None:
        self._number += 1
        transaction = f"{self.name}:{self._number}"
        how = "unknown"
        try:
            how = self._copy(transaction, producer, consumer, messages, leaves=leaves)
        finally:
            self.history.add("end", c=self.name, x=transaction, how=how)
        if how == "abort":
            self._rewind(consumer)

    def _copy(
        self,
        transaction: str,
        producer: object,
        consumer: ConfluentConsumer,
        messages: list[Message],
        *,
        leaves: bool,
    ) -> str:
        assert hasattr(producer, "begin_transaction")
        settled(self.stopping, producer.begin_transaction)
        try:
            places: dict[int, int] = {}
            for message in messages:
                partition, offset = message.partition(), message.offset()
                identity = f"{COPY}:{partition}:{decode(message.value())}"
                place = COPIED_FROM + partition
                self.history.add("send", c=self.name, p=place, v=identity, x=transaction)
                producer.produce(self.target, encode(identity), partition=partition)
                places[partition] = offset + 1
            if leaves:
                return "unknown"
            offsets = [ConfluentPartition(self.source, p, o) for p, o in places.items()]
            metadata = consumer.consumer_group_metadata()
            settled(
                self.stopping,
                lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_S),
            )
            settled(self.stopping, lambda: producer.commit_transaction(CALL_S))
            return "commit"
        except KafkaException as error:
            if isinstance(cause := raised(error), InstanceError):
                raise cause from error
        except AbortError:
            pass
        settled(self.stopping, lambda: producer.abort_transaction(CALL_S))
        return "abort"

    def _rewind(self, consumer: ConfluentConsumer) -> None:
        """Go back to the committed offsets of the partitions that this member has."""
        for place in consumer.committed(consumer.assignment(), timeout=CALL_S):
            start = place.offset if place.offset >= 0 else 0
            consumer.seek(ConfluentPartition(place.topic, place.partition, start))
