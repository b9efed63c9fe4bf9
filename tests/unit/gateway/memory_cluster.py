"""A cluster in memory behind the SDK's async face, for the REST routes: topics, groups, ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from headwater.client.errors import (
    IllegalStateError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    kafka_error,
)
from headwater.client.values import (
    Broker,
    ClusterDescription,
    ConfigEntry,
    ConsumerRecord,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    RecordMetadata,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import ErrorCode
from headwater.security.acl import AclBinding, AclFilter
from headwater_gateway.app.login import Login

CLUSTER = "c1"
NOW_MS = 1_700_000_000_000
EARLIEST = -2


class MemoryCluster:
    """One broker; also the connector that logs in at it. Everyone may do everything, but for the
    topics in `denied`."""

    def __init__(self) -> None:
        self.logs: dict[str, list[list[ConsumerRecord]]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, str] = {}
        self.committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.members: dict[str, list[MemberDescription]] = {}
        self.acls: list[AclBinding] = []
        self.denied: set[str] = set()
        self.password = "secret"
        self.closed_consumers = 0

    def create(self, name: str, partitions: int = 1) -> MemoryCluster:
        """A topic."""
        self.logs[name] = [[] for _ in range(partitions)]
        self.configs[name] = {}
        return self

    def records(self, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values."""
        return [(r.key, r.value) for r in self.logs[topic][partition]]

    def log(self, topic: str, partition: int = 0) -> list[ConsumerRecord]:
        """A partition. Raises as a broker does."""
        if topic in self.denied:
            raise kafka_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
        if topic not in self.logs or partition >= len(self.logs[topic]):
            raise UnknownTopicOrPartitionError(f"{topic}-{partition}")
        return self.logs[topic][partition]

    async def connect(self, login: Login) -> MemoryClients:
        """Log in."""
        await self.check(login)
        return MemoryClients(self)

    async def check(self, login: Login) -> None:
        """Log in."""
        if login.secret not in ("", self.password):
            raise kafka_error(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")


class MemoryClients:
    """The clients of one principal."""

    servers = "127.0.0.1:9092"

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.options: Mapping[str, Any] = {}
        self.admin: Any = MemoryAdmin(cluster)

    async def producer(self) -> Any:
        """The producer."""
        return MemoryProducer(self._cluster)

    def consumer(self, *topics: str, **options: Any) -> Any:
        """A consumer."""
        return MemoryConsumer(self._cluster, options)

    async def close(self) -> None:
        """Nothing is open."""


class MemoryAdmin:
    """`AsyncAdmin`."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription(CLUSTER, 0, (Broker(0, "127.0.0.1", 9092),))

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return sorted(self._cluster.logs)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, patient: bool = True
    ) -> dict[str, TopicDescription]:
        names = sorted(self._cluster.logs) if topics is None else list(topics)
        return {name: self._describe(name) for name in names}

    def _describe(self, name: str) -> TopicDescription:
        self._cluster.log(name)
        rows = tuple(
            PartitionDescription(i, 0, 0, (0,), (0,), ())
            for i in range(len(self._cluster.logs[name]))
        )
        return TopicDescription(name, UUID(int=1), False, rows)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> None:
        for topic in topics:
            if topic.name in self._cluster.logs:
                raise TopicAlreadyExistsError(topic.name)
            if not validate_only:
                self._cluster.create(topic.name, max(topic.num_partitions, 1))
                self._cluster.configs[topic.name] = dict(topic.configs or {})

    async def delete_topics(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._cluster.log(name)
            del self._cluster.logs[name]

    async def create_partitions(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            logs = self._cluster.logs[name]
            if count <= len(logs):
                raise kafka_error(ErrorCode.INVALID_PARTITIONS, f"{name} has {len(logs)}")
            logs.extend([] for _ in range(count - len(logs)))

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {
            tp: OffsetAndTimestamp(0 if time == EARLIEST else len(self._cluster.log(*tp)), -1, -1)
            for tp, time in wanted.items()
        }

    async def describe_configs(
        self, resource_type: str, name: str = "", *, patient: bool = True
    ) -> dict[str, ConfigEntry]:
        held = self._held(resource_type, name)
        if resource_type == "topic":
            held = {"cleanup.policy": "delete", **held}
        return {
            key: ConfigEntry(key, value, "DYNAMIC_TOPIC_CONFIG", False, False, False)
            for key, value in held.items()
        }

    async def alter_configs(
        self,
        resource_type: str,
        name: str,
        settings: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        held = self._held(resource_type, name)
        for key, value in settings.items():
            if "." not in key:
                raise kafka_error(ErrorCode.INVALID_CONFIG, f"config {key}")
            if value is None:
                held.pop(key, None)
            elif not validate_only:
                held[key] = value

    def _held(self, resource_type: str, name: str) -> dict[str, str]:
        if resource_type != "topic":
            return self._cluster.broker_configs
        self._cluster.log(name)
        return self._cluster.configs[name]

    async def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        return [acl for acl in self._cluster.acls if wanted.matches(acl)]

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        self._cluster.acls += acls

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        gone = [a for a in self._cluster.acls for f in filters if f.matches(a)]
        self._cluster.acls = [a for a in self._cluster.acls if a not in gone]
        return gone

    async def list_groups(self) -> list[GroupListing]:
        names = sorted({*self._cluster.committed, *self._cluster.members})
        return [GroupListing(name, "consumer", "Stable", "Classic") for name in names]

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        known = {row.group_id for row in await self.list_groups()}
        found = {}
        for name in groups:
            members = tuple(self._cluster.members.get(name, ()))
            state = "Stable" if members else "Empty" if name in known else "Dead"
            found[name] = GroupDescription(name, state, "consumer", "range", members)
        return found

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._cluster.committed.get(group, {})

    async def list_partition_reassignments(self) -> dict[TopicPartition, Any]:
        return {}


class MemoryProducer:
    """`AsyncProducer`."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Any = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> Any:
        index = 0 if partition is None else partition
        log = self._cluster.log(topic, index)
        at = NOW_MS if timestamp is None else timestamp
        record = ConsumerRecord(topic, index, len(log), at, 0, key, value, list(headers or ()), 0)
        log.append(record)
        return _delivered(RecordMetadata(topic, index, record.offset, at))


async def _delivered(row: RecordMetadata) -> RecordMetadata:
    return row


class MemoryConsumer:
    """`AsyncConsumer`; alone in its group."""

    def __init__(self, cluster: MemoryCluster, options: Mapping[str, Any]) -> None:
        self.options = options
        self._cluster = cluster
        self._positions: dict[TopicPartition, int] = {}
        self._is_subscribed = False
        self._group = cluster.committed.setdefault(options["group_id"], {})

    async def start(self) -> MemoryConsumer:
        return self

    async def aclose(self) -> None:
        self._cluster.closed_consumers += 1

    async def subscribe(self, topics: Any = (), *, pattern: str | None = None) -> None:
        self._is_subscribed = True
        names = list(topics) if pattern is None else sorted(self._cluster.logs)
        self._go(tp for name in names for tp in self._all(name))

    def _all(self, name: str) -> list[TopicPartition]:
        return [TopicPartition(name, i) for i in range(len(self._cluster.logs.get(name, ())))]

    def _go(self, partitions: Iterable[TopicPartition]) -> None:
        begin = self.options.get("auto_offset_reset") == "earliest"
        self._positions = {
            tp: self._group[tp].offset
            if tp in self._group
            else (0 if begin else len(self._cluster.log(*tp)))
            for tp in partitions
        }

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self._is_subscribed:
            raise IllegalStateError("subscribed")
        self._go(partitions)

    async def unsubscribe(self) -> None:
        self._is_subscribed = False
        self._positions = {}

    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self._positions:
            raise IllegalStateError(f"{partition} is not assigned")
        self._positions[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.seek(tp, 0)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.seek(tp, len(self._cluster.log(*tp)))

    async def getmany(self, timeout_ms: float, max_records: int) -> list[ConsumerRecord]:
        if not self._positions and not self._is_subscribed:
            raise IllegalStateError("nothing is subscribed")
        found: list[ConsumerRecord] = []
        for tp, at in sorted(self._positions.items()):
            rows = self._cluster.log(*tp)[at : at + max_records - len(found)]
            self._positions[tp] = at + len(rows)
            found += rows
        return found

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        told = {tp: OffsetAndMetadata(at) for tp, at in self._positions.items()}
        self._group.update(offsets or told)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, Any]:
        return {tp: self._group[tp] for tp in partitions if tp in self._group}
