"""Control-plane messages between controller, brokers and managers (gRPC payloads).

A field that old brokers may miss is added with a tag (they skip it). Any other change raises
`FORMAT_VERSION`, which leads every payload: a receiver refuses what is newer than it knows, and
the sender repeats it in the older format. Every controller request is fenced by controller epoch,
broker epoch and its `sequence`; every partition state by leader epoch, partition epoch (the state
znode's version) and topic id.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema

FORMAT_VERSION = 0
NOT_NUMBERED = 0
"""The `sequence` of a controller of a release that does not number its requests."""
METADATA_NOT_TAKEN = -1
"""No metadata came with the LeaderAndIsr, or its broker is of a release that skips it."""


class Control(Message):
    """Base of control messages: versions 0 to FORMAT_VERSION, compact encodings throughout."""

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
    """One partition as the controller wants it. `leader_id` -1: offline."""

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
    """Not in sync, yet they hold all that is committed (KIP-966)."""


@wire_schema
class TopicState(Struct):
    """What brokers know of a topic beside its partitions: configs (overrides only)."""

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
    """The outcome for one partition (Kafka error code)."""

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
    """What an UpdateMetadata would tell, inside a LeaderAndIsr: one call instead of two.

    The live brokers, and the partitions that are told alike, are those of the LeaderAndIsr.
    """

    cluster_id: str = wire("string")
    full: bool = wire("bool")
    topics: tuple[TopicState, ...] = wire(TopicState, array=True)
    partitions: tuple[PartitionState, ...] = wire(PartitionState, array=True)
    """Only those that the LeaderAndIsr does not tell, or tells otherwise: these count."""
    broker_configs: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None
    )
    client_quotas: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=0, tagged="0+"
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
    """To be applied after the replicas; a broker that does not know it says nothing of it."""
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=1, tagged="0+")
    """Rises with each request of a controller's term, repeated ones too: a request that its sender
    gave up may come after what was decided later."""


@wire_schema
class LeaderAndIsrReply(Control):
    """Per partition: the outcome and the directory that holds the replica."""

    error_code: int = wire("int16")
    partitions: tuple[PartitionError, ...] = wire(PartitionError, array=True)
    metadata_error_code: int = wire("int16", default=METADATA_NOT_TAKEN, tag=0, tagged="0+")
    """The outcome of `metadata`, if that was applied."""


@wire_schema
class StopReplicaPartition(Struct):
    """Stop one replica; `delete` removes its log too."""

    topic: str = wire("string")
    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    leader_epoch: int = wire("int32")
    delete: bool = wire("bool")


@wire_schema
class StopReplicaRequest(Control):
    """Controller -> broker."""

    controller_id: int = wire("int32")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64")
    partitions: tuple[StopReplicaPartition, ...] = wire(StopReplicaPartition, array=True)
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=0, tagged="0+")
    """As in LeaderAndIsr."""


@wire_schema
class StopReplicaReply(Control):
    """Per partition: the outcome."""

    error_code: int = wire("int16")
    partitions: tuple[PartitionError, ...] = wire(PartitionError, array=True)


@wire_schema
class UpdateMetadataRequest(Control):
    """Controller -> broker: the cluster as clients shall see it; `full` replaces everything."""

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
    """All of them; null: as they were."""
    client_quotas: tuple[BrokerConfigs, ...] | None = wire(
        BrokerConfigs, array=True, nullable="0+", default=None, tag=0, tagged="0+"
    )
    """All client quotas by entity path (`users/U/clients/C`, `ips/A`); null: as they were."""
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=1, tagged="0+")
    """As in LeaderAndIsr."""


@wire_schema
class UpdateMetadataReply(Control):
    """The outcome."""

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
    """As the leader knows it: with fewer in sync it commits nothing."""


@wire_schema
class AlterPartitionRequest(Control):
    """Leader -> controller (KIP-497): ISR changes, fenced by all three epochs."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")
    partitions: tuple[AlterPartitionItem, ...] = wire(AlterPartitionItem, array=True)


