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
from headwater.config.listener_values import listener_values
from headwater.ports.authorizer import Authorizer
from headwater.ports.remote_log import RemoteLog, TieredTopic
from headwater.security.protocol import SecurityProtocol
from headwater.system_files import disk_space
from headwater.topic_names import SHARE_STATE_TOPIC
from headwater_broker.api.auto_topic_creation import AutoTopicCreation
from headwater_broker.api.background_calls import Background
from headwater_broker.api.broker_controls import NO_CONTROLS, BrokerControls
from headwater_broker.api.context import Services
from headwater_broker.api.fetch_session.cache import FetchSessionCache
from headwater_broker.api.page_cache_port import Warmer
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.request_meters import Meters
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.current_api_config import CurrentApiConfig
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
from headwater_broker.network.listener import Listener, MakeConnection
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.alter_log_dirs import AlterLogDirsManager
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.delayed_operations import Purgatories
from headwater_broker.replica.marker_writer import MarkerWriter
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.read_service import ReadService
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.share.led_partition import ShareParts
from headwater_broker.replica.share.ports import Persister
from headwater_broker.replica.share.share_partition_manager import ShareManager, first_offset
from headwater_broker.replica.transaction_verification import TransactionVerifier
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable
from headwater_broker.security.session import MakeAuthenticator

