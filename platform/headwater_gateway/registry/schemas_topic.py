"""The topic `_schemas` through the SDK: created, followed, written in transactions.

One transactional id for all instances of a registry: whoever begins a transaction fences the
others (KIP-98), so that no two instances write by states that differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.client.admin.client import LATEST, Admin
from headwater.client.consumer import Consumer
from headwater.client.errors import (
    ProducerFencedError,
    RetriableTransactionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from headwater.client.producer import Producer
from headwater.client.security_options import SecurityOptions
from headwater.client.values import ConsumerRecord, NewTopic, TopicPartition
from headwater.errors import KafkaError, UsageError

TOPIC = "_schemas"
TRANSACTIONAL_ID_PREFIX = "headwater-schema-registry-"
REPLICATION_FACTOR = 3
"""Or the number of brokers, if there are fewer."""
COMPACT = {"cleanup.policy": "compact"}
POLL_MS = 50
POLL_RECORDS_MAX = 10_000
TRANSACTION_TIMEOUT_MS = 30_000
BLOCK_MS = 15_000
WRITE_ID = "headwater.write.id"
"""A header of each record: after a commit with an unknown outcome it tells whether it was."""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Where the topic is, and how it is created."""

    bootstrap_servers: str
    topic: str = TOPIC
    replication_factor: int = REPLICATION_FACTOR
    security: SecurityOptions = field(default_factory=lambda: SecurityOptions())
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def transactional_id(self) -> str:
        """One per topic."""
        return TRANSACTIONAL_ID_PREFIX + self.topic

    @property
    def partition(self) -> TopicPartition:
        """The only one."""
        return TopicPartition(self.topic, 0)


class SchemasTopic:
    """Connections to the topic. `ends` and `create` may be called by any thread."""

    def __init__(self, options: TopicOptions) -> None:
        """Raises NoBrokersAvailableError, UsageError."""
        self.options = options
        self._admin = Admin(
            options.bootstrap_servers, client_id="headwater-registry", **options.security
        )

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def cluster_id(self) -> str | None:
        """The cluster's id."""
        return self._admin.describe_cluster().cluster_id

    def create(self) -> None:
        """Create the topic if there is none; raise UsageError for one of another kind."""
        name = self.options.topic
        try:
            self._check()
        except UnknownTopicOrPartitionError:
            brokers = len(self._admin.describe_cluster().brokers)
            copies = min(self.options.replication_factor, brokers)
            topic = NewTopic(name, 1, copies, {**self.options.configs, **COMPACT})
            try:
                self._admin.create_topics([topic])
            except TopicAlreadyExistsError:
                self._check()  # by another instance, which started at the same time

    def _check(self) -> None:
        name = self.options.topic
        found = self._admin.describe_topics([name], patient=False)[name]
        if len(found.partitions) != 1:
            raise UsageError(
                f"topic {name} has {len(found.partitions)} partitions: the registry's topic has 1; "
                "name another one with --topic"
            )
        policy = self._admin.describe_configs("topic", name)["cleanup.policy"].value
        if policy != "compact":
            raise UsageError(
                f"topic {name} has cleanup.policy={policy}, which would delete schemas: set it to "
                f"compact, as by headwater configs set topic {name} cleanup.policy=compact"
            )

    def end(self) -> int:
        """The offset after the last record or marker that no open transaction is before."""
        rows = self._admin.list_offsets(
            {self.options.partition: LATEST}, isolation_level="read_committed"
        )
        return rows[self.options.partition].offset

    def reader(self) -> TopicReader:
        """A reader at the beginning of the topic, for one thread."""
        return TopicReader(self.options)

    def writer(self) -> TopicWriter:
        """A writer; every earlier one is fenced, and what it left open is aborted."""
        return TopicWriter(self.options)


class TopicReader:
    """Reads what was committed, from the first record on. One thread at a time."""

    def __init__(self, options: TopicOptions) -> None:
        self._partition = options.partition
        self._consumer = Consumer(
            bootstrap_servers=options.bootstrap_servers,
            client_id="headwater-registry",
            auto_offset_reset="none",
            isolation_level="read_committed",
            enable_auto_commit=False,
            **options.security,
        )
        self._consumer.assign([self._partition])
        self.rewind()

    def rewind(self) -> None:
        """Go back to the first record."""
        self._consumer.seek_to_beginning(self._partition)

    def read(self) -> list[ConsumerRecord]:
        """The next records; none if none came within POLL_MS. Raises KafkaError."""
        return self._consumer.poll(POLL_MS, POLL_RECORDS_MAX).get(self._partition, [])

    def position(self) -> int:
        """The offset of the next record or marker to read."""
        return self._consumer.position(self._partition)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


class TopicWriter:
    """Writes records in transactions, until another writer of the topic fences it."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._producer = Producer(
            options.bootstrap_servers,
            client_id="headwater-registry",
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=BLOCK_MS,
            delivery_timeout_ms=BLOCK_MS,
            linger_ms=0,
            **options.security,
        )
        try:
            self._producer.init_transactions()
        except BaseException:
            self._producer.close(0)
            raise

    def write(self, records: Sequence[tuple[bytes, bytes | None]], write_id: str) -> int:
        """Commit the records; the offset of the last one. Raises ProducerFencedError,
        RetriableTransactionError when the outcome is not known, KafkaError when nothing was
        written."""
        headers = [(WRITE_ID, write_id.encode())]
        self._producer.begin_transaction()
        try:
            sent = [
                self._producer.send(self._options.topic, value, key, headers, partition=0)
                for key, value in records
            ]
            self._producer.commit_transaction()
        except (ProducerFencedError, RetriableTransactionError):
            raise
        except KafkaError:
            self._producer.abort_transaction()  # tells of a newer writer, if that was the cause
            raise
        return max(future.result().offset for future in sent)

    def close(self) -> None:
        """Close it; an open transaction is aborted."""
        self._producer.close(1)