@wire_schema
class AlterPartitionResult(Struct):
    """The partition as it now stands, or an error."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    error_code: int = wire("int16")
    leader_id: int = wire("int32", default=-1)
    leader_epoch: int = wire("int32")
    partition_epoch: int = wire("int32")
    isr: tuple[int, ...] = wire("int32", array=True)


@wire_schema
class AlterPartitionReply(Control):
    """Per partition: the outcome."""

    error_code: int = wire("int16")
    partitions: tuple[AlterPartitionResult, ...] = wire(AlterPartitionResult, array=True)


@wire_schema
class AssignReplicasToDirsRequest(Control):
    """Broker -> controller (KIP-858): a replica of mine is about to live in this data folder."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")
    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    directory_id: UUID = wire("uuid")
    sequence: int = wire("int64", default=NOT_NUMBERED, tag=0, tagged="0+")
    """Rises with each request of a broker, but for one that is repeated as it is: one that was
    given up may come after what the broker did later."""


@wire_schema
class AssignReplicasToDirsReply(Control):
    """The outcome; NONE: durable."""

    error_code: int = wire("int16")


@wire_schema
class ControlledShutdownRequest(Control):
    """Broker -> controller: move my leaderships away."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")


@wire_schema
class ControlledShutdownReply(Control):
    """How many partitions this broker still leads."""

    error_code: int = wire("int16")
    remaining: int = wire("int32")


@wire_schema
class AllocateProducerIdsRequest(Control):
    """Broker -> controller: a block of producer ids."""

    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64")


@wire_schema
class AllocateProducerIdsReply(Control):
    """Ids [start, start + length), never given out again."""

    error_code: int = wire("int16")
    start: int = wire("int64")
    length: int = wire("int32")


@wire_schema
class ForwardRequest(Control):
    """Broker -> controller: an admin request of a client, as its encoded body (KIP-590)."""

    forwarded_key: int = wire("int16")
    forwarded_version: int = wire("int16")
    principal: str = wire("string")
    body: bytes | memoryview = wire("bytes")


@wire_schema
class ForwardReply(Control):
    """The encoded response body; `error_code` NOT_CONTROLLER sends the broker to look again."""

    error_code: int = wire("int16")
    body: bytes | memoryview = wire("bytes")


@wire_schema
class ReplicaStateRequest(Control):
    """Follower -> leader: producer state and epochs up to `offset` (a tiered hot tail)."""

    topic_id: UUID = wire("uuid")
    partition: int = wire("int32")
    offset: int = wire("int64")


@wire_schema
class ReplicaStateReply(Control):
    """The two files as bytes, in their on-disk formats."""

    error_code: int = wire("int16")
    producer_snapshot: bytes | memoryview = wire("bytes")
    epoch_checkpoint: bytes | memoryview = wire("bytes")


@wire_schema
class TierHintRequest(Control):
    """Tierer -> leader: the table moved; verify it in Delta now."""

    topic_id: UUID = wire("uuid")


@wire_schema
class TierHintReply(Control):
    """The outcome."""

    error_code: int = wire("int16")


@wire_schema
class OffsetAtBytesItem(Struct):
    """Where does `max_bytes` of log from `start_offset` end?"""

    topic: str = wire("string")
    partition: int = wire("int32")
    start_offset: int = wire("int64")
    max_bytes: int = wire("int64")
    end_offset: int = wire("int64", default=-1)


@wire_schema
class OffsetAtBytesRequest(Control):
    """Spark planner -> leader: byte limits (`maxBytesPerTrigger`)."""

    items: tuple[OffsetAtBytesItem, ...] = wire(OffsetAtBytesItem, array=True)


@wire_schema
class OffsetAtBytesReply(Control):
    """The items with `end_offset` filled in."""

    error_code: int = wire("int16")
    items: tuple[OffsetAtBytesItem, ...] = wire(OffsetAtBytesItem, array=True)


@wire_schema
class StatusRequest(Control):
    """Manager, CLI or page -> broker: is it ready, and what does it see?"""


@wire_schema
class StatusReply(Control):
    """`ready` once registered and serving; `document` is the status page's JSON (format 1)."""

    ready: bool = wire("bool")
    broker_id: int = wire("int32")
    document: str = wire("string")


@wire_schema
class DrainRequest(Control):
    """Manager -> broker: controlled shutdown, then exit within `grace_ms`."""

    grace_ms: int = wire("int32")


@wire_schema
class DrainReply(Control):
    """The outcome."""

    error_code: int = wire("int16")


def control_messages() -> dict[str, type[Control]]:
    """Every control message by its class name, which is also its gRPC method name."""
    return {cls.__name__: cls for cls in Control.__subclasses__()}
