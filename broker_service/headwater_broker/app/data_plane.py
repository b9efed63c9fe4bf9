"""Builds the data plane: replicas, delayed operations, coordinators, the services of handlers.

Used by the composition root (`app.wiring`), and by tests that run a data plane without a store.
Every part is handed its collaborators when it is made; `subscribe` functions at the end list which
part hears of which change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from headwater.config.connection_overrides import connection_overrides
from headwater.config.keys import Values
from headwater.config.layers import BrokerSettings
from headwater.config.listener_values import listener_values
from headwater.config.rows_broker import RACK_AWARE_SELECTOR
from headwater.ports.authorizer import Authorizer
from headwater.ports.remote_log import RemoteLog, TieredTopic
from headwater.security.protocol import SecurityProtocol
from headwater.system_files import disk_space
from headwater.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from headwater.wire.restore_names import GROUPS_PENDING
from headwater_broker.api.admin.table_place import ALLOWED_URIS
from headwater_broker.api.api_config import ApiConfig, InternalTopicConfig
from headwater_broker.api.background_calls import Background
from headwater_broker.api.context import Services
from headwater_broker.api.fetch_session.cache import FetchSessionCache
from headwater_broker.api.k03_metadata import create_on_demand
from headwater_broker.api.page_cache_port import Warmer
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.request_meters import Meters
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.end_offsets import EndOffsets
from headwater_broker.app.enlistment import TransactionEnlistment
from headwater_broker.app.marker_channel import IsDeleted, MarkerChannel, deleted_for_all
from headwater_broker.app.share_state_channel import ShareStateChannel
from headwater_broker.app.transaction_channel import TransactionChannel
from headwater_broker.app.transaction_claims import TransactionClaims
from headwater_broker.coordinator.common.service import (
    CoordinatorParts,
    Coordinators,
    CoordinatorType,
)
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.service import GroupService
from headwater_broker.coordinator.share_state.config import ShareCoordinatorConfig
from headwater_broker.coordinator.share_state.service import ShareStateService
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.coordinator.transaction.service import TransactionService
from headwater_broker.coordinator.transaction.sink_service import SinkService
from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.group_settings import GroupSettingsOf, KnownGroupSettings
from headwater_broker.network.connection import Connection
from headwater_broker.network.listener import Listener, MakeAuthenticator, MakeConnection
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.alter_log_dirs import AlterLogDirsManager
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.delayed_operations import Purgatories
from headwater_broker.replica.marker_writer import EndTransaction, MarkerWriter
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.read_service import ReadService
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.share.led_partition import ShareParts
from headwater_broker.replica.share.ports import Persister
from headwater_broker.replica.share.share_partition_manager import ShareManager, first_offset
from headwater_broker.replica.transaction_verification import TransactionVerifier
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable

OWN_NAME = "headwater"
"""The principal that the broker creates its own topics as, for the controller's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneParts:
    """What the data plane is built from; clock, entropy and off_loop come with `replication`."""

    loop: asyncio.AbstractEventLoop
    dynamic: DynamicConfigs
    view: MetadataCache
    logs: LogManager
    limits: ReplicationConfig
    replication: ReplicationPorts
    controller: ControllerChannel
    authorizer: Authorizer
    warmer: Warmer
    leads: Callable[[str, int, int], Awaitable[bool]]
    producer_ids: ProducerIds
    tiered_topic: Callable[[str, UUID], TieredTopic]
    remote_log: RemoteLog | None = None
    tokens: TokenTable = field(default_factory=lambda: TokenTable(TokenSecrets()))
    cleaner: CleanerMeter = field(default_factory=CleanerMeter)
    disk_space: Callable[[str], tuple[int, int]] = disk_space
    is_topic_deleted: IsDeleted = deleted_for_all
    acls: AclStore | None = None
    persister: Persister | None = None
    """Of share partitions; None: the share coordinators of the cluster."""
    group_settings: GroupSettingsOf | None = None
    """In place of the configs of groups, for tests."""


@dataclass(frozen=True, slots=True)
class DataPlane:
    """A broker's data plane, without its listeners."""

    purgatories: Purgatories
    appends: AppendService
    replicas: ReplicaManager
    services: Services
    transaction_channel: TransactionChannel
    share_state_channel: ShareStateChannel


