"""Transactional producers of the recorded workload, librdkafka's and the SDK's.

Each transaction writes to several partitions and is committed or aborted; a producer that was
fenced or failed is replaced by another instance with the same transactional id.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from headwater import Producer
from headwater.client.futures import SendFuture
from headwater.errors import HeadwaterError
from integration.workload import PRODUCER_SETTINGS
from soak.history import TRANSACTED_FROM, History, encode
from soak.producers import LOG_LEVEL, REQUEST_TIMEOUT_MS, is_wrong

TRANSACTION_TIMEOUT_MS = 20_000
CALL_S = 15.0
SENDS_MAX = 8
ABORTED = 0.2
PAUSE_S = 0.02
RESTART_S = 0.5
LIFE_S = (20.0, 60.0)
"""After this time an instance is left with its transaction open, and another one takes over."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})

logger = logging.getLogger(__name__)


class AbortError(Exception):
    """The transaction can only be aborted."""


class InstanceError(Exception):
    """This instance is of no use any more."""


class TransactionalWriter(threading.Thread):
    """One transactional id; its instances follow each other until it is stopped."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, history: History, seed: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.history = history
        self.stopping = threading.Event()
        self._random = random.Random(seed)
        self._number = 0
        self._sent = 0
        self._transaction = ""

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._live()
            except InstanceError as error:
                logger.warning("%s begins again: %s", self.name, error)
                self.failed(str(error))
                self.stopping.wait(RESTART_S)

    def _live(self) -> None:
        """One instance, from its start to its end."""
        self.start_instance()
        end = time.monotonic() + self._random.uniform(*LIFE_S)
        try:
            while not self.stopping.is_set():
                leaves = time.monotonic() > end
                self._one(leaves=leaves)
                if leaves:
                    return
                self.stopping.wait(self._random.random() * PAUSE_S)
        finally:
            self.end_instance()

    def _one(self, *, leaves: bool) -> None:
        """One transaction; `leaves`: it stays open when the instance ends."""
        self._number += 1
        transaction = self._transaction = f"{self.name}:{self._number}"
        commit = self._random.random() >= ABORTED
        how = "unknown"
        try:
            self.begin()
            try:
                self._send_all(transaction)
                if leaves:
                    return
                if commit:
                    self.commit()
                else:
                    self.abort()
                how = "commit" if commit else "abort"
            except AbortError as error:
                self.failed(str(error))
                self.abort()
                how = "abort"
        finally:
            self.history.add("end", c=self.name, x=transaction, how=how)

    def _send_all(self, transaction: str) -> None:
        for _ in range(self._random.randint(1, SENDS_MAX)):
            partition = self._random.randrange(self.partitions)
            identity = f"{self.name}:{partition}:{self._sent}"
            self._sent += 1
            place = TRANSACTED_FROM + partition
            self.history.add("send", c=self.name, p=place, v=identity, x=transaction)
            self.send(partition, identity)

    def acknowledged(self, identity: str, partition: int, offset: int) -> None:
        """Record an acknowledgement, which counts if the transaction is committed."""
        place = TRANSACTED_FROM + partition
        self.history.add("ack", c=self.name, v=identity, p=place, o=offset)

    def failed(self, why: str) -> None:
        """Record an error that no correct broker sends."""
        if is_wrong(why):
            self.history.add("thrown", c=self.name, why=why[:200])

    def start_instance(self) -> None:
        """Create a client and fence the one before. Raises InstanceError."""
        raise NotImplementedError

    def end_instance(self) -> None:
        """Drop the client, whatever its state."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin a transaction. Raises InstanceError."""
        raise NotImplementedError

    def send(self, partition: int, identity: str) -> None:
        """Send one record. Raises AbortError, InstanceError."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit. Raises AbortError, InstanceError."""
        raise NotImplementedError

    def abort(self) -> None:
        """Abort. Raises InstanceError."""
        raise NotImplementedError


