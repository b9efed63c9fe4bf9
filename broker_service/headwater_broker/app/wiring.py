"""The composition root: what a broker is made of, and how its parts are joined."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

from headwater.client.connection import open_connection
from headwater.config.keys import Values
from headwater.entropy import Entropy
from headwater.ports.authorizer import AllowAll
from headwater.ports.control import ControlHandler
from headwater.ports.network import PeerConnection
from headwater.wire.control import BrokerEndpoint
from headwater.wire.schema import Message
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.control_handlers import ControlHandlers, ControlParts
from headwater_broker.app.data_plane import (
    DataPlane,
    DataPlaneParts,
    build_data_plane,
    build_listener,
)
from headwater_broker.app.dead_brokers import DeadPeers
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.environment import ControlPort, Environment
from headwater_broker.app.tiered_offsets import TieredEnds
from headwater_broker.app.tiered_topics import TieredTopics
from headwater_broker.controller.controller import ControllerIdentity, ControllerService
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.log.cleaner import CleanerSettings, LogCleaner
from headwater_broker.log.cleaner_process import CleanerProcesses
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.leader_lookup import LeaderLookup
from headwater_broker.metadata.registration import RegistrationManager
from headwater_broker.metadata.znodes import BrokerRegistration
from headwater_broker.network.http_server import HttpStatusServer
from headwater_broker.network.page_cache import PageCache
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_limits import ReplicationLimits
from headwater_broker.telemetry.end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.metrics import BrokerCollector, MetricsText
from headwater_broker.telemetry.status_document import StatusDocument
from headwater_broker.telemetry.status_page import StatusPageContext, StatusPages

logger = logging.getLogger(__name__)


class Node:
    """All parts of one broker, wired and not started. `app.lifecycle` starts them."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        environment: Environment,
        stop: Callable[[str], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.config = config
        self.environment = environment
        self._stop = stop
        self.store = store = environment.store
        self.clock = clock = environment.clock
        entropy = environment.entropy
        self.is_ready = False
        self.files = environment.files
        self.lag = environment.lag
        self.control_calls = environment.control_calls
        self.view = MetadataCache(cluster_id, self.broker_epoch)
        self.dynamic = DynamicConfigs(config, self.view)
        self.logs = self._logs(cluster_id, entropy)
        self.cleaners = CleanerProcesses()
        self.cleaner = LogCleaner(self.logs, self.cleaners, clock, self._cleaner_settings)
        self.registration = RegistrationManager(
            store,
            clock,
            lambda: self._own_registration(cluster_id),
            session_timeout_ms=config.values.integer("zookeeper.session.timeout.ms"),
        )
        self.controller = self._controller(cluster_id, entropy)
        self.controller_channel = ControllerChannel(
            config.broker_id, self.broker_epoch, store, self.control_calls, self.controller, clock
        )
        self.remote_log = environment.remote_log
        self.tiered_topics = TieredTopics(config, self.view)
        self.tiered = TieredEnds(
            self.remote_log,
            lambda: self.replicas,
            self.tiered_topics.locate,
        )
        self.dead_peers = DeadPeers(store, lambda: self.view, environment.close_session)
        self.data_plane = self._data_plane(cluster_id, entropy)
        self.replicas, self.services = self.data_plane.replicas, self.data_plane.services
        self._listen()
        self.status = StatusDocument(
            lambda: self.services, clock, self.lag, lambda: self.is_ready, self.broker_epoch
        )
        self.metrics = self._metrics()
        self.listeners = [
            build_listener(self.dynamic, self.services, address.name)
            for address in config.listeners
        ]
        self.control = self._control_server(stop)
        self.status_server = None if config.status is None else self._status_server()

    def _listen(self) -> None:
        """Who hears of what: leaders, disks, configs (the rest of these: `build_services`)."""
        self.replicas.leadership_listeners.append(self.tiered.led)
        self.logs.high_watermarks = self.replicas.high_watermark_of
        self.logs.on_offline = self._folder_failed
        self.dynamic.on_change.append(
            lambda now: self.controller.reconfigure(
                controller_config(now.values, self.config.values)
            )
        )

    def _folder_failed(self, folder: str, logs: list[UnifiedLog]) -> None:
        """Its replicas go offline here, and others take over; without any folder there is nothing
        to serve: as in Kafka the process ends, and says why."""
        self.replicas.directory_failed(folder, logs)
        if not self.logs.directory_ids:
            self._stop("every data folder has failed")
        self.registration.unreported_log_dir_failures += 1
        self.report_log_dir_failures()

    def report_log_dir_failures(self) -> None:
        """Tell the controller of failed data folders, if it has not heard of them."""
        if self.registration.unreported_log_dir_failures and self.is_ready:
            self.services.background.once(
                "disk failures", self.registration.report_log_dir_failures
            )

    def broker_epoch(self) -> int:
        """The czxid of this broker's registration; -1 while it is not registered."""
        return self.registration.broker_epoch

    def _logs(self, cluster_id: str, entropy: Entropy) -> LogManager:
        return LogManager(
            self.files,
            list(self.config.log_dirs),
            broker_id=self.config.broker_id,
            cluster_id=cluster_id,
            clock=self.clock,
            entropy=entropy,
            broker_properties=self.config.properties,
            offload=self._offload,
        )

    def _cleaner_settings(self) -> CleanerSettings:
        v = self.dynamic.config.values
        return CleanerSettings(
            map_bytes_max=v.integer("log.cleaner.dedupe.buffer.size"),
            threads=v.integer("log.cleaner.threads"),
            io_bytes_per_s=v.number("log.cleaner.io.max.bytes.per.second"),
        )

    def _offload(self, job: Callable[[], None]) -> None:
        self.environment.log_disk.submit(job).add_done_callback(_tell_failure)

    def _controller(self, cluster_id: str, entropy: Entropy) -> ControllerService:
        return ControllerService(
            ControllerIdentity(
                broker_id=self.config.broker_id,
                cluster_id=cluster_id,
                control_address=self.config.control_advertised,
                settings=lambda: self.dynamic.settings,
            ),
            self.store,
            self.control_calls,
            self.clock,
            entropy,
            controller_config(self.config.values),
        )

    def _data_plane(self, cluster_id: str, entropy: Entropy) -> DataPlane:
        v = self.config.values
        limits = ReplicationLimits(
            replica_lag_time_max_ms=v.integer("replica.lag.time.max.ms"),
            fetch_wait_max_ms=v.integer("replica.fetch.wait.max.ms"),
            fetch_min_bytes=v.integer("replica.fetch.min.bytes"),
            fetch_max_bytes=v.integer("replica.fetch.max.bytes"),
            fetch_response_max_bytes=v.integer("replica.fetch.response.max.bytes"),
            socket_timeout_ms=v.integer("replica.socket.timeout.ms"),
            fetch_backoff_ms=v.integer("replica.fetch.backoff.ms"),
            quota_windows=_windows(v, ""),
            log_dirs_quota_windows=_windows(v, "alter.log.dirs."),
            listener=self._inter_broker_listener,
        )
        ports = ReplicationPorts(
            clock=self.clock,
            entropy=entropy,
            connect=self._connect,
            control=self.control_calls,
            alter_partition=self.controller_channel.alter_partition,
            broker_epoch=self.broker_epoch,
            cluster_id=lambda: cluster_id,
            broker=lambda broker_id: self.view.brokers.get(broker_id),
            log_config=self.logs.log_config,
            on_peer_gone=self.dead_peers.gone,
            tiered_end=self.tiered.end,
            off_loop=self._off_loop,
            durable=self.files.durable,
        )
        return build_data_plane(
            DataPlaneParts(
                loop=self.loop,
                dynamic=self.dynamic,
                view=self.view,
                logs=self.logs,
                limits=limits,
                replication=ports,
                controller=self.controller_channel,
                authorizer=AllowAll(),
                warmer=PageCache(self.loop, self.environment.pool),
                leads=LeaderLookup(self.store, self.config.broker_id).is_leader,
                producer_ids=ProducerIds(self.controller_channel.allocate_producer_ids),
                remote_log=self.remote_log,
                tiered_topic=self.tiered_topics.locate,
                cleaner=self.cleaner.meter,
            )
        )

    @property
    def _inter_broker_listener(self) -> str:
        name = self.config.values.string("inter.broker.listener.name")
        return name or self.config.listeners[0].name

    async def _off_loop(self, job: Callable[[], None]) -> None:
        await self.loop.run_in_executor(self.environment.pool, self.files.run_deferred, job)

    async def _connect(self, host: str, port: int) -> PeerConnection:
        client_id = f"replica-fetcher-{self.config.broker_id}"
        return await open_connection(
            host,
            port,
            client_id=client_id,
            negotiate=False,
            credentials=self.environment.credentials,
        )

    def _metrics(self) -> MetricsText:
        elsewhere = LeaderEndOffsets(self.view, self._connect, self._inter_broker_listener)
        return MetricsText(
            BrokerCollector(lambda: self.services, self.lag, self.controller, elsewhere)
        )

    def _control_server(self, stop: Callable[[str], None]) -> ControlPort:
        handlers = ControlHandlers(
            ControlParts(
                broker_id=self.config.broker_id,
                view=self.view,
                replicas=self.replicas,
                tiered=self.tiered,
                status=self.status.text,
                is_ready=lambda: self.is_ready,
                stop=stop,
            )
        )
        sources = (handlers.table(), self.controller.handlers())
        table: dict[type[Message], ControlHandler] = {
            request: handler for source in sources for request, handler in source.items()
        }
        return self.environment.serve_control(table, self.config.control)

    def _status_server(self) -> HttpStatusServer:
        pages = StatusPages(
            StatusPageContext(
                broker_id=self.config.broker_id,
                clock=self.clock,
                view=self.view,
                broker_events=self.status.broker_events,
                control=self.control_calls,
                document=self.status.text,
                metrics=self.metrics,
                is_ready=lambda: self.is_ready,
                pool=self.environment.pool,
            )
        )
        return HttpStatusServer(pages.routes())

    def _own_registration(self, cluster_id: str) -> BrokerRegistration:
        """What `/brokers/ids/N` says of us now."""
        ports = {listener.name: listener.port for listener in self.listeners}
        return BrokerRegistration(
            broker_id=self.config.broker_id,
            cluster_id=cluster_id,
            endpoints=tuple(
                BrokerEndpoint(listener=a.name, host=a.host, port=a.port or ports[a.name])
                for a in self.config.advertised
            ),
            control_address=self.control_address,
            rack=self.config.values.string("broker.rack") or None,
            directory_ids=tuple(self.logs.directory_ids),
            boot_id=self.environment.boot_id,
            clean_shutdown_epoch=self.logs.clean_broker_epoch,
            min_insync_replicas=self.config.values.integer("min.insync.replicas"),
            timestamp_ms=self.clock.now_ms(),
            session_password=self.store.session().password.hex(),
        )

    @property
    def control_address(self) -> str:
        """host:port of our control plane, as others are told."""
        host, _, port = self.config.control_advertised.rpartition(":")
        return f"{host}:{self.control.port}" if port == "0" else self.config.control_advertised


def controller_config(v: Values, file: Values | None = None) -> ControllerConfig:
    """What the controller goes by, from a broker's settings now and from those of its file."""
    least = min(row.integer("min.insync.replicas") for row in (v, file or v))
    return ControllerConfig(
        num_partitions=v.integer("num.partitions"),
        default_replication_factor=v.integer("default.replication.factor"),
        unclean_leader_election_enable=v.boolean("unclean.leader.election.enable"),
        min_insync_replicas=least,
        delete_topic_enable=v.boolean("delete.topic.enable"),
        auto_leader_rebalance_enable=v.boolean("auto.leader.rebalance.enable"),
        leader_imbalance_per_broker_percentage=v.integer("leader.imbalance.per.broker.percentage"),
        leader_imbalance_check_interval_ms=1000
        * v.integer("leader.imbalance.check.interval.seconds"),
    )


def _windows(v: Values, prefix: str) -> Windows:
    return Windows(
        v.integer(f"{prefix}replication.quota.window.num"),
        v.integer(f"{prefix}replication.quota.window.size.seconds"),
    )


def _tell_failure(job: Future[None]) -> None:
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.error("disk job failed", exc_info=error)