def build_data_plane(parts: DataPlaneParts) -> DataPlane:
    """Build it, each part after the parts that it uses."""
    dynamic, view, ports = parts.dynamic, parts.view, parts.replication
    config = dynamic.config
    purgatories = Purgatories(parts.loop, lambda: view.brokers)
    appends = AppendService(purgatories, ports.clock)
    replicas = ReplicaManager(
        config.broker_id,
        parts.logs,
        parts.limits,
        ports,
        on_leadership=appends.leadership_changed,
    )
    coordinators = _build_coordinators(parts, replicas, appends)
    services = _build_services(parts, replicas, appends, purgatories, coordinators)
    _subscribe_to_configs(dynamic, parts.logs, replicas)
    _subscribe_to_metadata(view, services)
    coordinators.persister.create_topic = lambda: create_on_demand(
        services, (SHARE_STATE_TOPIC,), OWN_NAME
    )
    if parts.acls is not None:
        parts.acls.on_change.append(purgatories.fetch.recheck_all)
    return DataPlane(
        purgatories, appends, replicas, services, coordinators.channel, coordinators.persister
    )


def _build_services(
    parts: DataPlaneParts,
    replicas: ReplicaManager,
    appends: AppendService,
    purgatories: Purgatories,
    coordinators: _Coordinators,
) -> Services:
    """The services of the handlers."""
    dynamic, view, ports = parts.dynamic, parts.view, parts.replication
    config = dynamic.config
    reads = ReadService(parts.remote_log, parts.tiered_topic, ports.tiered_end)
    api_config = CurrentApiConfig(dynamic)
    return Services(
        broker_id=config.broker_id,
        cluster_id=view.cluster_id,
        clock=ports.clock,
        entropy=ports.entropy,
        replicas=replicas,
        logs=parts.logs,
        appends=appends,
        markers=coordinators.markers,
        enlistment=coordinators.enlistment,
        verifier=TransactionVerifier(coordinators.enlistment, appends.lowest),
        reads=reads,
        alter_log_dirs=_alter_log_dirs(parts, replicas),
        view=view,
        controller=parts.controller,
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        sinks=coordinators.sinks,
        share_states=coordinators.share_states,
        persister=coordinators.persister,
        coordinators=coordinators.by_type(),
        claimed_partitions=coordinators.claims.partitions_of,
        producer_ids=parts.producer_ids,
        authorizer=parts.authorizer,
        purgatories=purgatories,
        sessions=FetchSessionCache(
            api_config.value.fetch_session_slots, ports.clock, ports.entropy
        ),
        meters=Meters(),
        warmer=parts.warmer,
        background=Background(),
        quotas=ClientQuotas(ports.clock, *_quota_windows(config.values)),
        remote_log=parts.remote_log,
        config_now=api_config.now,
        disk_space=parts.disk_space,
        tiered_topic=parts.tiered_topic,
        tiered_end=ports.tiered_end,
        end_offsets=EndOffsets(view, replicas, ports.connect, parts.limits.listener).of,
        leads=parts.leads,
        tokens=parts.tokens,
        cleaner=parts.cleaner,
        acls=parts.acls,
        group_settings=coordinators.group_settings,
        shares=_shares(parts, replicas, reads, purgatories, coordinators),
    )


def _alter_log_dirs(parts: DataPlaneParts, replicas: ReplicaManager) -> AlterLogDirsManager:
    return AlterLogDirsManager(
        parts.logs,
        replicas,
        parts.replication.clock,
        off_loop=parts.replication.off_loop,
        assign=parts.controller.assign_directory,
    )


def _shares(
    parts: DataPlaneParts,
    replicas: ReplicaManager,
    reads: ReadService,
    purgatories: Purgatories,
    coordinators: _Coordinators,
) -> ShareManager:
    clock, dynamic = parts.replication.clock, parts.dynamic
    shares = ShareManager(
        ShareParts(
            persister=parts.persister or coordinators.persister,
            settings_of=coordinators.group_settings,
            first_offset=first_offset(reads, clock.now_ms),
            clock=clock,
            loop=parts.loop,
            purgatory=purgatories.fetch,
        ),
        lambda: dynamic.config.values.integer("group.share.max.share.sessions"),
    )
    replicas.leadership_listeners.append(shares.leadership_changed)
    return shares


@dataclass(frozen=True, slots=True)
class _Coordinators:
    """The coordinators, and how they reach partitions and each other."""

    group_settings: GroupSettingsOf
    groups: GroupService
    transactions: TransactionService
    sinks: SinkService
    markers: MarkerWriter
    enlistment: TransactionEnlistment
    claims: TransactionClaims
    channel: TransactionChannel
    share_states: ShareStateService
    persister: ShareStateChannel

    def by_type(self) -> Coordinators:
        return {
            CoordinatorType.GROUP: self.groups.coordinator,
            CoordinatorType.TRANSACTION: self.transactions.coordinator,
            CoordinatorType.SHARE: self.share_states.coordinator,
        }


