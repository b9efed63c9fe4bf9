"""Events that the controller handles, and the decisions that it returns. Values only.

An event with a `token` gets exactly one `Reply` with that token, after the decision is durable.
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
from headwater_broker.security.delegation_tokens import DelegationToken


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A broker's registration in ZooKeeper. `epoch` is the broker epoch."""

    epoch: int
    registration: BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """All registrations, read after a watch on /brokers/ids or the timer fired."""

    brokers: Mapping[int, RegisteredBroker]


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """A topic node that the controller did not write, with its configs."""

    name: str
    assignment: TopicAssignment
    version: int
    configs: Mapping[str, str]
    has_config: bool


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Topics that a tool wrote into ZooKeeper, as Kafka's old tools do.

    `unusable` names all topics whose nodes cannot be used, with the reason.
    """

    topics: tuple[ChangedTopic, ...]
    unusable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfigChange:
    """A tool wrote valid overrides of a topic. `has_config` False: the node was removed."""

    topic: str
    configs: Mapping[str, str]
    has_config: bool = True


@dataclass(frozen=True, slots=True)
class TopicConfigRejected:
    """A tool wrote overrides that are not valid. `version` is that of the node; None: removed."""

    topic: str
    version: int | None


@dataclass(frozen=True, slots=True)
class BrokerConfigChange:
    """A tool wrote dynamic configs of one broker, or with an empty name of all brokers."""

    name: str
    configs: Mapping[str, str]
    has_node: bool
    """False: the node was removed."""


@dataclass(frozen=True, slots=True)
class ClientQuotaChange:
    """A tool wrote the quotas of one entity; None: the node was removed."""

    path: str
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class GroupConfigChange:
    """A tool wrote the configs of one group; None: the node was removed."""

    group_id: str
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """One topic of a CreateTopics request. -1 stands for the cluster's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    repeated: tuple[int, ...] = ()
    """Partitions with more than one assignment in the request."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Reply: tuple[TopicResult, ...]."""

    token: int
    topics: tuple[NewTopic, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Topics by name, or by id where the name is None. Reply: tuple[TopicResult, ...]."""

    token: int
    topics: tuple[tuple[str | None, UUID], ...]
    requested_in_store: bool = False


@dataclass(frozen=True, slots=True)
class PartitionGrowth:
    """One topic of a CreatePartitions request: the new partition count, and the replicas of new
    partitions."""

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
    """Kinds of config resources, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """The change of one resource: all overrides (`replace`), or single operations."""

    kind: ResourceKind
    name: str
    replace: bool
    operations: tuple[tuple[str, int, str | None], ...]
    """(name, operation, value); operations: 0 set, 1 delete, 2 append, 3 subtract (KIP-339)."""


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Reply: tuple[TopicResult, ...] in the order of the edits, under their names."""

    token: int
    edits: tuple[ConfigEdit, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """The change of one entity's quotas: (key, value); None removes the quota."""

    entity: tuple[tuple[str, str | None], ...]
    """(entity type, name); a name of None stands for the default entity."""
    operations: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Reply: tuple[TopicResult, ...] in the order of the edits (KIP-546)."""

    token: int
    edits: tuple[QuotaEdit, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken:
    """A new delegation token. Principals as `User:alice`. Reply: TokenResult (KIP-48)."""

    token: int
    now_ms: int
    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int
    """0 or less: as long as the broker allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewToken:
    """`period_ms`: how long the token is valid from now on; 0 or less: as long as the broker
    allows. Reply: TokenResult."""

    token: int
    now_ms: int
    principal: str
    hmac: bytes = field(repr=False)
    period_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireToken:
    """`period_ms`: how long the token is still valid; negative: it ends now. Reply: TokenResult."""

    token: int
    now_ms: int
    principal: str
    hmac: bytes = field(repr=False)
    period_ms: int


@dataclass(frozen=True, slots=True)
class ExpireTokens:
    """Time to remove expired tokens (`delegation.token.expiry.check.interval.ms`)."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class TokenResult:
    """The result of a request about one delegation token."""

    error: ErrorCode
    token: DelegationToken | None = None
    hmac: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class CredentialEdit:
    """The change of one SCRAM credential of a user."""

    user: str
    mechanism: str
    credential: str | None = field(repr=False)
    """Kafka's text of it; None removes it."""


@dataclass(frozen=True, slots=True)
class AlterUserCredentials:
    """Reply: tuple[TopicResult, ...] in the order of the edits, under their paths (KIP-554)."""

    token: int
    edits: tuple[CredentialEdit, ...]


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
    """An election; `partitions` None stands for all.

    Reply: dict[(topic, partition), (ErrorCode, message)].
    """

    token: int
    unclean: bool
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class Reassign:
    """Target replicas per partition; None cancels the reassignment. Reply: as for ElectLeaders."""

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
    """A broker's reply to LeaderAndIsr: the directory of each replica, or an error."""

    broker_id: int
    broker_epoch: int
    reply: LeaderAndIsrReply


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker's reply to StopReplica."""

    broker_id: int
    broker_epoch: int
    asked: tuple[StopReplicaPartition, ...]
    reply: StopReplicaReply


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    """A disk of a running broker failed. Its next LeaderAndIsr reply names the replicas on it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The timer, once a second: retry what is not done yet."""


@dataclass(frozen=True, slots=True)
class AutoPreferredLeaderElection:
    """Time to check the balance of leaders (`leader.imbalance.check.interval.seconds`)."""


Event = (
    BrokerChange
    | TopicChange
    | TopicConfigChange
    | TopicConfigRejected
    | BrokerConfigChange
    | ClientQuotaChange
    | GroupConfigChange
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AlterClientQuotas
    | AlterUserCredentials
    | CreateToken
    | RenewToken
    | ExpireToken
    | ExpireTokens
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
    """The result for one topic of an admin request."""

    name: str | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = UUID(int=0)
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, sent when the writes of its Ready are durable.

    With `after_delivery` it also waits until the brokers have the new states, so that clients see
    the leaders.
    """

    token: int
    value: Any
    after_delivery: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUpdate:
    """State for one broker, newer than everything sent to it before."""

    broker_id: int
    full: bool = False
    has_metadata: bool = True
    """Whether to send UpdateMetadata. It may hold no more than the list of live brokers."""
    replicas: tuple[PartitionState, ...] = ()
    replica_topics: tuple[TopicState, ...] = ()
    metadata: tuple[PartitionState, ...] = ()
    topics: tuple[TopicState, ...] = ()
    broker_configs: tuple[BrokerConfigs, ...] | None = None
    client_quotas: tuple[BrokerConfigs, ...] | None = None
    """All client quotas; None: unchanged."""
    group_configs: tuple[BrokerConfigs, ...] | None = None
    """The configs of all groups; None: unchanged."""
    stops: tuple[StopReplicaPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The decisions of one round. First write `writes`, in order, each of them atomically; then
    send the updates and the replies."""

    writes: tuple[tuple[Operation, ...], ...] = ()
    live: tuple[LiveBroker, ...] = ()
    updates: tuple[BrokerUpdate, ...] = ()
    replies: tuple[Reply, ...] = ()
    warnings: tuple[str, ...] = ()
    """Log lines, for when the writes are durable."""
