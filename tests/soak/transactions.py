"""The transactional clients of the soak: producers, read_committed consumers, copiers."""

from __future__ import annotations

import faulthandler
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
)
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from soak.consumers import CONFLUENT_SETTINGS, ConfluentReader, Reader, Rows, SdkReader
from soak.copiers import GROUP, Copier
from soak.history import COPIED_FROM, TRANSACTED_FROM, History, decode
from soak.transactional_writers import (
    ConfluentTransactions,
    SdkTransactions,
    TransactionalWriter,
)

TRANSACTED, COPIED = "soak-transacted", "soak-copied"
PARTITIONS = 3
STABLE_S = 60.0
READ_S = 60.0
PARTITION_EOF, ALL_BROKERS_DOWN = -191, -187
"""Codes of librdkafka's own."""
COPIED_S = 60.0
JOIN_S = 90.0
POLL_S = 0.5
ASK_S = 10.0


class _Placed(Reader):
    """A reader whose partitions stand in the history from `first` on."""

    first = 0

    def polled(self, rows: Rows) -> None:
        for partition, found in rows.items():
            self.history.add("poll", c=self.name, p=self.first + partition, rows=found)
            self.reached[partition] = max(self.reached[partition], int(found[-1][0]))

    def assigned(self, partitions: object) -> None:
        places = [self.first + p for p in range(self.partitions)]
        self.history.add("assign", c=self.name, p=places)


class CommittedConfluentReader(_Placed, ConfluentReader):
    """librdkafka's consumer, which reads committed records by default."""

    first = TRANSACTED_FROM


class CommittedSdkReader(_Placed, SdkReader):
    """The SDK's consumer with read_committed."""

    first = TRANSACTED_FROM
    settings = SdkReader.settings | {"isolation_level": "read_committed"}


