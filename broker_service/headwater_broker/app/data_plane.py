"""Wires the data plane: services, purgatories, listeners. Reads like a diagram; decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headwater.clock import Clock
from headwater.config.connection_limits import connection_overrides
from headwater.config.layers import BrokerSettings
from headwater.config.rows_broker import RACK_AWARE_SELECTOR
from headwater.entropy import Entropy
from headwater.ports.authorizer import Authorizer
from headwater.ports.remote_log import RemoteLog
from headwater.system_files import disk_space
from headwater_broker.api.background_calls import Background
from headwater_broker.api.context import Purgatories, Services
from headwater_broker.api.fetch_session.cache import FetchSessionCache
from headwater_broker.api.page_cache_port import Warmer
from headwater_broker.api.partition_watches import PartitionWatches
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.request_limits import ApiConfig
from headwater_broker.api.request_meters import Meters
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.coordinators import build_groups
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.network.listener import Listener
from headwater_broker.purgatory.purgatory import Purgatory
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.alter_log_dirs import AlterLogDirsManager, OffLoop
from headwater_broker.replica.manager import ReplicaManager
from headwater_broker.replica.ports import at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the data plane is made of."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    entropy: Entropy
    replicas: ReplicaManager
    logs: LogManager
    view: MetadataCache
    controller: ControllerChannel
    authorizer: Authorizer
    warmer: Warmer
    leads: Callable[[str, int, int], Awaitable[bool]]
    producer_ids: Any = None
    remote_log: RemoteLog | None = None
    tiered_end: Callable[[UUID, int], int | None] = lambda topic_id, partition: None
    cleaner: CleanerMeter = field(default_factory=CleanerMeter)
    disk_space: Callable[[str], tuple[int, int]] = disk_space
    off_loop: OffLoop = at_once


def build_services(dynamic: DynamicConfigs, cluster_id: str, parts: Parts) -> Services:
    """One value for all handlers; the purgatories' wake-ups are wired to the replicas."""
    produce, fetch = Purgatory(parts.loop), Purgatory(parts.loop)
    watches = PartitionWatches(produce, fetch)
    purgatories = Purgatories(produce, fetch, watches)
    parts.replicas.set_wakers(on_hw=None, on_append=None, on_leadership=watches.leadership_moved)
    config = dynamic.config
    api = CurrentApiConfig(dynamic)

    def limit_replication(config: NodeConfig) -> None:
        parts.replicas.quotas.set_rates(
            config.values.integer("leader.replication.throttled.rate"),
            config.values.integer("follower.replication.throttled.rate"),
            config.values.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
        )

    limit_replication(config)
    dynamic.on_change.append(limit_replication)

    def reconfigure_logs(config: NodeConfig) -> None:
        parts.logs.set_broker_properties(config.properties)
        parts.replicas.update_log_configs()

    dynamic.on_change.append(reconfigure_logs)
    return Services(
        broker_id=config.broker_id,
        cluster_id=cluster_id,
        clock=parts.clock,
        entropy=parts.entropy,
        replicas=parts.replicas,
        logs=parts.logs,
        moves=AlterLogDirsManager(
            parts.logs,
            parts.replicas,
            parts.clock,
            off_loop=parts.off_loop,
            assign=lambda *told: parts.controller.assign_directory(*told),
        ),
        view=parts.view,
        controller=parts.controller,
        groups=build_groups(
            config.values, parts.replicas, purgatories, parts.view, parts.clock, parts.entropy
        ),
        producer_ids=parts.producer_ids,
        authorizer=parts.authorizer,
        purgatories=purgatories,
        sessions=FetchSessionCache(api.value.fetch_session_slots, parts.clock, parts.entropy),
        meters=build_meters(parts.view),
        warmer=parts.warmer,
        background=Background(),
        quotas=build_quotas(config, parts),
        remote_log=parts.remote_log,
        config_now=lambda: api.value,
        disk_space=parts.disk_space,
        tiered_end=parts.tiered_end,
        leads=parts.leads,
        cleaner=parts.cleaner,
    )


def build_meters(view: MetadataCache) -> Meters:
    """Counters, of topics too, which go with their topics."""
    meters = Meters()

    def take(change: MetadataDelta) -> None:
        for topic in change.deleted:
            meters.forget(topic)

    view.on_change.append(take)
    return meters


def build_quotas(config: NodeConfig, parts: Parts) -> ClientQuotas:
    """Client quotas as the controller tells them."""
    v = config.values
    windows = Windows(v.integer("quota.window.num"), v.integer("quota.window.size.seconds"))
    quotas = ClientQuotas(parts.clock, windows)

    def take(change: MetadataDelta) -> None:
        if change.client_quotas:
            quotas.update(parts.view.client_quotas)

    parts.view.on_change.append(take)
    return quotas


def build_listener(dynamic: DynamicConfigs, services: Services, name: str) -> Listener:
    """One listener by name; it is not bound yet."""
    values = dynamic.config.values
    listener = Listener(
        services,
        load_handlers(),
        asyncio.get_running_loop(),
        name=name,
        request_bytes_max=values.integer("socket.request.max.bytes"),
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
    """The settings that handlers read, as they are now."""

    def __init__(self, dynamic: DynamicConfigs) -> None:
        self._dynamic = dynamic
        self.value = api_config(dynamic.config, dynamic.settings)
        dynamic.on_change.append(self._changed)

    def _changed(self, config: NodeConfig) -> None:
        self.value = api_config(config, self._dynamic.settings)


def api_config(config: NodeConfig, settings: BrokerSettings) -> ApiConfig:
    """The settings that handlers read."""
    v = config.values
    return ApiConfig(
        auto_create_topics=v.boolean("auto.create.topics.enable"),
        num_partitions=v.integer("num.partitions"),
        default_replication_factor=v.integer("default.replication.factor"),
        min_insync_replicas=v.integer("min.insync.replicas"),
        fetch_max_bytes=v.integer("fetch.max.bytes"),
        fetch_session_slots=v.integer("max.incremental.fetch.session.cache.slots"),
        offsets_partitions=v.integer("offsets.topic.num.partitions"),
        offsets_replication_factor=v.integer("offsets.topic.replication.factor"),
        offsets_segment_bytes=v.integer("offsets.topic.segment.bytes"),
        request_timeout_ms=v.integer("request.timeout.ms"),
        selects_by_rack=v.string("replica.selector.class") == RACK_AWARE_SELECTOR,
        tables_uri=config.tables_uri,
        table_storage_options=config.table_options,
        settings=settings,
    )
