"""Control-plane messages between controller and brokers (gRPC payloads).

A field that old brokers can do without is added with a tag, which they skip. Any other change
raises `FORMAT_VERSION`, the prefix of every payload: a receiver refuses a newer format than it
reads, and the sender repeats the message in the older one. Controller epoch, broker epoch and
`sequence` fence every controller request; leader epoch, partition epoch (the state znode's version)
and topic id fence every partition state.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema

FORMAT_VERSION = 0
NOT_NUMBERED = 0
"""The `sequence` of a controller whose release does not number its requests."""
METADATA_NOT_TAKEN = -1
"""The request held no metadata, or the broker's release skips it."""


class Control(Message):
    """Base of control messages: versions 0 to FORMAT_VERSION, always with compact encodings."""

    __slots__ = ()
    versions: ClassVar[tuple[int, int]] = (0, FORMAT_VERSION)
    flexible: ClassVar[int] = 0


@wire_schema
class ConfigEntry(Struct):
    """One config override of a topic or broker."""

    name: str = wire("string")
    value: str | None = wire("string", nullable="0+", default=None)


@wire_schema
class PartitionState(Struct):
    """The state of one partition, as decided by the controller. `leader_id` -1: offline."""

    topic: str = wire("string")
    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    leader_id: int = wire("int32", default=-1)
    leader_epoch: int = wire("int32")
    partition_epoch: int = wire("int32")
    isr: tuple[int, ...] = wire("int32", array=True)
    replicas: tuple[int, ...] = wire("int32", array=True)
    adding_replicas: tuple[int, ...] = wire("int32", array=True)
    removing_replicas: tuple[int, ...] = wire("int32", array=True)
    offline_replicas: tuple[int, ...] = wire("int32", array=True)
    is_new: bool = wire("bool")
    offline_reason: str = wire("string")
    eligible_leader_replicas: tuple[int, ...] = wire("int32", array=True, tag=0, tagged="0+")
    """Replicas outside the ISR that have every committed record (KIP-966)."""


@wire_schema
class TopicState(Struct):
    """One topic: its id and its config overrides."""

    topic: str = wire("string")
    topic_id: UUID = wire("uuid")
    configs: tuple[ConfigEntry, ...] = wire(ConfigEntry, array=True)
    deleted: bool = wire("bool")


@wire_schema
class BrokerEndpoint(Struct):
    """One listener of a live broker."""

    listener: str = wire("string", default="PLAINTEXT")
    host: str = wire("string")
    port: int = wire("int32")


@wire_schema
class LiveBroker(Struct):
    """A registered broker. `broker_epoch` is the czxid of its registration."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")
    rack: str | None = wire("string", nullable="0+", default=None)
    endpoints: tuple[BrokerEndpoint, ...] = wire(BrokerEndpoint, array=True)
    control_address: str = wire("string")


@wire_schema
class PartitionError(Struct):
    """The result for one partition (a Kafka error code)."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    error_code: int = wire("int16")
    directory_id: UUID = wire("uuid")


@wire_schema
class BrokerConfigs(Struct):
    """The dynamic configs of one broker, or with an empty name of all brokers (KIP-226)."""

    name: str = wire("string")
    configs: tuple[ConfigEntry, ...] = wire(ConfigEntry, array=True)


@wire_schema
class MetadataPart(Struct):
    """An UpdateMetadata within a LeaderAndIsr: one call instead of two.

    Live brokers, and partitions with the same state, are those of the LeaderAndIsr.
    """

    cluster_id: str = wire("string")
    full: bool = wire("bool")
    topics: tuple[TopicState, ...] = wire(TopicState, array=True)
    partitions: tuple[PartitionState, ...] = wire(PartitionState, array=True)
    """Partitions that the LeaderAndIsr does not hold, or holds with another state. These count."""
    broker_configs: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None
    )
    client_quotas: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=0, tagged="0+"
    )
    group_configs: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=1, tagged="0+"
    )


@wire_schema
class LeaderAndIsrRequest(Control):
    """Controller -> broker: become leader or follower of these partitions."""

    controller_id: int = wire("int32")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64")
    full: bool = wire("bool")
    partitions: tuple[PartitionState, ...] = wire(PartitionState, array=True)
    topics: tuple[TopicState, ...] = wire(TopicState, array=True)
    live_leaders: tuple[LiveBroker, ...] = wire(LiveBroker, array=True)
    metadata: MetadataPart | None = wire(
        MetadataPart, nullable="0+", default=None, tag=0, tagged="0+"
    )
    """Metadata to apply after the replica states. A broker that does not know it skips it."""
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=1, tagged="0+")
    """Rises with each request of a controller epoch, repeated ones too: a request that the
    controller gave up may arrive after a later one."""


@wire_schema
class LeaderAndIsrReply(Control):
    """The results per partition, with the directory of each replica."""

    error_code: int = wire("int16")
    partitions: tuple[PartitionError, ...] = wire(PartitionError, array=True)
    metadata_error_code: int = wire("int16", default=METADATA_NOT_TAKEN, tag=0, tagged="0+")
    """The result of `metadata`, if it was applied."""


@wire_schema
class StopReplicaPartition(Struct):
    """A replica to stop; `delete` removes its log too."""

    topic: str = wire("string")
    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    leader_epoch: int = wire("int32")
    delete: bool = wire("bool")