def _build_coordinators(
    parts: DataPlaneParts, replicas: ReplicaManager, appends: AppendService
) -> _Coordinators:
    view, ports, config = parts.view, parts.replication, parts.dynamic.config
    coordinator_parts = CoordinatorParts(
        replicas, appends, view, ports.clock, ports.entropy, parts.leads, ports.off_loop
    )
    connections = BrokerConnections(view, ports.connect, parts.limits.listener)
    for_markers = BrokerConnections(view, ports.connect, parts.limits.listener)
    for_share_states = BrokerConnections(view, ports.connect, parts.limits.listener)
    view.on_brokers += [
        connections.live_brokers_changed,
        for_markers.live_brokers_changed,
        for_share_states.live_brokers_changed,
    ]
    channel = TransactionChannel(config.broker_id, connections, for_markers)
    dynamic = parts.dynamic
    group_settings = parts.group_settings or KnownGroupSettings(
        view, lambda: dynamic.config.values, lambda: dynamic.settings.merged()
    )
    # Markers reach groups through their coordinator, which is built last: it enlists its partition.
    replaying: dict[str, EndTransaction] = {}
    markers = MarkerWriter(replicas, appends, ports.clock, replaying)
    of_transactions = TransactionConfig.from_values(config.values)
    transactions = TransactionService(
        coordinator_parts,
        of_transactions,
        parts.producer_ids,
        MarkerChannel(config.broker_id, view, markers, channel, parts.is_topic_deleted),
    )
    sinks = SinkService(transactions.coordinator, of_transactions, parts.producer_ids)
    enlistment = TransactionEnlistment(config.broker_id, view, transactions, channel)
    share_states = ShareStateService(
        coordinator_parts, ShareCoordinatorConfig.from_values(config.values)
    )
    persister = ShareStateChannel(
        config.broker_id, view, share_states, for_share_states, ports.clock
    )
    groups = GroupService(
        coordinator_parts, GroupConfig.from_values(config.values), persister, group_settings
    )
    replaying[groups.coordinator.topic] = groups.coordinator.runtime.end_transaction
    claims = TransactionClaims(config.broker_id, view, transactions, connections)
    return _Coordinators(
        group_settings,
        groups,
        transactions,
        sinks,
        markers,
        enlistment,
        claims,
        channel,
        share_states,
        persister,
    )


def _subscribe_to_configs(
    dynamic: DynamicConfigs, logs: LogManager, replicas: ReplicaManager
) -> None:
    """Broker configs that changed reach replication quotas and logs."""

    def set_replication_quotas(config: NodeConfig) -> None:
        replicas.quotas.set_rates(
            config.values.integer("leader.replication.throttled.rate"),
            config.values.integer("follower.replication.throttled.rate"),
            config.values.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
        )

    def set_log_defaults(config: NodeConfig) -> None:
        logs.set_broker_properties(config.properties)
        replicas.update_log_configs()

    set_replication_quotas(dynamic.config)
    dynamic.on_change += [set_replication_quotas, set_log_defaults]


def _subscribe_to_metadata(view: MetadataCache, services: Services) -> None:
    """Changed metadata and leadership reach logs, delayed operations, coordinators and quotas."""
    replicas = services.replicas

    def metadata_changed(change: MetadataDelta) -> None:
        for topic in change.configs:  # LeaderAndIsr carries the configs of new topics only
            known = view.topics.get(topic)
            if known is not None and known.topic_id.bytes in replicas.topic_ids:
                replicas.update_topic_configs(known.topic_id, known.configs)
        for topic in change.deleted:
            services.meters.forget(topic)
        if change.client_quotas:
            services.quotas.update(view.client_quotas)

    view.on_change.append(metadata_changed)
    for coordinator in services.coordinators.values():
        replicas.leadership_listeners.append(coordinator.leadership_changed)
        view.on_change.append(coordinator.metadata_changed)
    groups = services.groups
    view.on_change += [groups.consumers.metadata_changed, groups.shares.metadata_changed]
    view.on_change.append(services.share_states.remember_topics)
    view.on_brokers.append(services.purgatories.watches.live_brokers_changed)


def _quota_windows(v: Values) -> tuple[Windows, Windows]:
    """Those of client quotas, and those of topic changes."""
    clients = Windows(v.integer("quota.window.num"), v.integer("quota.window.size.seconds"))
    count = v.integer("controller.quota.window.num")
    return clients, Windows(count, v.integer("controller.quota.window.size.seconds"))


