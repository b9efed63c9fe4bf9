"""The producers of the recorded workload: librdkafka's and the SDK's, idempotent, acks=all."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from headwater import Producer
from headwater.client.futures import SendFuture
from headwater.errors import HeadwaterError
from integration.workload import PRODUCER_SETTINGS
from soak.history import History, encode

FLUSH_S = 90.0
DELIVERY_TIMEOUT_MS = 80_000
REQUEST_TIMEOUT_MS = 5_000
BUFFER_FULL_WAIT_S = 0.05
LOG_LEVEL = 2
"""Critical: refused and broken connections are normal in a soak."""

# Codes that correct brokers never send to an idempotent producer with acks=all.
WRONG_CODES = ("OUT_OF_ORDER_SEQUENCE", "UNKNOWN_PRODUCER_ID", "CORRUPT", "DUPLICATE_SEQUENCE")


def is_wrong(told: str) -> bool:
    """Whether no correct broker sends this error to an idempotent producer."""
    return any(code in told.upper() for code in WRONG_CODES)


class Acks:
    """The times of acknowledgements by partition, for the measurement of pauses."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Lock()
        self._times: list[list[float]] = [[] for _ in range(partitions)]

    def add(self, partition: int) -> None:
        """Add an acknowledgement, now."""
        with self._lock:
            self._times[partition].append(time.monotonic())

    def since(self, partition: int, start: float) -> list[float]:
        """The times after `start`, in order."""
        with self._lock:
            times = self._times[partition]
            low = len(times)
            while low and times[low - 1] > start:
                low -= 1
            return times[low:]

    def counts(self) -> list[int]:
        """The number of acknowledgements by partition."""
        with self._lock:
            return [len(times) for times in self._times]


class Writer(threading.Thread):
    """Sends to every partition in turn at a steady rate, until it is stopped."""

    def __init__(self, name: str, topic: str, history: History, acks: Acks, rate: float) -> None:
        super().__init__(name=name, daemon=True)
        self.topic, self.history, self.acks = topic, history, acks
        self.stopping = threading.Event()
        self._partitions = len(acks.counts())
        self._pause_s = 1 / rate

    def run(self) -> None:
        try:
            self._send_all()
        except KafkaException as error:  # librdkafka's fatal errors, and no others
            self.history.add("thrown", c=self.name, why=str(error)[:200])

    def _send_all(self) -> None:
        sequence = 0
        due = time.monotonic()
        while not self.stopping.is_set():
            for partition in range(self._partitions):
                identity = f"{self.name}:{partition}:{sequence}"
                self.history.add("send", c=self.name, p=partition, v=identity)
                self.send(partition, identity)
            sequence += 1
            # No burst after a pause: the history holds only so much.
            due = max(due + self._pause_s, time.monotonic())
            self.idle(due - time.monotonic())
        self.finish()

    def send(self, partition: int, identity: str) -> None:
        """Send one record. `acknowledged` or `failed` is called with its outcome."""
        raise NotImplementedError

    def idle(self, seconds: float) -> None:
        """Wait until the next turn."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until each record has its outcome."""
        raise NotImplementedError

    def acknowledged(self, identity: str, partition: int, offset: int) -> None:
        """Record an acknowledgement."""
        self.acks.add(partition)
        self.history.add("ack", c=self.name, v=identity, p=partition, o=offset)

    def failed(self, identity: str, partition: int, why: str, *, definite: bool = False) -> None:
        """Record a failure."""
        self.history.add(
            "fail", c=self.name, v=identity, p=partition, why=why[:200], definite=definite
        )
        if is_wrong(why):
            self.history.add("thrown", c=self.name, why=why[:200])


class ConfluentWriter(Writer):
    """The producer of librdkafka."""

    def __init__(self, bootstrap: str, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._producer = ConfluentProducer(
            PRODUCER_SETTINGS | {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL}
        )

    def send(self, partition: int, identity: str) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()  # None: the broker had it already, and forgot where
                self.acknowledged(identity, partition, -1 if offset is None else offset)
            else:
                self.failed(identity, partition, str(error))

        value = encode(identity)
        while True:
            try:
                self._producer.produce(self.topic, value, partition=partition, on_delivery=told)
                return
            except BufferError:
                self._producer.poll(BUFFER_FULL_WAIT_S)

    def idle(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        while (left := due - time.monotonic()) > 0:
            self._producer.poll(left)  # returns after each callback
        self._producer.poll(0)

    def finish(self) -> None:
        left = self._producer.flush(FLUSH_S)
        if left:
            self.history.add("stuck", why=f"{self.name}: {left} records without an outcome")


class SdkWriter(Writer):
    """The SDK's producer."""

    def __init__(self, bootstrap: str, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._producer = Producer(
            bootstrap,
            client_id=self.name,
            linger_ms=1,
            retry_backoff_ms=20,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def send(self, partition: int, identity: str) -> None:
        def told(future: SendFuture) -> None:
            error = future.exception()
            if error is None:
                self.acknowledged(identity, partition, future.result().offset)
            else:
                self.failed(identity, partition, f"{type(error).__name__}: {error}")

        try:
            future = self._producer.send(self.topic, encode(identity), partition=partition)
        except HeadwaterError as error:  # never queued: it cannot be in the log
            self.failed(identity, partition, f"{type(error).__name__}: {error}", definite=True)
            return
        future.add_done_callback(told)

    def idle(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def finish(self) -> None:
        try:
            self._producer.close()
        except HeadwaterError as error:
            self.history.add("stuck", why=f"{self.name}: {error}")