@wire_schema
class StopReplicaRequest(Control):
    """Controller -> broker: stop or delete these replicas."""

    controller_id: int = wire("int32")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64")
    partitions: tuple[StopReplicaPartition, ...] = wire(StopReplicaPartition, array=True)
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=0, tagged="0+")
    """See LeaderAndIsrRequest."""


@wire_schema
class StopReplicaReply(Control):
    """The results per partition."""

    error_code: int = wire("int16")
    partitions: tuple[PartitionError, ...] = wire(PartitionError, array=True)


@wire_schema
class UpdateMetadataRequest(Control):
    """Controller -> broker: the metadata for clients; `full` replaces all of it."""

    controller_id: int = wire("int32")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64")
    cluster_id: str = wire("string")
    full: bool = wire("bool")
    brokers: tuple[LiveBroker, ...] = wire(LiveBroker, array=True)
    topics: tuple[TopicState, ...] = wire(TopicState, array=True)
    partitions: tuple[PartitionState, ...] = wire(PartitionState, array=True)
    broker_configs: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None
    )
    """All dynamic broker configs; null: unchanged."""
    client_quotas: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=0, tagged="0+"
    )
    """All client quotas by entity path (`users/U/clients/C`, `ips/A`); null: unchanged."""
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=1, tagged="0+")
    """See LeaderAndIsrRequest."""
    group_configs: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=2, tagged="0+"
    )
    """The configs of all groups that have any, by group id; null: unchanged."""


@wire_schema
class UpdateMetadataReply(Control):
    """The result."""

    error_code: int = wire("int16")


@wire_schema
class IsrMember(Struct):
    """A proposed ISR member with the broker epoch it fetched under (KIP-903)."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)


@wire_schema
class AlterPartitionItem(Struct):
    """A leader's proposed ISR of one partition."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    leader_epoch: int = wire("int32")
    partition_epoch: int = wire("int32")
    new_isr: tuple[IsrMember, ...] = wire(IsrMember, array=True)
    min_insync_replicas: int = wire("int32", default=0)
    """The leader's min.insync.replicas: with a smaller ISR it commits nothing."""


@wire_schema
class AlterPartitionRequest(Control):
    """Leader -> controller (KIP-497): ISR changes, fenced by all three epochs."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")
    partitions: tuple[AlterPartitionItem, ...] = wire(AlterPartitionItem, array=True)


@wire_schema
class AlterPartitionResult(Struct):
    """The partition's new state, or an error."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    error_code: int = wire("int16")
    leader_id: int = wire("int32", default=-1)
    leader_epoch: int = wire("int32")
    partition_epoch: int = wire("int32")
    isr: tuple[int, ...] = wire("int32", array=True)


@wire_schema
class AlterPartitionReply(Control):
    """The results per partition."""

    error_code: int = wire("int16")
    partitions: tuple[AlterPartitionResult, ...] = wire(AlterPartitionResult, array=True)


@wire_schema
class AssignReplicasToDirsRequest(Control):
    """Broker -> controller (KIP-858): this broker is about to move a replica to this data
    folder."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")
    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    directory_id: UUID = wire("uuid")
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=0, tagged="0+")
    """Rises with each request of a broker, but not when one is repeated: a request that the broker
    gave up may arrive after a later one."""


@wire_schema
class AssignReplicasToDirsReply(Control):
    """NONE if the controller has stored the directory."""

    error_code: int = wire("int16")


@wire_schema
class ControlledShutdownRequest(Control):
    """Broker -> controller: this broker is about to stop; move its leaderships."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")


@wire_schema
class ControlledShutdownReply(Control):
    """The number of partitions that this broker still leads."""

    error_code: int = wire("int16")
    remaining: int = wire("int32")


@wire_schema
class AllocateProducerIdsRequest(Control):
    """Broker -> controller: a block of producer ids."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")


@wire_schema
class AllocateProducerIdsReply(Control):
    """Ids [start, start + length), allocated to this broker only."""

    error_code: int = wire("int16")
    start: int = wire("int64")
    length: int = wire("int32")


@wire_schema
class ForwardRequest(Control):
    """Broker -> controller: the encoded body of a client's admin request (KIP-590)."""

    forwarded_key: int = wire("int16")
    forwarded_version: int = wire("int16")
    principal: str = wire("string")
    body: bytes | memoryview = wire("bytes")


@wire_schema
class ForwardReply(Control):
    """The encoded response body. On NOT_CONTROLLER the broker looks up the controller again."""

    error_code: int = wire("int16")
    body: bytes | memoryview = wire("bytes")


@wire_schema
class ReplicaStateRequest(Control):
    """Follower -> leader: producer state and leader epochs up to `offset`, for a log that starts at
    the leader's local log start offset."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    offset: int = wire("int64")


@wire_schema
class ReplicaStateReply(Control):
    """The producer snapshot and the leader epoch checkpoint, in their on-disk formats."""

    error_code: int = wire("int16")
    producer_snapshot: bytes | memoryview = wire("bytes")
    epoch_checkpoint: bytes | memoryview = wire("bytes")


@wire_schema
class StatusRequest(Control):
    """Status page -> another broker: readiness and status. Clients send BrokerStatus (10009)."""


@wire_schema
class StatusReply(Control):
    """`ready` once registered and serving; `document` is the status page's JSON (format 1)."""

    ready: bool = wire("bool")
    broker_id: int = wire("int32")
    document: str = wire("string")


def control_messages() -> dict[str, type[Control]]:
    """Every control message by its class name, which is also its gRPC method name."""
    return {cls.__name__: cls for cls in Control.__subclasses__()}
