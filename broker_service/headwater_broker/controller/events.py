"""What the controller reacts to, and what it answers. Values only.

Events with a `token` get exactly one `Reply` with that token, after the decision is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Operation
from headwater.wire.control import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerConfigs,
    LeaderAndIsrReply,
    LiveBroker,
    PartitionState,
    StopReplicaPartition,
    StopReplicaReply,
    TopicState,
)
from headwater_broker.metadata.znodes import BrokerRegistration, TopicAssignment


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registration as found in the store."""

    epoch: int
    registration: BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """All registrations, read after the watch on /brokers/ids or the timer fired."""

    brokers: Mapping[int, RegisteredBroker]


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """A topic node that the controller did not write, with what lies beside it."""

    name: str
    assignment: TopicAssignment
    version: int
    configs: Mapping[str, str]
    has_config: bool


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Topics made by hand in the store, as Kafka's old tools do. `unusable`: all those that cannot
    be used, and why."""

    topics: tuple[ChangedTopic, ...]
    unusable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfigChange:
    """A topic's overrides were edited by hand, and are valid. `has_config`: there is a node."""

    topic: str
    configs: Mapping[str, str]
    has_config: bool = True


@dataclass(frozen=True, slots=True)
class TopicConfigRejected:
    """They are not valid; `version` of the node with them, None: it was removed."""

    topic: str
    version: int | None


@dataclass(frozen=True, slots=True)
class BrokerConfigChange:
    """A broker's dynamic configs, or with an empty name those of all, were edited by hand."""

    name: str
    configs: Mapping[str, str]
    has_node: bool
    """False: the node was removed."""


@dataclass(frozen=True, slots=True)
class ClientQuotaChange:
    """The quotas of one entity were edited by hand; None: their node was removed."""

    path: str
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """One topic of a CreateTopics request. -1: the cluster's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    repeated: tuple[int, ...] = ()
    """Partitions that the request assigns more than once."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Reply: tuple[TopicResult, ...]."""

    token: int
    topics: tuple[NewTopic, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """By name or, where the name is None, by id. Reply: tuple[TopicResult, ...]."""

    token: int
    topics: tuple[tuple[str | None, UUID], ...]
    requested_in_store: bool = False


@dataclass(frozen=True, slots=True)
class PartitionGrowth:
    """One topic of a CreatePartitions request: the new total, and where the new ones go."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Reply: tuple[TopicResult, ...]."""

    token: int
    topics: tuple[PartitionGrowth, ...]
    validate_only: bool


class ResourceKind(IntEnum):
    """What has configs, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One resource's change: all overrides anew (`replace`), or single operations."""

    kind: ResourceKind
    name: str
    replace: bool
    operations: tuple[tuple[str, int, str | None], ...]
    """(name, operation 0 set, 1 delete, 2 append, 3 subtract; value). KIP-339."""


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Reply: tuple[TopicResult, ...], in the order of the edits; their names are the edits'."""

    token: int
    edits: tuple[ConfigEdit, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """One entity's change: (key, value or None to remove it). An empty name is an error."""

    entity: tuple[tuple[str, str | None], ...]
    """(entity type, name; None: the default)."""
    operations: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Reply: tuple[TopicResult, ...], in the order of the edits, with errors only (KIP-546)."""

    token: int
    edits: tuple[QuotaEdit, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Reply: AlterPartitionReply."""

    token: int
    request: AlterPartitionRequest


@dataclass(frozen=True, slots=True)
class AssignReplicaToDir:
    """Reply: AssignReplicasToDirsReply."""

    token: int
    request: AssignReplicasToDirsRequest


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """Reply: ControlledShutdownReply."""

    token: int
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """`partitions` None: all. Reply: dict[(topic, partition), (ErrorCode, message)]."""

    token: int
    unclean: bool
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class Reassign:
    """Target replicas per partition; None cancels. Reply: as of ElectLeaders."""

    token: int
    targets: Mapping[tuple[str, int], tuple[int, ...] | None]
    is_factor_change_allowed: bool = True


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Reply: AllocateProducerIdsReply."""

    token: int
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker took its states; it names the directory of each replica, or an error."""

    broker_id: int
    broker_epoch: int
    reply: LeaderAndIsrReply


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker stopped, or deleted, replicas."""

    broker_id: int
    broker_epoch: int
    asked: tuple[StopReplicaPartition, ...]
    reply: StopReplicaReply


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    """A disk of a running broker failed: its answers will say which replicas are lost."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The healing timer: what should have moved by now and has not is tried again."""


@dataclass(frozen=True, slots=True)
class AutoPreferredLeaderElection:
    """Time to bring leaders back to preferred replicas."""


Event = (
    BrokerChange
    | TopicChange
    | TopicConfigChange
    | TopicConfigRejected
    | BrokerConfigChange
    | ClientQuotaChange
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AlterClientQuotas
    | AlterPartition
    | AssignReplicaToDir
    | ControlledShutdown
    | ElectLeaders
    | Reassign
    | AllocateProducerIds
    | LeaderAndIsrResponseReceived
    | StopReplicaResponseReceived
    | LogDirFailure
    | Tick
    | AutoPreferredLeaderElection
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """The outcome for one topic of an admin request."""

    name: str | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = UUID(int=0)
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, to be given when the writes of its Ready are durable.

    `after_delivery`: and when the brokers have taken the states, so that leaders are visible.
    """

    token: int
    value: Any
    after_delivery: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUpdate:
    """What one broker shall be told, all of it newer than anything told before."""

    broker_id: int
    full: bool = False
    has_metadata: bool = True
    """Its metadata are to be told, also when they are no more than who is live."""
    replicas: tuple[PartitionState, ...] = ()
    replica_topics: tuple[TopicState, ...] = ()
    metadata: tuple[PartitionState, ...] = ()
    topics: tuple[TopicState, ...] = ()
    broker_configs: tuple[BrokerConfigs, ...] | None = None
    client_quotas: tuple[BrokerConfigs, ...] | None = None
    """All of them; None: as they were."""
    stops: tuple[StopReplicaPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Decisions: first the writes, in order, each group all or nothing; then updates, replies."""

    writes: tuple[tuple[Operation, ...], ...] = ()
    live: tuple[LiveBroker, ...] = ()
    updates: tuple[BrokerUpdate, ...] = ()
    replies: tuple[Reply, ...] = ()
    warnings: tuple[str, ...] = ()
    """For the log, once durable."""
