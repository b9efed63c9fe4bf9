"""The consumers of the recorded workload: by assignment and by group, librdkafka's and the SDK's.

Each records the result of every poll. Groups commit after each recorded poll, never before, so with
a correct cluster some member reads every record. Members leave and come back now and then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from headwater import Consumer, TopicPartition
from headwater.errors import HeadwaterError
from soak.history import History, decode
from soak.producers import LOG_LEVEL
from soak.pulse import MAIN_THREAD_STOPPED, Pulse, StoodStillError, closing, with_pulse

POLL_S = 0.2
ROWS_MAX = 500
GROUP_SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
RETRY_S = 0.2
MEMBER_LIFE_S = (20.0, 60.0)
COMMIT_TIMEOUT_MS = 5_000

# Errors that correct brokers never send to a consumer with a valid position.
WRONG_CODES = (
    *("OFFSET_OUT_OF_RANGE", "OFFSETOUTOFRANGE", "OFFSET OUT OF RANGE", "AUTO_OFFSET_RESET"),
    *("LOG_TRUNCATION", "CORRUPT", "BAD_MSG"),
)

CONFLUENT_SETTINGS = {
    "enable.auto.commit": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log.connection.close": False,
    "log_level": LOG_LEVEL,
}
SDK_SETTINGS = {
    "enable_auto_commit": False,
    "fetch_max_wait_ms": 100,
    "request_timeout_ms": 5_000,
    "default_api_timeout_ms": 20_000,
    "max_poll_records": ROWS_MAX,
}

Rows = dict[int, list[list[int | str]]]


class Reader(threading.Thread):
    """One consumer, which reads until it is stopped. `live` runs once per start of the client."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, history: History):
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.topic, self.history = bootstrap, topic, history
        self.partitions = partitions
        self.group: str | None = None
        self.stopping = threading.Event()
        self.reached = [-1] * partitions
        """The highest offset read so far, by partition."""
        self.pulse = Pulse(set())
        """The pulse of librdkafka's main thread, if there is one."""

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.live()
            except StoodStillError:
                self.stood_still()  # what another client, in its place, is given is judged
            except (KafkaException, HeadwaterError, OSError) as error:
                self.told(error)
                self.stopping.wait(RETRY_S)

    def live(self) -> None:
        """One consumer from its start to its end."""
        raise NotImplementedError

    def client(self, settings: dict[str, object]) -> ConfluentConsumer:
        """A consumer of librdkafka, whose pulse is watched from now on."""
        settings = CONFLUENT_SETTINGS | {"bootstrap.servers": self.bootstrap} | settings
        consumer, self.pulse = with_pulse(lambda: ConfluentConsumer(settings))
        return consumer

    def stood_still(self) -> None:
        """Record that the client itself stands still."""
        self.history.add("stood_still", c=self.name, why=MAIN_THREAD_STOPPED)

    def told(self, error: Exception) -> None:
        """Record an error of poll if no correct broker sends it."""
        text = f"{type(error).__name__}: {error}"
        if any(code in text.upper() for code in WRONG_CODES):
            self.history.add("thrown", c=self.name, why=text[:200])

    def polled(self, rows: Rows) -> None:
        """Record the result of one poll."""
        extra = {"g": self.group} if self.group else {}
        for partition, found in rows.items():
            self.history.add("poll", c=self.name, p=partition, rows=found, **extra)
            self.reached[partition] = max(self.reached[partition], int(found[-1][0]))

    def assigned(self, partitions: Iterable[int]) -> None:
        """Record that reading goes on from the start position or the group's commit."""
        extra = {"g": self.group} if self.group else {}
        self.history.add("assign", c=self.name, p=sorted(partitions), **extra)

    def committed(self, rows: Rows, commit: Callable[[], None]) -> None:
        """Commit the offsets after these rows, and record the result."""
        began = self.history.now()
        ok = True
        try:
            commit()
        except (KafkaException, HeadwaterError, OSError) as error:
            ok = False
            self.told(error)
        for partition, found in rows.items():
            place = {"p": partition, "o": int(found[-1][0]) + 1, "t0": round(began, 4)}
            self.history.add("commit", c=self.name, g=self.group, ok=ok, **place)


class ConfluentReader(Reader):
    """librdkafka by assignment: every partition from its start."""

    def live(self) -> None:
        consumer = self.client({"group.id": self.name, "auto.offset.reset": "error"})
        with closing(consumer):
            self.assigned(range(self.partitions))
            consumer.assign([ConfluentPartition(self.topic, p, 0) for p in range(self.partitions)])
            while not self.stopping.is_set():
                self.polled(rows_of(consumer.consume(ROWS_MAX, POLL_S), self.told))
                self.pulse.check()