class ConfluentTransactions(TransactionalWriter):
    """The producer of librdkafka."""

    def start_instance(self) -> None:
        self._producer = confluent_producer(self.bootstrap, self.name)
        settled(self.stopping, lambda: self._producer.init_transactions(CALL_S))

    def end_instance(self) -> None:
        # Without a flush or an abort: the open transaction is left to its timeout or successor.
        self._producer.purge()
        del self._producer

    def begin(self) -> None:
        settled(self.stopping, self._producer.begin_transaction)

    def send(self, partition: int, identity: str) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None:
                self.acknowledged(identity, partition, -1 if offset is None else offset)

        try:
            self._producer.produce(
                self.topic, encode(identity), partition=partition, on_delivery=told
            )
        except BufferError:
            raise AbortError("the queue is full") from None
        except KafkaException as error:
            raise raised(error) from error
        self._producer.poll(0)

    def commit(self) -> None:
        settled(self.stopping, lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        settled(self.stopping, lambda: self._producer.abort_transaction(CALL_S))


class SdkTransactions(TransactionalWriter):
    """The SDK's producer."""

    def start_instance(self) -> None:
        self._futures: list[tuple[str, int, SendFuture]] = []
        self._producer = sdk_producer(self.bootstrap, self.name)
        sdk_settled(self._producer.init_transactions)

    def end_instance(self) -> None:
        producer = self.__dict__.pop("_producer", None)
        if producer is not None:
            leave(producer)

    def begin(self) -> None:
        self._futures.clear()
        sdk_settled(self._producer.begin_transaction)

    def send(self, partition: int, identity: str) -> None:
        def sent() -> None:
            future = self._producer.send(self.topic, encode(identity), partition=partition)
            self._futures.append((identity, partition, future))

        sdk_settled(sent)

    def commit(self) -> None:
        sdk_settled(self._producer.commit_transaction)
        for identity, partition, future in self._futures:
            self.acknowledged(identity, partition, future.result().offset)

    def abort(self) -> None:
        sdk_settled(self._producer.abort_transaction)


def sdk_producer(bootstrap: str, transactional_id: str) -> Producer:
    """The SDK's producer with a transactional id. Raises InstanceError."""
    try:
        return Producer(
            bootstrap,
            client_id=transactional_id,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=1,
            retry_backoff_ms=20,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
    except HeadwaterError as error:
        raise InstanceError(f"{type(error).__name__}: {error}") from error


def sdk_settled(call: Callable[[], object]) -> None:
    """Call until it has an outcome, as the error's remedy says. Raises AbortError,
    InstanceError."""
    end = time.monotonic() + 4 * CALL_S
    while True:
        try:
            call()
            return
        except HeadwaterError as error:
            text = f"{type(error).__name__}: {error}"
            remedy = getattr(error, "remedy", None)
            if remedy == "abort":
                raise AbortError(text) from error
            if remedy != "retry" or time.monotonic() > end:
                raise InstanceError(text) from error


def leave(producer: Producer) -> None:
    """Close a producer in the background, as closing may wait for a broker that is away."""
    threading.Thread(target=_close_quietly, args=(producer,), daemon=True).start()


def _close_quietly(producer: Producer) -> None:
    try:
        producer.close()
    except HeadwaterError:
        return


def confluent_producer(
    bootstrap: str, transactional_id: str, settings: Mapping[str, Any] = NO_SETTINGS
) -> ConfluentProducer:
    """librdkafka's producer with a transactional id. `settings`: further ones."""
    return ConfluentProducer(
        PRODUCER_SETTINGS
        | {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "log_level": LOG_LEVEL,
        }
        | dict(settings)
    )


def settled(stopping: threading.Event, call: Callable[[], object]) -> None:
    """Call until it has an outcome. Raises AbortError, InstanceError."""
    end = time.monotonic() + 4 * CALL_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            cause = error.args[0]
            if not cause.retriable() or time.monotonic() > end:
                raise raised(error) from error
            stopping.wait(PAUSE_S)


def raised(error: KafkaException) -> AbortError | InstanceError:
    """What is to be done about an error of librdkafka."""
    cause = error.args[0]
    return AbortError(str(error)) if cause.txn_requires_abort() else InstanceError(str(error))
