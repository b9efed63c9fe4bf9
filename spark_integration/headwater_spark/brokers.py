"""What planning asks of the brokers: topics, offsets, configs, control calls. Blocking, no pyspark.

Connections to the data plane are `RawClient`s; the control plane's addresses are found by asking
each broker for its configuration, so that Kafka brokers, which have none, do as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.client.addresses import parse_bootstrap
from headwater.client.control import ControlClient
from headwater.client.raw import (
    EARLIEST_LOCAL,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawClient,
)
from headwater.client.raw_connection import BlockingConnection
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.control import ControlUnavailableError
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headwater.wire.apis.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.control import (
    OffsetAtBytesItem,
    OffsetAtBytesReply,
    OffsetAtBytesRequest,
    TierHintReply,
    TierHintRequest,
)
from headwater_spark import options
from headwater_tier.keys import topic_id_text

CLIENT_ID = "headwater-spark"
CALL_TIMEOUT_S = 10.0
HINT_TIMEOUT_MS = 1_000
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
OP_SET = 0
CONTROL_KEYS = ("control.advertised.listener", "control.listener")

PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as planning needs it; `topic_id` is Kafka's text of the id."""

    name: str
    topic_id: str
    uuid: UUID
    partitions: int
    is_internal: bool
    leaders: tuple[int, ...]