OWN_NAME = "headwater"
"""The principal that the broker creates its own topics as, for the controller's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneParts:
    """The parts of the data plane; clock, entropy and off_loop come with `replication`."""

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
    reads = ReadService(parts.remote_log, parts.tiered_topic, ports.tiered_end)
    core = _Core(purgatories, appends, replicas, reads)
    creation = _topic_creation(parts)
    coordinators = _build_coordinators(parts, core, creation.topics)
    services = _build_services(parts, core, coordinators, creation)
    _subscribe_to_configs(dynamic, parts.logs, replicas)
    _subscribe_to_metadata(view, services)
    if parts.acls is not None:
        parts.acls.on_change.append(purgatories.fetch.recheck_all)
    return DataPlane(
        purgatories, appends, replicas, services, coordinators.channel, coordinators.persister
    )


@dataclass(frozen=True, slots=True)
class _Core:
    """Replicas, and the services of the replica layer."""

    purgatories: Purgatories
    appends: AppendService
    replicas: ReplicaManager
    reads: ReadService


@dataclass(frozen=True, slots=True)
class _TopicCreation:
    """Topics created on demand, and the parts that they share with the handlers."""

    config: CurrentApiConfig
    background: Background
    topics: AutoTopicCreation


def _topic_creation(parts: DataPlaneParts) -> _TopicCreation:
    config, background = CurrentApiConfig(parts.dynamic), Background()
    clock = parts.replication.clock
    topics = AutoTopicCreation(parts.controller, background, clock, config.now)
    return _TopicCreation(config, background, topics)


def _build_services(
    parts: DataPlaneParts,
    core: _Core,
    coordinators: _Coordinators,
    creation: _TopicCreation,
) -> Services:
    """The services of the handlers."""
    replicas, appends, purgatories = core.replicas, core.appends, core.purgatories
    config, view, ports = parts.dynamic.config, parts.view, parts.replication
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
        reads=core.reads,
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
            creation.config.value.fetch_session_slots, ports.clock, ports.entropy
        ),
        meters=Meters(),
        warmer=parts.warmer,
        background=creation.background,
        auto_topics=creation.topics,
        quotas=ClientQuotas(ports.clock, *_quota_windows(config.values)),
        remote_log=parts.remote_log,
        config_now=creation.config.now,
        disk_space=parts.disk_space,
        tiered_topic=parts.tiered_topic,
        tiered_end=ports.tiered_end,
        end_offsets=EndOffsets(view, replicas, ports.connect, parts.limits.listener).of,
        leads=parts.leads,
        tokens=parts.tokens,
        cleaner=parts.cleaner,
        acls=parts.acls,
        group_settings=coordinators.group_settings,
        shares=_shares(parts, core, coordinators),
    )


def _alter_log_dirs(parts: DataPlaneParts, replicas: ReplicaManager) -> AlterLogDirsManager:
    return AlterLogDirsManager(
        parts.logs,
        replicas,
        parts.replication.clock,
        off_loop=parts.replication.off_loop,
        assign=parts.controller.assign_directory,
    )


def _shares(parts: DataPlaneParts, core: _Core, coordinators: _Coordinators) -> ShareManager:
    clock, dynamic = parts.replication.clock, parts.dynamic
    shares = ShareManager(
        ShareParts(
            persister=parts.persister or coordinators.persister,
            settings_of=coordinators.group_settings,
            first_offset=first_offset(core.reads, clock.now_ms),
            clock=clock,
            loop=parts.loop,
            purgatory=core.purgatories.fetch,
        ),
        lambda: dynamic.config.values.integer("group.share.max.share.sessions"),
    )
    core.replicas.leadership_listeners.append(shares.leadership_changed)
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
    parts: DataPlaneParts, core: _Core, auto_topics: AutoTopicCreation
) -> _Coordinators:
    view, ports, config = parts.view, parts.replication, parts.dynamic.config
    coordinator_parts = _coordinator_parts(parts, core)
    connections, for_markers, for_share_states = (_connections(parts) for _ in range(3))
    share_states = ShareStateService(
        coordinator_parts, ShareCoordinatorConfig.from_values(config.values)
    )
    persister = ShareStateChannel(
        config.broker_id,
        view,
        share_states,
        for_share_states,
        ports.clock,
        create_topic=lambda: auto_topics.create((SHARE_STATE_TOPIC,), OWN_NAME),
    )
    group_settings = _group_settings(parts)
    groups = GroupService(
        coordinator_parts, GroupConfig.from_values(config.values), persister, group_settings
    )
    # Markers of committed offsets reach groups through their coordinator, which replays them.
    replaying = {groups.coordinator.topic: groups.coordinator.runtime.end_transaction}
    markers = MarkerWriter(core.replicas, core.appends, ports.clock, replaying)
    channel = TransactionChannel(config.broker_id, connections, for_markers)
    of_transactions = TransactionConfig.from_values(config.values)
    transactions = TransactionService(
        coordinator_parts,
        of_transactions,
        parts.producer_ids,
        MarkerChannel(config.broker_id, view, markers, channel, parts.is_topic_deleted),
    )
    return _Coordinators(
        group_settings=group_settings,
        groups=groups,
        transactions=transactions,
        sinks=SinkService(transactions.coordinator, of_transactions, parts.producer_ids),
        markers=markers,
        enlistment=TransactionEnlistment(config.broker_id, view, transactions, channel),
        claims=TransactionClaims(config.broker_id, view, transactions, connections),
        channel=channel,
        share_states=share_states,
        persister=persister,
    )


def _coordinator_parts(parts: DataPlaneParts, core: _Core) -> CoordinatorParts:
    ports = parts.replication
    return CoordinatorParts(
        replicas=core.replicas,
        appends=core.appends,
        reads=core.reads,
        view=parts.view,
        clock=ports.clock,
        entropy=ports.entropy,
        leads=parts.leads,
        off_loop=ports.off_loop,
    )


def _connections(parts: DataPlaneParts) -> BrokerConnections:
    """Connections to other brokers, which end with them."""
    made = BrokerConnections(parts.view, parts.replication.connect, parts.limits.listener)
    parts.view.on_brokers.append(made.live_brokers_changed)
    return made


def _group_settings(parts: DataPlaneParts) -> GroupSettingsOf:
    dynamic = parts.dynamic
    return parts.group_settings or KnownGroupSettings(
        parts.view, lambda: dynamic.config.values, lambda: dynamic.settings.merged()
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
    controls: BrokerControls = NO_CONTROLS,
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
        controls=controls,
    )
    dynamic.on_change.append(lambda config: listener.limit_connections(config.values))
    return listener