def build_listener(
    dynamic: DynamicConfigs,
    services: Services,
    name: str,
    make_connection: MakeConnection = Connection,
    make_authenticator: MakeAuthenticator | None = None,
) -> Listener:
    """One listener by name; it is not bound yet. `make_connection` is its transport."""
    values = dynamic.config.values
    listener = Listener(
        services,
        load_handlers(),
        asyncio.get_running_loop(),
        name=name,
        protocol=dynamic.config.protocols.get(name, SecurityProtocol.PLAINTEXT),
        make_connection=make_connection,
        make_authenticator=make_authenticator,
        request_bytes_max=values.integer("socket.request.max.bytes"),
        unauthenticated_request_bytes_max=listener_values(dynamic.config.properties, name).integer(
            "sasl.server.max.receive.size"
        ),
        in_flight_max=values.integer("queued.max.requests"),
        send_buffer_bytes=values.integer("socket.send.buffer.bytes"),
        receive_buffer_bytes=values.integer("socket.receive.buffer.bytes"),
        idle_ms=values.integer("connections.max.idle.ms"),
        connections_max=values.integer("max.connections"),
        connections_per_host_max=values.integer("max.connections.per.ip"),
        connections_of_host=connection_overrides(
            values.strings("max.connections.per.ip.overrides")
        ),
        connections_per_s=values.integer("max.connection.creation.rate"),
    )
    dynamic.on_change.append(lambda config: listener.limit_connections(config.values))
    return listener


class CurrentApiConfig:
    """The settings that handlers read, as they are now (KIP-226)."""

    def __init__(self, dynamic: DynamicConfigs) -> None:
        self._dynamic = dynamic
        self.value = api_config(dynamic.config, dynamic.settings)
        dynamic.on_change.append(self._changed)

    def now(self) -> ApiConfig:
        """The present settings."""
        return self.value

    def _changed(self, config: NodeConfig) -> None:
        self.value = api_config(config, self._dynamic.settings)


def internal_topics(v: Values) -> dict[str, InternalTopicConfig]:
    """How the coordinators' topics are created, by name."""
    transaction_replicas = v.integer("transaction.state.log.replication.factor")
    # A cluster of one broker would refuse every write with more than one in-sync replica.
    min_isr = min(v.integer("transaction.state.log.min.isr"), transaction_replicas)
    share_replicas = v.integer("share.coordinator.state.topic.replication.factor")
    share_min_isr = min(v.integer("share.coordinator.state.topic.min.isr"), share_replicas)
    return {
        OFFSETS_TOPIC: InternalTopicConfig(
            v.integer("offsets.topic.num.partitions"),
            v.integer("offsets.topic.replication.factor"),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(v.integer("offsets.topic.segment.bytes"))),
            ),
        ),
        TRANSACTION_TOPIC: InternalTopicConfig(
            v.integer("transaction.state.log.num.partitions"),
            transaction_replicas,
            (
                ("unclean.leader.election.enable", "false"),
                ("compression.type", "uncompressed"),
                ("cleanup.policy", "compact"),
                ("min.insync.replicas", str(min_isr)),
                ("segment.bytes", str(v.integer("transaction.state.log.segment.bytes"))),
            ),
        ),
        SHARE_STATE_TOPIC: InternalTopicConfig(
            v.integer("share.coordinator.state.topic.num.partitions"),
            share_replicas,
            (
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(share_min_isr)),
                ("retention.bytes", "-1"),
                ("retention.ms", "-1"),
                ("segment.bytes", str(v.integer("share.coordinator.state.topic.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
        ),
    }


def api_config(config: NodeConfig, settings: BrokerSettings) -> ApiConfig:
    """The settings that handlers read, out of a broker's settings."""
    v = config.values
    return ApiConfig(
        auto_create_topics=v.boolean("auto.create.topics.enable"),
        num_partitions=v.integer("num.partitions"),
        default_replication_factor=v.integer("default.replication.factor"),
        min_insync_replicas=v.integer("min.insync.replicas"),
        fetch_max_bytes=v.integer("fetch.max.bytes"),
        fetch_session_slots=v.integer("max.incremental.fetch.session.cache.slots"),
        internal_topics=internal_topics(v),
        request_timeout_ms=v.integer("request.timeout.ms"),
        awaits_restored_groups=v.boolean(GROUPS_PENDING),
        selects_by_rack=v.string("replica.selector.class") == RACK_AWARE_SELECTOR,
        table_bases=v.strings(ALLOWED_URIS) if v.is_set(ALLOWED_URIS) else (config.tables_uri,),
        settings=settings,
    )
