"""The services that handlers use, and the context of one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Authorizer, Operation, Principal, ResourceType
from headwater.ports.remote_log import RemoteLog, TieredTopic
from headwater_broker.api.api_config import ApiConfig
from headwater_broker.api.auto_topic_creation import AutoTopicCreation
from headwater_broker.api.background_calls import Background
from headwater_broker.api.broker_controls import NO_CONTROLS, BrokerControls
from headwater_broker.api.fetch_session.cache import FetchSessionCache
from headwater_broker.api.page_cache_port import Warmer
from headwater_broker.api.request_meters import Meters
from headwater_broker.coordinator.common.service import Coordinators
from headwater_broker.coordinator.group.service import GroupService
from headwater_broker.coordinator.share_state.service import ShareStateService
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.coordinator.transaction.service import TransactionService
from headwater_broker.coordinator.transaction.sink_service import SinkService
from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.group_settings import GroupSettings, GroupSettingsOf
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.replica.alter_log_dirs import AlterLogDirsManager
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.delayed_operations import Purgatories
from headwater_broker.replica.marker_writer import MarkerWriter
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.read_service import ReadService
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.replica.share.ports import Persister
from headwater_broker.replica.share.share_partition_manager import ShareManager
from headwater_broker.replica.transaction_verification import Enlistment, TransactionVerifier
from headwater_broker.runtime.broker_loggers import BrokerLoggers
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable
from headwater_broker.security.session import Session


@dataclass(frozen=True, slots=True)
class Services:
    """The services of the data plane. All of them belong to the broker's event loop."""

    broker_id: int
    cluster_id: str
    clock: Clock
    entropy: Entropy
    replicas: ReplicaManager
    logs: LogManager
    appends: AppendService
    markers: MarkerWriter
    enlistment: Enlistment
    verifier: TransactionVerifier
    reads: ReadService
    alter_log_dirs: AlterLogDirsManager
    view: MetadataCache
    controller: ControllerChannel
    groups: GroupService
    transactions: TransactionService
    sinks: SinkService
    share_states: ShareStateService
    """The share coordinators of this broker."""
    persister: Persister
    """The share coordinators wherever they are."""
    claimed_partitions: Callable[[int], Awaitable[frozenset[tuple[str, int]]]]
    """Producer id -> partitions of its open transaction that a coordinator will still end. Raises
    KafkaError when a coordinator does not answer."""
    coordinators: Coordinators
    producer_ids: ProducerIds
    authorizer: Authorizer
    purgatories: Purgatories
    sessions: FetchSessionCache
    shares: ShareManager
    meters: Meters
    warmer: Warmer
    background: Background
    auto_topics: AutoTopicCreation
    quotas: ClientQuotas
    remote_log: RemoteLog | None
    config_now: Callable[[], ApiConfig]
    disk_space: Callable[[str], tuple[int, int]]
    """Folder -> (all bytes, usable bytes) of its file system. Raises OSError."""
    tiered_topic: Callable[[str, UUID], TieredTopic]
    """(topic, topic id) -> where the topic's Delta table is."""
    tiered_end: Callable[[UUID, int], int | None]
    """(topic id, partition) -> the offset after the last one in the table; None while unknown."""
    end_offsets: Callable[[Iterable[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], int]]]
    """Partitions -> their high watermarks, of those whose leader answers."""
    leads: Callable[[str, int, int], Awaitable[bool]]
    """(topic, partition, leader epoch): whether this broker leads, as the metadata store says."""
    tokens: TokenTable = field(default_factory=lambda: TokenTable(TokenSecrets()))
    """Delegation tokens, as the metadata store has them."""
    cleaner: CleanerMeter = field(default_factory=CleanerMeter)
    acls: AclStore | None = None
    """None where no authorizer is configured: everything is allowed."""
    loggers: BrokerLoggers = field(default_factory=BrokerLoggers)
    group_settings: GroupSettingsOf = field(default_factory=lambda: lambda _: GroupSettings())
    """Group id -> the settings of that group as they are now."""

    @property
    def config(self) -> ApiConfig:
        """The present settings: some change while the broker runs (KIP-226)."""
        return self.config_now()

    def hosted(self, topic: str, partition: int) -> Partition:
        """The replica hosted here. Raises the KafkaError of `absent`."""
        found = self.replicas.partitions.get((topic, partition))
        if found is None:
            raise self.absent(topic, partition)
        return found

    def absent(self, topic: str, partition: int) -> KafkaError:
        """The error for a partition that is not hosted here: NOT_LEADER_OR_FOLLOWER if the cluster
        has it, so that clients look up its leader; else UNKNOWN_TOPIC_OR_PARTITION."""
        where = f"{topic}-{partition}"
        if self.view.partition(topic, partition) is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{where} is not hosted here")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is not known here")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A general request: its session, client id, API version, and the broker's services."""

    broker: Services
    session: Session
    client_id: str | None
    api_version: int
    correlation_id: int
    controls: BrokerControls = NO_CONTROLS
    """Actions of an operator on the whole broker."""

    @property
    def principal(self) -> Principal:
        """The session's principal."""
        return self.session.principal

    @property
    def listener(self) -> str:
        """Name of the listener that received the request."""
        return self.session.listener

    @property
    def client_host(self) -> str:
        """IP address of the client."""
        return self.session.host

    def allowed(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True when the session's principal has this right."""
        return self.session.allows(operation, resource, name)
