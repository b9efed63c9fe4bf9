"""`Admin`: topics, configurations, offsets, groups, replicas, transactions, sinks; blocking calls.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topics([NewTopic("flights", 6, 3)])

Calls retry what can be retried for up to `default_api_timeout_ms`, then raise a typed error
(`headwater.client.errors`). Arguments are checked before anything is sent. Threads may share it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack

from headwater.client.admin import arguments
from headwater.client.admin.acls import AclAdmin, AclCalls
from headwater.client.admin.groups import GroupCalls
from headwater.client.admin.open_transactions import OpenTransactionCalls
from headwater.client.admin.options import AdminOptions, OnWait
from headwater.client.admin.quotas import QuotaCalls
from headwater.client.admin.replicas import ELECTION_TYPES, Outcomes, ReplicaCalls
from headwater.client.admin.scram import ScramAdmin, ScramCalls
from headwater.client.admin.sinks import SinkAdmin, SinkCalls
from headwater.client.admin.tokens import TokenAdmin, TokenCalls
from headwater.client.admin.topics import ISOLATION_LEVELS, RESOURCE_TYPES, TopicCalls
from headwater.client.admin.transactions import TransactionCalls
from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import checked
from headwater.client.partition_names import PartitionName, named_partitions
from headwater.client.security_options import SecurityOptions
from headwater.client.transaction_values import (
    HangingTransaction,
    ProducerIdAndEpoch,
    TransactionBlocker,
    TransactionDescription,
    TransactionListing,
)
from headwater.client.values import (
    ClientQuotas,
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionReassignment,
    ProducerDescription,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import KafkaError

T = TypeVar("T")
CALL_MARGIN_S = 5.0
"""A call's own time limit ends it; the waiting thread gives up so much later."""
BOOTSTRAP_TIMEOUT_MS = 10_000
TRANSACTION_TIMEOUT_MS = 60_000
"""Kafka's default of transaction.timeout.ms."""
MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms."""

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

ResourceType = Literal["topic", "broker", "group"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
ElectionType = Literal["preferred", "unclean"]


class Admin(SinkAdmin, TokenAdmin, AclAdmin, ScramAdmin):
    """Administers one cluster.

    Options have Kafka's names with underscores for dots; times are milliseconds.

    Raises OptionError for an unknown option or a value of a wrong type, UsageError for other bad
    values, NoBrokersAvailableError when no broker answers within `bootstrap_timeout_ms`. So do the
    methods for their arguments; those that name topics or groups take a list, not a string.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "headwater-admin",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: float = 60_000,
        retry_backoff_ms: float = 50,
        retry_backoff_max_ms: float = 1_000,
        socket_connection_setup_timeout_ms: float = 10_000,
        bootstrap_timeout_ms: float = BOOTSTRAP_TIMEOUT_MS,
        on_wait: OnWait | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """`bootstrap_servers`: `"host:port,host:port"` or a list of such. `on_wait` is called, on
        another thread, with what a call waits for and its time limit in ms; without it the reason
        is logged. `security`: see SecurityOptions."""
        options = checked("Admin", AdminOptions, locals(), security)
        self._timeout_s = options.default_api_timeout_ms / 1000 + CALL_MARGIN_S
        self._thread = LoopThread(options.client_id or "headwater-admin")
        self._cluster = Cluster(options.bootstrap_servers, options.for_cluster())
        self._topics = TopicCalls(self._cluster)
        self._groups = GroupCalls(self._cluster)
        self._replicas = ReplicaCalls(self._cluster)
        self._quotas = QuotaCalls(self._cluster)
        self._transactions = TransactionCalls(self._cluster)
        self._sinks = SinkCalls(self._cluster)
        self._scram = ScramCalls(self._cluster)
        self._tokens = TokenCalls(self._cluster)
        self._acls = AclCalls(self._cluster)
        self._open = OpenTransactionCalls(self._cluster, self._topics, self._transactions)
        try:
            self._call(self._cluster.bootstrap(options.bootstrap_timeout_ms))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the background thread. A second call does nothing."""
        if not self._thread.loop.is_closed():
            self._thread.call(self._cluster.close(), CALL_MARGIN_S)
            self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work, self._timeout_s)

    # --- topics -------------------------------------------------------------------------------

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        timeout_ms: int = 30_000,
        validate_only: bool = False,
    ) -> None:
        """Create topics. Raises TopicAlreadyExistsError, InvalidReplicationFactorError,
        InvalidConfigError, InvalidTopicError."""
        rows = arguments.new_topics(topics)
        limit = arguments.timeout(timeout_ms)
        self._call(self._topics.create(rows, limit, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: int = 30_000) -> None:
        """Delete topics. Raises UnknownTopicOrPartitionError; the other topics are deleted all the
        same (`try_delete_topics` returns which)."""
        _raise_failed(self.try_delete_topics(topics, timeout_ms=timeout_ms))

    def try_delete_topics(
        self, topics: Iterable[str], *, timeout_ms: int = 30_000
    ) -> dict[str, KafkaError | None]:
        """Delete topics; topic -> None or its error. Raises KafkaError if no topic has a result."""
        names = arguments.names("topics", topics)
        limit = arguments.timeout(timeout_ms)
        return self._call(self._topics.delete(names, limit)) if names else {}

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        found = self._call(self._topics.describe(None))
        return sorted(t.name for t in found if include_internal or not t.is_internal)

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, patient: bool = True
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders, replicas and ISR of these topics, or of all.

        Raises UnknownTopicOrPartitionError: after retries with `patient`, since a new topic takes a
        moment to reach every broker; else as soon as every live broker lacks the topic.
        """
        names = None if topics is None else arguments.names("topics", topics)
        found = self._call(self._topics.describe(names, patient=patient))
        return {t.name: t for t in found}

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout_ms: int = 30_000,
        validate_only: bool = False,
    ) -> None:
        """Increase topics to these numbers of partitions. Raises InvalidPartitionsError.

        `assignments`: topic -> the replicas of each new partition.
        """
        work = self._topics.create_partitions(
            arguments.partition_counts(counts),
            arguments.assignments(assignments),
            arguments.timeout(timeout_ms),
            validate_only=validate_only,
        )
        self._call(work)

    def list_offsets(
        self,
        wanted: Mapping[PartitionName, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of each partition at a timestamp (ms) or at EARLIEST, LATEST, ..."""
        rows = arguments.integers_by_partition("timestamp", wanted, LATEST_TIERED)
        level = arguments.one_of("isolation_level", isolation_level, ISOLATION_LEVELS)
        return self._call(self._topics.list_offsets(rows, ISOLATION_LEVELS[level]))

    def delete_records(
        self, before: Mapping[PartitionName, int], *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, int]:
        """Delete the records below each offset (-1: all); the new log start offsets."""
        rows = arguments.integers_by_partition("offset", before, -1)
        return self._call(self._topics.delete_records(rows, arguments.timeout(timeout_ms)))

    # --- configurations, quotas, the cluster --------------------------------------------------

    def describe_configs(
        self, resource_type: ResourceType, name: str = "", *, patient: bool = True
    ) -> dict[str, ConfigEntry]:
        """The configuration of a "topic", a "broker" (`name` is its id) or a "group".

        Raises UnknownTopicOrPartitionError; for `patient` see `describe_topics`.
        """
        kind = arguments.one_of("resource_type", resource_type, RESOURCE_TYPES)
        return self._call(self._topics.describe_configs(kind, name, patient=patient))

    def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        settings: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set values, or with None reset them to their defaults; other settings stay (KIP-339)."""
        kind = arguments.one_of("resource_type", resource_type, RESOURCE_TYPES)
        rows = arguments.settings("settings", settings)
        self._call(self._topics.alter_configs(kind, name, rows, validate_only=validate_only))

    def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None
    ) -> list[ClientQuotas]:
        """The quotas of an entity, as {"client-id": "app"} or {"user": None}; by default all.

        The name None is the default entity of its type.
        """
        return self._call(self._quotas.describe(entity))

    def alter_client_quotas(
        self,
        entity: Mapping[str, str | None],
        quotas: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas, or with None remove them; other quotas stay (KIP-546).

        Raises KafkaError(INVALID_REQUEST).
        """
        rows = arguments.quotas(quotas)
        known = arguments.mapping("entity", entity)
        self._call(self._quotas.alter(known, rows, validate_only=validate_only))

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and live brokers."""
        return self._call(self._topics.describe_cluster())

    # --- groups -------------------------------------------------------------------------------

    def list_groups(self) -> list[GroupListing]:
        """The groups of every coordinator, by id."""
        return self._call(self._groups.list_groups())

    def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of each group; the state of one that does not exist is "Dead"."""
        return self._call(self._groups.describe(arguments.names("groups", groups)))

    def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members. Raises NonEmptyGroupError, GroupIdNotFoundError; the other
        groups are deleted all the same (`try_delete_groups` returns which)."""
        _raise_failed(self.try_delete_groups(groups))

    def try_delete_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members; group -> None or its error."""
        return self._call(self._groups.delete(arguments.names("groups", groups)))

    def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every committed offset of a group."""
        return self._call(self._groups.offsets(arguments.name("group", group), None))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[PartitionName, OffsetAndMetadata | int]
    ) -> None:
        """Commit offsets for a group without members. Raises NonEmptyGroupError."""
        rows = arguments.offsets_by_partition(offsets)
        self._call(self._groups.alter_offsets(arguments.name("group", group), rows))

    def delete_group_offsets(self, group: str, partitions: Iterable[PartitionName]) -> Outcomes:
        """Delete committed offsets; partition -> None or its error (GROUP_SUBSCRIBED_TO_TOPIC).

        Raises GroupIdNotFoundError.
        """
        rows = named_partitions(partitions)
        return self._call(self._groups.delete_offsets(arguments.name("group", group), rows))

    # --- replicas -----------------------------------------------------------------------------

    def elect_leaders(
        self,
        election_type: ElectionType = "preferred",
        partitions: Iterable[PartitionName] | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> Outcomes:
        """A "preferred" or "unclean" election (KIP-460) for these partitions, or for all.

        Partition -> None or its error, for example ELECTION_NOT_NEEDED. When all partitions are
        meant, those that need no election are left out.
        """
        kind = arguments.one_of("election_type", election_type, ELECTION_TYPES)
        rows = None if partitions is None else named_partitions(partitions)
        return self._call(self._replicas.elect_leaders(kind, rows, arguments.timeout(timeout_ms)))

    def alter_partition_reassignments(
        self,
        targets: Mapping[PartitionName, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int = 30_000,
    ) -> Outcomes:
        """Begin to move partitions to these replicas, or with None cancel a reassignment (KIP-455).

        Partition -> None or its error. `list_partition_reassignments` returns the progress.
        """
        work = self._replicas.alter_reassignments(
            arguments.replicas_by_partition(targets),
            arguments.timeout(timeout_ms),
            allow_replication_factor_change=allow_replication_factor_change,
        )
        return self._call(work)

    def list_partition_reassignments(
        self, partitions: Iterable[PartitionName] | None = None, *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all."""
        rows = None if partitions is None else named_partitions(partitions)
        return self._call(self._replicas.list_reassignments(rows, arguments.timeout(timeout_ms)))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log dirs of these brokers, or of all, with their replicas."""
        ids = None if brokers is None else arguments.broker_ids("brokers", brokers)
        return self._call(self._replicas.describe_log_dirs(ids))

    def alter_replica_log_dirs(self, broker: int, targets: Mapping[PartitionName, str]) -> Outcomes:
        """Begin to move replicas of a broker to other log dirs of it (KIP-113).

        Partition -> None or its error. REPLICA_NOT_AVAILABLE: the broker will create the replica
        there once it has it. `describe_log_dirs` returns the progress.
        """
        (broker_id,) = arguments.broker_ids("broker", [broker])
        rows = arguments.paths_by_partition(targets)
        return self._call(self._replicas.alter_log_dirs(broker_id, rows))

    # --- transactions -------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of every coordinator, by id; each filter leaves some out (KIP-664).

        `older_than_ms` (KIP-994): transactions that have been open for longer.
        `transactional_id_pattern` (KIP-1152): a regular expression of the broker that matches the
        whole id. Raises KafkaError(UNSUPPORTED_VERSION) when a broker is too old for a filter, and
        KafkaError(INVALID_REGULAR_EXPRESSION).
        """
        wanted = arguments.transaction_filter(
            states, producer_ids, older_than_ms, transactional_id_pattern
        )
        return self._call(self._transactions.list_transactions(wanted))

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of transactional ids (KIP-664).

        Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND).
        """
        ids = arguments.names("transactional_ids", transactional_ids)
        return self._call(self._transactions.describe(ids))

    def describe_producers(
        self, partitions: Iterable[PartitionName]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The state that each partition's leader keeps of idempotent producers (KIP-664)."""
        return self._call(self._transactions.describe_producers(named_partitions(partitions)))

    def transaction_blockers(self, topics: Iterable[str] | None = None) -> list[TransactionBlocker]:
        """What blocks readers of read_committed: of each partition of these topics, or of all, the
        open transaction that holds the last stable offset. Partitions without one are left out."""
        names = None if topics is None else arguments.names("topics", topics)
        return self._call(self._open.blockers(names))

    def find_hanging_transactions(
        self,
        topics: Iterable[str] | None = None,
        *,
        partitions: Iterable[PartitionName] | None = None,
        broker: int | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    ) -> list[HangingTransaction]:
        """Open transactions that no coordinator will end (KIP-664), in these topics, or in
        `partitions`, or in all; with `broker`, only in partitions that it has a replica of.

        Transactions with a batch in the last `max_transaction_timeout_ms` are left out; 0: none.
        """
        names = None if topics is None else arguments.names("topics", topics)
        rows = None if partitions is None else named_partitions(partitions)
        node = None if broker is None else arguments.broker_ids("broker", [broker])[0]
        limit = arguments.timeout(max_transaction_timeout_ms)
        return self._call(self._open.hanging(names, rows, node, limit))

    def abort_transaction(
        self,
        partition: PartitionName,
        *,
        first_offset: int | None = None,
        producer: ProducerIdAndEpoch | None = None,
        coordinator_epoch: int = 0,
    ) -> None:
        """Write an abort marker to one partition, for a hanging transaction (KIP-664).

        The transaction is named by its first offset in the partition, or by its producer with
        the coordinator epoch that `describe_producers` shows. Never do this to a transaction that
        a coordinator still knows: it may commit the other partitions. Use `fence_producers`.
        Raises KafkaError: TRANSACTIONAL_ID_NOT_FOUND (nothing is open at the offset),
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        (tp,) = named_partitions([partition])
        named = arguments.hanging_transaction(first_offset, producer, coordinator_epoch)
        self._call(self._open.abort(tp, named))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids (KIP-588): abort their open transactions in all
        partitions, and raise their epochs. The new epochs, by transactional id.

        A transactional id that does not exist is created. `timeout_ms`: the transaction timeout
        that the id has until its next producer sets its own.
        """
        ids = arguments.names("transactional_ids", transactional_ids)
        return self._call(self._transactions.fence_all(ids, arguments.timeout(timeout_ms)))

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> None:
        """Commit or abort the open transaction of a producer that prepared it and is gone, as a
        two-phase commit decides (KIP-939). A repeated call succeeds.

        Raises ProducerFencedError, KafkaError: INVALID_TXN_STATE (nothing is open, or the other
        outcome is decided), INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH.
        """
        name = arguments.name("transactional_id", transactional_id)
        who = arguments.producer_id_and_epoch("producer", producer)
        self._call(self._transactions.end(name, who, commit=commit))


def _raise_failed(outcomes: Mapping[str, KafkaError | None]) -> None:
    """Raise the first error, with the details of all."""
    failed = [error for error in outcomes.values() if error is not None]
    if failed:
        raise kafka_error(failed[0].code, "; ".join(error.detail for error in failed))
