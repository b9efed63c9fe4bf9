"""`Admin`: topics, partitions, configurations, offsets and groups, with blocking calls.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topics([NewTopic("flights", 6, 3)])

Every call raises typed errors (`headwater.client.errors`). One thread-safe object per program.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.admin.groups import GroupCalls
from headwater.client.admin.quotas import QuotaCalls
from headwater.client.admin.replicas import Outcomes, ReplicaCalls
from headwater.client.admin.topics import TopicCalls
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.errors import kafka_error
from headwater.client.loop_thread import LoopThread
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
"""The loop's own time limit ends a call; the waiting thread gives up this much later."""
BOOTSTRAP_TIMEOUT_MS = 10_000

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


class Admin:
    """Administration of one cluster. Raises NoBrokersAvailableError when it cannot be reached."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "headwater-admin",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS,
        on_wait: Callable[[str, int], None] | None = None,
    ) -> None:
        """`on_wait` hears what a call waits for, and for how many ms at most; in another thread."""
        options = ClusterOptions(
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            default_api_timeout_ms=default_api_timeout_ms,
            on_wait=on_wait,
        )
        addresses = parse_bootstrap(bootstrap_servers)
        self._timeout_s = default_api_timeout_ms / 1000 + CALL_MARGIN_S
        self._thread = LoopThread("headwater-admin")
        self._cluster = Cluster(addresses, options)
        self._topics = TopicCalls(self._cluster)
        self._groups = GroupCalls(self._cluster)
        self._replicas = ReplicaCalls(self._cluster)
        self._quotas = QuotaCalls(self._cluster)
        try:
            self._call(self._cluster.bootstrap(bootstrap_timeout_ms))
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
        """Close connections and the background thread."""
        if not self._thread.loop.is_closed():
            self._thread.call(self._cluster.close(), CALL_MARGIN_S)
            self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work, self._timeout_s)

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        timeout_ms: int = 30_000,
        validate_only: bool = False,
    ) -> None:
        """Create topics. Raises TopicAlreadyExistsError, InvalidReplicationFactorError, ..."""
        rows = [NewTopic(t) if isinstance(t, str) else t for t in topics]
        self._call(self._topics.create(rows, timeout_ms, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: int = 30_000) -> None:
        """Delete topics. Raises UnknownTopicOrPartitionError; the others are deleted all the same:
        `try_delete_topics` tells which."""
        _raise_failed(self.try_delete_topics(topics, timeout_ms=timeout_ms))

    def try_delete_topics(
        self, topics: Iterable[str], *, timeout_ms: int = 30_000
    ) -> dict[str, KafkaError | None]:
        """Delete topics; per topic None, or why not. Raises KafkaError when nothing was done."""
        names = list(dict.fromkeys(topics))
        return self._call(self._topics.delete(names, timeout_ms)) if names else {}

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names, sorted."""
        found = self._call(self._topics.describe(None))
        return sorted(t.name for t in found if include_internal or not t.is_internal)

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, patient: bool = True
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders, replicas, ISR. Raises UnknownTopicOrPartitionError; unless
        `patient` as soon as every live broker says so."""
        names = None if topics is None else list(topics)
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
        """Grow topics to these partition counts. Raises InvalidPartitionsError.

        `assignments`: topic -> the replicas of each new partition.
        """
        work = self._topics.create_partitions(
            dict(counts), assignments or {}, timeout_ms, validate_only=validate_only
        )
        self._call(work)

    def describe_configs(
        self, resource_type: str, name: str = "", *, patient: bool = True
    ) -> dict[str, ConfigEntry]:
        """Every configuration of a "topic", "broker" (name is its id) or "group".

        Raises UnknownTopicOrPartitionError; unless `patient` as soon as every live broker says so.
        """
        return self._call(self._topics.describe_configs(resource_type, name, patient=patient))

    def alter_configs(
        self,
        resource_type: str,
        name: str,
        settings: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set each value, or reset to its default with None; others stay (KIP-339)."""
        work = self._topics.alter_configs(
            resource_type, name, dict(settings), validate_only=validate_only
        )
        self._call(work)

    def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None
    ) -> list[ClientQuotas]:
        """The quotas of {"client-id": "app"}, {"user": None}, ...; without an entity, all of them.

        The name None is the default of its type.
        """
        return self._call(self._quotas.describe(entity))

    def alter_client_quotas(
        self,
        entity: Mapping[str, str | None],
        quotas: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set each quota, or remove it with None; others stay (KIP-546).

        Raises UsageError, KafkaError(INVALID_REQUEST).
        """
        self._call(self._quotas.alter(entity, quotas, validate_only=validate_only))

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition | tuple[str, int], int],
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition, the offset at a timestamp or at EARLIEST, LATEST, ..."""
        rows = {TopicPartition(*tp): ts for tp, ts in wanted.items()}
        return self._call(self._topics.list_offsets(rows, isolation_level))

    def delete_records(
        self, before: Mapping[TopicPartition | tuple[str, int], int], *, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, int]:
        """Delete records below each offset (-1: all); the new log start offsets."""
        rows = {TopicPartition(*tp): offset for tp, offset in before.items()}
        return self._call(self._topics.delete_records(rows, timeout_ms))

    def describe_cluster(self) -> ClusterDescription:
        """Cluster id, controller and live brokers."""
        return self._call(self._topics.describe_cluster())

    def list_groups(self) -> list[GroupListing]:
        """The groups of every coordinator, by id."""
        return self._call(self._groups.list_groups())

    def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of each group; state "Dead" for one that does not exist."""
        return self._call(self._groups.describe(list(groups)))

    def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete empty groups. Raises NonEmptyGroupError, GroupIdNotFoundError; the others are
        deleted all the same: `try_delete_groups` tells which."""
        _raise_failed(self.try_delete_groups(groups))

    def try_delete_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups; per group None, or why not."""
        return self._call(self._groups.delete(list(dict.fromkeys(groups))))

    def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every committed offset of a group."""
        return self._call(self._groups.offsets(group, None))

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int],
    ) -> None:
        """Commit these positions for a group without members. Raises NonEmptyGroupError."""
        rows = {
            TopicPartition(*tp): OffsetAndMetadata(at) if isinstance(at, int) else at
            for tp, at in offsets.items()
        }
        self._call(self._groups.alter_offsets(group, rows))

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> Outcomes:
        """Forget committed offsets; per partition None, or why not (GROUP_SUBSCRIBED_TO_TOPIC).

        Raises GroupIdNotFoundError.
        """
        rows = [TopicPartition(*tp) for tp in partitions]
        return self._call(self._groups.delete_offsets(group, rows))

    def elect_leaders(
        self,
        election_type: str = "preferred",
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> Outcomes:
        """A "preferred" or "unclean" election (KIP-460) for these partitions, or for all.

        Per partition None, or why not (ELECTION_NOT_NEEDED is one reason; with None given, those
        that need none are left out).
        """
        rows = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return self._call(self._replicas.elect_leaders(election_type, rows, timeout_ms))

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition | tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int = 30_000,
    ) -> Outcomes:
        """Begin to move partitions to these replicas, or with None cancel a move (KIP-455).

        Per partition None, or why not. `list_partition_reassignments` tells how far they are.
        """
        rows = {TopicPartition(*tp): None if r is None else list(r) for tp, r in targets.items()}
        work = self._replicas.alter_reassignments(
            rows, timeout_ms, allow_replication_factor_change=allow_replication_factor_change
        )
        return self._call(work)

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The moves under way, of these partitions or of all."""
        rows = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return self._call(self._replicas.list_reassignments(rows, timeout_ms))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """The data folders of these brokers, or of all, with the replicas in them."""
        return self._call(self._replicas.describe_log_dirs(brokers))

    def alter_replica_log_dirs(
        self, broker: int, targets: Mapping[TopicPartition | tuple[str, int], str]
    ) -> Outcomes:
        """Begin to move replicas of a broker to other data folders of its (KIP-113).

        Per partition None, or why not; REPLICA_NOT_AVAILABLE: it will be made there when it comes.
        `describe_log_dirs` tells how far they are.
        """
        rows = {TopicPartition(*tp): path for tp, path in targets.items()}
        return self._call(self._replicas.alter_log_dirs(broker, rows))

    def describe_producers(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that each partition's leader remembers (KIP-664)."""
        rows = [TopicPartition(*tp) for tp in partitions]
        return self._call(self._replicas.describe_producers(rows))


def _raise_failed(outcomes: Mapping[str, KafkaError | None]) -> None:
    """The first code, with the story of all that failed."""
    failed = [error for error in outcomes.values() if error is not None]
    if failed:
        raise kafka_error(failed[0].code, "; ".join(error.detail for error in failed))