class TransactionLoad:
    """Two transactional ids of each kind of client, a reader of each kind, two copiers."""

    def __init__(self, bootstrap: str, history: History, seed: int) -> None:
        self.bootstrap, self.history = bootstrap, history
        shared = (bootstrap, TRANSACTED, PARTITIONS, history)
        self.writers: list[TransactionalWriter] = [
            kind(f"{name}-{n}", *shared, seed + n)
            for kind, name in (
                (ConfluentTransactions, "tx-librdkafka"),
                (SdkTransactions, "tx-sdk"),
            )
            for n in range(2)
        ]
        self.readers: list[Reader] = [
            CommittedConfluentReader("committed-librdkafka", *shared),
            CommittedSdkReader("committed-sdk", *shared),
        ]
        self.copiers = [
            Copier(f"copier-{n}", bootstrap, TRANSACTED, COPIED, history, seed + n)
            for n in range(2)
        ]

    def start(self) -> None:
        """Start all clients; the topics exist."""
        for client in (*self.writers, *self.readers, *self.copiers):
            client.start()

    def stop(self) -> None:
        """Stop the producers, wait for the copiers, read both topics, and let readers end."""
        self._join(self.writers)
        self._wait_stable(TRANSACTED)
        ends = self._final(TRANSACTED, TRANSACTED_FROM)
        self._wait_copied()
        self._join(self.copiers)
        self._wait_stable(COPIED)
        self._final(COPIED, COPIED_FROM)
        self._drain(ends)
        self._join(self.readers)

    def _join(self, clients: list[TransactionalWriter] | list[Copier] | list[Reader]) -> None:
        for client in clients:
            client.stopping.set()
        deadline = time.monotonic() + JOIN_S
        for client in clients:
            client.join(max(0.0, deadline - time.monotonic()))
            if not client.is_alive():
                continue
            if (isinstance(client, Reader) and client.pulse.has_stopped()) or (
                isinstance(client, Copier) and client.has_stopped()
            ):
                client.stood_still()
            else:
                self.history.add("stuck", why=f"{client.name} does not end")
                with self.history.path.with_name("stacks.txt").open("a") as out:
                    faulthandler.dump_traceback(out, all_threads=True)

    def _final(self, topic: str, first: int) -> list[int]:
        """Record each partition from start to end; the last offset of each."""

        def read_all(partition: int) -> int:
            try:
                found = read_committed(self.bootstrap, topic, partition)
            except Exception as error:  # noqa: BLE001 - told in the history, and so in the report
                why = f"final read of {topic}-{partition}: {error!r}"
                self.history.add("stuck", why=why[:300])
                return -1
            rows = [[offset, decode(value)] for offset, value in found]
            self.history.add("final", p=first + partition, rows=rows)
            return found[-1][0] if found else -1

        with ThreadPoolExecutor(PARTITIONS) as pool:
            return list(pool.map(read_all, range(PARTITIONS)))

    def _ends(self, topic: str, isolation: IsolationLevel) -> list[int]:
        """The end offsets of a topic; those of read_committed are last stable offsets."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        places = {ConfluentPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        found = admin.list_offsets(places, isolation_level=isolation, request_timeout=ASK_S)
        offsets = {place.partition: row.result(ASK_S).offset for place, row in found.items()}
        return [offsets[p] for p in range(PARTITIONS)]

    def _wait_stable(self, topic: str) -> None:
        """Wait until no transaction is open: those that were left time out."""
        committed = whole = [0]

        def is_stable() -> bool:
            nonlocal committed, whole
            committed = self._ends(topic, IsolationLevel.READ_COMMITTED)
            whole = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
            return committed == whole

        if not self._wait(is_stable, STABLE_S):
            why = f"{topic}: last stable offsets {committed}, ends {whole} after {STABLE_S:.0f} s"
            self.history.add("stuck", why=why)

    def _wait_copied(self) -> None:
        """Wait until the copiers' group has committed the ends of the source."""
        copied = ends = [0]

        def is_copied() -> bool:
            nonlocal copied, ends
            ends = self._ends(TRANSACTED, IsolationLevel.READ_COMMITTED)
            copied = self._committed()
            return not any(self._lags(p, copied[p], ends[p]) for p in range(PARTITIONS))

        if not self._wait(is_copied, COPIED_S):
            why = f"the copiers' group is at {copied} of {ends} after {COPIED_S:.0f} s"
            self.history.add("stuck", why=why)

    def _lags(self, partition: int, start: int, end: int) -> bool:
        """Whether there are committed records between: an end may be behind markers only."""
        if start >= end:
            return False
        found = read_committed(self.bootstrap, TRANSACTED, partition)
        return any(start <= offset < end for offset, _ in found)

    def _committed(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        places = [ConfluentPartition(TRANSACTED, p) for p in range(PARTITIONS)]
        wanted = [ConsumerGroupTopicPartitions(GROUP, places)]
        found = admin.list_consumer_group_offsets(
            wanted, require_stable=True, request_timeout=ASK_S
        )
        rows = found[GROUP].result(ASK_S).topic_partitions
        offsets = {row.partition: max(0, row.offset) for row in rows}
        return [offsets.get(p, 0) for p in range(PARTITIONS)]

    def _wait(self, holds: object, seconds: float) -> bool:
        assert callable(holds)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if holds():
                    return True
            except KafkaException:
                pass  # a broker may still be starting
            time.sleep(POLL_S)
        return False

    def _drain(self, ends: list[int]) -> None:
        def is_read() -> bool:
            return all(
                reader.reached[p] >= end for reader in self.readers for p, end in enumerate(ends)
            )

        if not self._wait(is_read, COPIED_S):
            behind = {reader.name: reader.reached for reader in self.readers}
            self.history.add("stuck", why=f"read_committed consumers are at {behind} of {ends}")


def read_committed(bootstrap: str, topic: str, partition: int) -> list[tuple[int, bytes]]:
    """(offset, value) of the committed records of a partition, to its last stable offset now.

    The end cannot be told from the last record: markers may follow it.
    """
    settings = {"group.id": "soak-check", "isolation.level": "read_committed"}
    consumer = ConfluentConsumer(
        CONFLUENT_SETTINGS
        | settings
        | {"bootstrap.servers": bootstrap, "enable.partition.eof": True}
    )
    try:
        consumer.assign([ConfluentPartition(topic, partition, 0)])
        rows: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + READ_S
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, POLL_S):
                error = message.error()
                if error is None:
                    rows.append((message.offset() or 0, message.value() or b""))
                elif error.code() == PARTITION_EOF:
                    return rows
                elif not error.retriable() and error.code() != ALL_BROKERS_DOWN:
                    raise KafkaException(error)
        raise TimeoutError(f"{topic}-{partition} has no end after {len(rows)} records")
    finally:
        consumer.close()