class SdkReader(Reader):
    """The SDK's consumer by assignment: every partition from its start."""

    settings: ClassVar[dict[str, object]] = SDK_SETTINGS | {"auto_offset_reset": "none"}

    def live(self) -> None:
        with Consumer(bootstrap_servers=self.bootstrap, **self.settings) as consumer:
            places = [TopicPartition(self.topic, p) for p in range(self.partitions)]
            consumer.assign(places)
            self.assigned(range(self.partitions))
            for place in places:
                consumer.seek(place, 0)
            while not self.stopping.is_set():
                try:
                    self.polled(sdk_rows(consumer))
                except HeadwaterError as error:
                    self.told(error)
                    self.stopping.wait(RETRY_S)


class Member(Reader):
    """A member of a group, which leaves and comes back now and then."""

    def __init__(self, group: str, seed: int, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.group = group
        self._random = random.Random(seed)

    def life(self) -> Callable[[], bool]:
        """A function that is true until this member leaves."""
        end = time.monotonic() + self._random.uniform(*MEMBER_LIFE_S)
        return lambda: not self.stopping.is_set() and time.monotonic() < end


class ConfluentMember(Member):
    """librdkafka in a group."""

    def live(self) -> None:
        settings = {
            "group.id": self.group,
            "session.timeout.ms": GROUP_SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
        }
        consumer = self.client(settings)
        rows: Rows = {}

        def process() -> None:
            found = dict(rows)
            rows.clear()
            if found:
                self.polled(found)
                places = [
                    ConfluentPartition(self.topic, p, int(r[-1][0]) + 1) for p, r in found.items()
                ]
                self.committed(found, lambda: commit_now(consumer, places))

        def lost(_consumer: object, _places: object) -> None:
            self.polled(dict(rows))  # read, but not ours to commit any more
            rows.clear()

        goes_on = self.life()
        with closing(consumer):
            consumer.subscribe(
                [self.topic],
                on_assign=lambda _c, places: self.assigned(tp.partition for tp in places),
                on_revoke=lambda _c, _places: process(),
                on_lost=lost,
            )
            while goes_on():
                self._gather(consumer, rows)
                process()
                self.pulse.check()

    def _gather(self, consumer: ConfluentConsumer, rows: Rows) -> None:
        """Poll one message at a time, so that a rebalance in between finds all rows read so far."""
        message = consumer.poll(POLL_S)
        while message is not None:
            for partition, found in rows_of([message], self.told).items():
                rows.setdefault(partition, []).extend(found)
            if sum(map(len, rows.values())) >= ROWS_MAX:
                return
            message = consumer.poll(0)


def commit_now(consumer: ConfluentConsumer, places: list[ConfluentPartition]) -> None:
    """A synchronous commit. Raises KafkaException for a partition's error too."""
    for place in consumer.commit(offsets=places, asynchronous=False) or []:
        if place.error is not None:
            raise KafkaException(place.error)


class SdkMember(Member):
    """The SDK's consumer in a group."""

    def live(self) -> None:
        settings = SDK_SETTINGS | {
            "auto_offset_reset": "earliest",
            "group_id": self.group,
            "session_timeout_ms": GROUP_SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        goes_on = self.life()
        with Consumer(bootstrap_servers=self.bootstrap, **settings) as consumer:
            consumer.subscribe(
                self.topic, on_assign=lambda places: self.assigned(tp.partition for tp in places)
            )
            while goes_on():
                try:
                    rows = sdk_rows(consumer)
                except HeadwaterError as error:
                    self.told(error)
                    self.stopping.wait(RETRY_S)
                    continue
                if rows:
                    self.polled(rows)
                    places = {
                        TopicPartition(self.topic, p): int(found[-1][0]) + 1
                        for p, found in rows.items()
                    }
                    self.committed(
                        rows,
                        lambda places=places: consumer.commit(places, COMMIT_TIMEOUT_MS),
                    )


def rows_of(messages: list[Message], told: Callable[[Exception], None]) -> Rows:
    """librdkafka's messages as rows by partition; errors go to `told`."""
    rows: Rows = {}
    for message in messages:
        error = message.error()
        if error is not None:
            told(KafkaException(error))
            continue
        rows.setdefault(message.partition(), []).append([message.offset(), decode(message.value())])
    return rows


def sdk_rows(consumer: Consumer) -> Rows:
    """One poll of the SDK as rows by partition."""
    polled = consumer.poll(POLL_S * 1000)
    return {
        place.partition: [[record.offset, decode(record.value)] for record in records]
        for place, records in polled.items()
    }