class Brokers:
    """A cluster as seen from a planner or a driver. One thread at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._client = RawClient(bootstrap_servers, client_id=CLIENT_ID)
        self._any: BlockingConnection | None = None
        self._control_addresses: dict[int, str] = {}

    def close(self) -> None:
        """Close every connection."""
        self._client.close()
        if self._any is not None:
            self._any.close()
            self._any = None

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """These topics (None: all) as they are now. Raises UsageError for one that is not there."""
        try:
            found = self._client.metadata(names)
        except KafkaError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UsageError(
                    f"{e.detail or names} does not exist at {self.bootstrap_servers}"
                ) from e
            raise
        return {
            name: Topic(
                name=name,
                topic_id=topic_id_text(topic.topic_id),
                uuid=topic.topic_id,
                partitions=len(topic.partitions),
                is_internal=topic.is_internal,
                leaders=tuple(p.leader for p in topic.partitions),
            )
            for name, topic in found.items()
        }

    def list_offsets(
        self, wanted: Mapping[PartitionId, int], isolation_level: str = options.READ_UNCOMMITTED
    ) -> dict[PartitionId, int]:
        """Each partition's offset at its timestamp, or at EARLIEST or LATEST; -1: nothing there."""
        committed = isolation_level == options.READ_COMMITTED
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        found = self._client.list_offsets(dict(wanted), isolation)
        return {tp: at.offset for tp, at in found.items()}

    def local_starts(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The first offset that leaders have on their own disks (KIP-405)."""
        wanted = list(partitions)
        try:
            return self.list_offsets(dict.fromkeys(wanted, EARLIEST_LOCAL))
        except KafkaError as e:
            if e.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
                raise
            return self.list_offsets(dict.fromkeys(wanted, options.EARLIEST))

    def topic_configs(self, topic: str, keys: Iterable[str]) -> dict[str, str]:
        """The topic's values of these keys; keys that the broker does not know are left out."""
        return self._configs(RESOURCE_TOPIC, topic, keys)

    def broker_configs(self, broker_id: int, keys: Iterable[str]) -> dict[str, str]:
        """A broker's own values of these keys."""
        address = self._broker_addresses().get(broker_id)
        if address is None:
            return {}
        connection = _connect(*address)
        try:
            return _describe(connection, RESOURCE_BROKER, str(broker_id), keys)
        finally:
            connection.close()

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """One config of a topic, as IncrementalAlterConfigs (KIP-339)."""
        request = IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=RESOURCE_TOPIC,
                    resource_name=topic,
                    configs=(AlterableConfig(name=key, config_operation=OP_SET, value=value),),
                ),
            ),
            validate_only=False,
        )
        reply = self._call(request, IncrementalAlterConfigsResponse)
        answer = reply.responses[0]
        if answer.error_code:
            detail = answer.error_message or ""
            raise KafkaError(
                ErrorCode(answer.error_code), f"set {key}={value} on {topic}: {detail}"
            )

    def offsets_at_bytes(
        self, wanted: Mapping[PartitionId, tuple[int, int]]
    ) -> dict[PartitionId, int]:
        """Where so many bytes of log from an offset on end: (start, bytes) -> end offset.

        A call of Headwater's control plane. Raises UsageError with brokers that have none.
        """
        topics = self.topics(sorted({topic for topic, _ in wanted}))
        by_leader: dict[int, list[OffsetAtBytesItem]] = {}
        for (topic, partition), (start, size) in wanted.items():
            item = OffsetAtBytesItem(
                topic=topic, partition=partition, start_offset=start, max_bytes=size
            )
            by_leader.setdefault(topics[topic].leaders[partition], []).append(item)
        ends: dict[PartitionId, int] = {}
        for leader, items in by_leader.items():
            address = self.control_address(leader)
            if address is None:
                raise UsageError(
                    "option 'maxBytesPerTrigger' needs Headwater brokers; use maxOffsetsPerTrigger"
                )
            with ControlClient(address) as control:
                reply = control.call(OffsetAtBytesRequest(items=tuple(items)), OffsetAtBytesReply)
            ends.update(
                {(i.topic, i.partition): i.end_offset for i in reply.items if i.end_offset >= 0}
            )
        return ends

    def hint(self, topic: Topic) -> None:
        """Tell the leaders that the table moved. They verify; a lost hint costs only time."""
        for leader in sorted(set(topic.leaders)):
            address = self.control_address(leader)
            if address is None:
                continue
            try:
                with ControlClient(address) as control:
                    request = TierHintRequest(topic_id=topic.uuid)
                    control.call(request, TierHintReply, HINT_TIMEOUT_MS)
            except (ControlUnavailableError, KafkaError):
                self._control_addresses.pop(leader, None)

    def control_address(self, broker_id: int) -> str | None:
        """`host:port` of a broker's control plane; None for brokers without one."""
        if broker_id not in self._control_addresses:
            found = self.broker_configs(broker_id, CONTROL_KEYS)
            address = next((found[key] for key in CONTROL_KEYS if found.get(key)), "")
            self._control_addresses[broker_id] = address.removeprefix("CONTROL://")
        return self._control_addresses[broker_id] or None

    def _configs(self, kind: int, name: str, keys: Iterable[str]) -> dict[str, str]:
        wanted = tuple(keys)
        try:
            return _describe(self._connection(), kind, name, wanted)
        except OSError:
            self._forget()
            return _describe(self._connection(), kind, name, wanted)

    def _call(
        self, request: IncrementalAlterConfigsRequest, reply: type[IncrementalAlterConfigsResponse]
    ) -> IncrementalAlterConfigsResponse:
        try:
            return self._connection().call(request, reply)
        except OSError:
            self._forget()
            return self._connection().call(request, reply)

    def _forget(self) -> None:
        if self._any is not None:
            self._any.close()
            self._any = None

    def _connection(self) -> BlockingConnection:
        """A connection to any broker: the first bootstrap server that answers."""
        if self._any is None:
            failures = []
            for host, port in parse_bootstrap(self.bootstrap_servers):
                try:
                    self._any = _connect(host, port)
                    break
                except OSError as e:
                    failures.append(f"{host}:{port}: {e}")
            else:
                raise ConnectionError("no bootstrap server answers: " + "; ".join(failures))
        return self._any

    def _broker_addresses(self) -> dict[int, tuple[str, int]]:
        reply = self._connection().call(MetadataRequest(topics=()), MetadataResponse)
        return {b.node_id: (b.host, b.port) for b in reply.brokers}


def _connect(host: str, port: int) -> BlockingConnection:
    return BlockingConnection(host, port, client_id=CLIENT_ID, timeout_s=CALL_TIMEOUT_S)


def _describe(
    connection: BlockingConnection, kind: int, name: str, keys: Iterable[str]
) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=tuple(keys)
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=False, include_documentation=False
    )
    answer = connection.call(request, DescribeConfigsResponse).results[0]
    if answer.error_code:
        detail = answer.error_message or ""
        raise KafkaError(ErrorCode(answer.error_code), f"configs of {name}: {detail}")
    return {row.name: row.value for row in answer.configs if row.value is not None}
