"""The verbs of both admin clients, as coroutines: they check arguments, then ask the cluster.

`headwater.aio.AsyncAdmin` is these verbs on the caller's loop; `headwater.Admin` runs them on a
thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from headwater.client.admin import arguments
from headwater.client.admin.acls import AclCalls, AclVerbs
from headwater.client.admin.groups import GroupCalls
from headwater.client.admin.open_transactions import OpenTransactionCalls
from headwater.client.admin.quotas import QuotaCalls
from headwater.client.admin.replicas import ELECTION_TYPES, Outcomes, ReplicaCalls
from headwater.client.admin.scram import ScramCalls, ScramVerbs
from headwater.client.admin.share_groups import ShareGroupCalls, ShareGroupVerbs
from headwater.client.admin.sinks import SinkCalls, SinkVerbs
from headwater.client.admin.tokens import TokenCalls, TokenVerbs
from headwater.client.admin.topics import ISOLATION_LEVELS, RESOURCE_TYPES, TopicCalls
from headwater.client.admin.transactions import TransactionCalls
from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.partition_names import ByPartition, PartitionName, named_partitions
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


class AdminVerbs(SinkVerbs, TokenVerbs, AclVerbs, ScramVerbs, ShareGroupVerbs):
    """The verbs over one cluster. They retry what can be retried for up to
    `default_api_timeout_ms`."""

    def __init__(self, cluster: Cluster) -> None:
        self._topics = TopicCalls(cluster)
        self._groups = GroupCalls(cluster)
        self._share_groups = ShareGroupCalls(cluster)
        self._replicas = ReplicaCalls(cluster)
        self._quotas = QuotaCalls(cluster)
        self._transactions = TransactionCalls(cluster)
        self._sinks = SinkCalls(cluster)
        self._scram = ScramCalls(cluster)
        self._tokens = TokenCalls(cluster)
        self._acls = AclCalls(cluster)
        self._open = OpenTransactionCalls(cluster, self._topics, self._transactions)

    # --- topics -------------------------------------------------------------------------------

    async def create_topics(
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
        await self._topics.create(rows, limit, validate_only=validate_only)

    async def delete_topics(self, topics: Iterable[str], *, timeout_ms: int = 30_000) -> None:
        """Delete topics. Raises UnknownTopicOrPartitionError; the other topics are deleted all the
        same (`try_delete_topics` returns which)."""
        _raise_failed(await self.try_delete_topics(topics, timeout_ms=timeout_ms))

    async def try_delete_topics(
        self, topics: Iterable[str], *, timeout_ms: int = 30_000
    ) -> dict[str, KafkaError | None]:
        """Delete topics; topic -> None or its error. Raises KafkaError if no topic has a result."""
        names = arguments.names("topics", topics)
        limit = arguments.timeout(timeout_ms)
        return await self._topics.delete(names, limit) if names else {}

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        found = await self._topics.describe(None)
        return sorted(t.name for t in found if include_internal or not t.is_internal)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, patient: bool = True
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders, replicas and ISR of these topics, or of all.

        Raises UnknownTopicOrPartitionError: after retries with `patient`, since a new topic takes a
        moment to reach every broker; else as soon as every live broker lacks the topic.
        """
        names = None if topics is None else arguments.names("topics", topics)
        found = await self._topics.describe(names, patient=patient)
        return {t.name: t for t in found}

    async def create_partitions(
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
        await work

    async def list_offsets(
        self,
        wanted: ByPartition[int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of each partition at a timestamp (ms) or at EARLIEST, LATEST, ..."""
        rows = arguments.integers_by_partition("timestamp", wanted, LATEST_TIERED)
        level = arguments.one_of("isolation_level", isolation_level, ISOLATION_LEVELS)
        return await self._topics.list_offsets(rows, ISOLATION_LEVELS[level])

    async def delete_records(
        self, before: ByPartition[int], *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, int]:
        """Delete the records below each offset (-1: all); the new log start offsets."""
        rows = arguments.integers_by_partition("offset", before, -1)
        return await self._topics.delete_records(rows, arguments.timeout(timeout_ms))

    # --- configurations, quotas, the cluster --------------------------------------------------

    async def describe_configs(
        self, resource_type: ResourceType, name: str = "", *, patient: bool = True
    ) -> dict[str, ConfigEntry]:
        """The configuration of a "topic", a "broker" (`name` is its id) or a "group".

        Raises UnknownTopicOrPartitionError; for `patient` see `describe_topics`.
        """
        kind = arguments.one_of("resource_type", resource_type, RESOURCE_TYPES)
        return await self._topics.describe_configs(kind, name, patient=patient)

    async def alter_configs(
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
        await self._topics.alter_configs(kind, name, rows, validate_only=validate_only)

    async def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None
    ) -> list[ClientQuotas]:
        """The quotas of an entity, as {"client-id": "app"} or {"user": None}; by default all.

        The name None is the default entity of its type.
        """
        return await self._quotas.describe(entity)

    async def alter_client_quotas(
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
        await self._quotas.alter(known, rows, validate_only=validate_only)

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and live brokers."""
        return await self._topics.describe_cluster()

    # --- groups -------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """The groups of every coordinator, by id."""
        return await self._groups.list_groups()

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of each group; the state of one that does not exist is "Dead"."""
        return await self._groups.describe(arguments.names("groups", groups))

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members. Raises NonEmptyGroupError, GroupIdNotFoundError; the other
        groups are deleted all the same (`try_delete_groups` returns which)."""
        _raise_failed(await self.try_delete_groups(groups))

    async def try_delete_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members; group -> None or its error."""
        return await self._groups.delete(arguments.names("groups", groups))

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every committed offset of a group."""
        name = arguments.name("group", group)
        return (await self._groups.offsets([name]))[name]

    async def list_offsets_of_groups(
        self, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Every committed offset of several groups: one request to each of their coordinators."""
        return await self._groups.offsets(arguments.names("groups", groups))

    async def alter_group_offsets(
        self, group: str, offsets: ByPartition[OffsetAndMetadata | int]
    ) -> None:
        """Commit offsets for a group without members. Raises NonEmptyGroupError."""
        rows = arguments.offsets_by_partition(offsets)
        await self._groups.alter_offsets(arguments.name("group", group), rows)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[PartitionName]
    ) -> Outcomes:
        """Delete committed offsets; partition -> None or its error (GROUP_SUBSCRIBED_TO_TOPIC).

        Raises GroupIdNotFoundError.
        """
        rows = named_partitions(partitions)
        return await self._groups.delete_offsets(arguments.name("group", group), rows)

    # --- replicas -----------------------------------------------------------------------------

    async def elect_leaders(
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
        return await self._replicas.elect_leaders(kind, rows, arguments.timeout(timeout_ms))

    async def alter_partition_reassignments(
        self,
        targets: ByPartition[Sequence[int] | None],
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
        return await work

    async def list_partition_reassignments(
        self, partitions: Iterable[PartitionName] | None = None, *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all."""
        rows = None if partitions is None else named_partitions(partitions)
        return await self._replicas.list_reassignments(rows, arguments.timeout(timeout_ms))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The log dirs of these brokers, or of all, with their replicas."""
        ids = None if brokers is None else arguments.broker_ids("brokers", brokers)
        return await self._replicas.describe_log_dirs(ids)

    async def alter_replica_log_dirs(self, broker: int, targets: ByPartition[str]) -> Outcomes:
        """Begin to move replicas of a broker to other log dirs of it (KIP-113).

        Partition -> None or its error. REPLICA_NOT_AVAILABLE: the broker will create the replica
        there once it has it. `describe_log_dirs` returns the progress.
        """
        (broker_id,) = arguments.broker_ids("broker", [broker])
        rows = arguments.paths_by_partition(targets)
        return await self._replicas.alter_log_dirs(broker_id, rows)

    # --- transactions -------------------------------------------------------------------------

    async def list_transactions(
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
        return await self._transactions.list_transactions(wanted)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of transactional ids (KIP-664).

        Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND).
        """
        ids = arguments.names("transactional_ids", transactional_ids)
        return await self._transactions.describe(ids)

    async def describe_producers(
        self, partitions: Iterable[PartitionName]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The state that each partition's leader keeps of idempotent producers (KIP-664)."""
        return await self._transactions.describe_producers(named_partitions(partitions))

    async def transaction_blockers(
        self, topics: Iterable[str] | None = None
    ) -> list[TransactionBlocker]:
        """What blocks readers of read_committed: of each partition of these topics, or of all, the
        open transaction that holds the last stable offset. Partitions without one are left out."""
        names = None if topics is None else arguments.names("topics", topics)
        return await self._open.blockers(names)

    async def find_hanging_transactions(
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
        return await self._open.hanging(names, rows, node, limit)

    async def abort_transaction(
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
        await self._open.abort(tp, named)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids (KIP-588): abort their open transactions in all
        partitions, and raise their epochs. The new epochs, by transactional id.

        A transactional id that does not exist is created. `timeout_ms`: the transaction timeout
        that the id has until its next producer sets its own.
        """
        ids = arguments.names("transactional_ids", transactional_ids)
        return await self._transactions.fence_all(ids, arguments.timeout(timeout_ms))

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> None:
        """Commit or abort the open transaction of a producer that prepared it and is gone, as a
        two-phase commit decides (KIP-939). A repeated call succeeds.

        Raises ProducerFencedError, KafkaError: INVALID_TXN_STATE (nothing is open, or the other
        outcome is decided), INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH.
        """
        name = arguments.name("transactional_id", transactional_id)
        who = arguments.producer_id_and_epoch("producer", producer)
        await self._transactions.end(name, who, commit=commit)


def _raise_failed(outcomes: Mapping[str, KafkaError | None]) -> None:
    """Raise the first error, with the details of all."""
    failed = [error for error in outcomes.values() if error is not None]
    if failed:
        raise kafka_error(failed[0].code, "; ".join(error.detail for error in failed))
