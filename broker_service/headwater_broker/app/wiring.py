"""The composition root, `BrokerServer`: builds each part of a broker out of the parts before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from headwater.client.connection import open_connection
from headwater.clock import Clock
from headwater.config.keys import Values, group_limits
from headwater.ports.authorizer import AllowAll, Authorizer
from headwater.ports.control import ControlHandler
from headwater.ports.metadata_store import MetadataStore
from headwater.ports.network import Connect, PeerConnection
from headwater.wire.schema import Message
from headwater_broker.api.broker_controls import BrokerControls
from headwater_broker.app.audit_topic import AuditTopic
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.control_handlers import ControlHandlers, ControlParts
from headwater_broker.app.data_plane import DataPlaneParts, build_data_plane, build_listener
from headwater_broker.app.dead_brokers import DeadBrokers
from headwater_broker.app.dynamic_config import DynamicConfigs
from headwater_broker.app.environment import Environment
from headwater_broker.app.log_dir_failures import LogDirFailures
from headwater_broker.app.own_registration import BoundPorts, OwnRegistration
from headwater_broker.app.sasl_listeners import SaslParts, sasl_authenticator
from headwater_broker.app.status_security import status_security
from headwater_broker.app.tiered_offsets import TieredOffsets, TieredRanges
from headwater_broker.app.tiered_topics import TieredTopics
from headwater_broker.app.tls_listeners import TlsListeners
from headwater_broker.controller.controller import ControllerIdentity, ControllerService
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.log.cleaner import CleanerSettings, LogCleaner
from headwater_broker.log.cleaner_process import CleanerProcesses
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.metadata.controller_channel import ControllerChannel
from headwater_broker.metadata.leader_lookup import LeaderLookup
from headwater_broker.metadata.registration import RegistrationManager
from headwater_broker.metadata.restored_ends import RestoredEnds
from headwater_broker.metadata.token_watch import TokenWatch
from headwater_broker.metadata.topic_lookup import TopicLookup
from headwater_broker.network.http_server import HttpStatusServer
from headwater_broker.network.listener import Listener
from headwater_broker.network.page_cache import PageCache
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.security.audit_entry import AuditEntry
from headwater_broker.security.audit_log import AuditLog
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable
from headwater_broker.security.failure_delays import FailureDelays
from headwater_broker.security.standard_authorizer import StandardAuthorizer
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.metrics import BrokerCollector, MetricsText
from headwater_broker.telemetry.status_document import StatusDocument
from headwater_broker.telemetry.status_page import StatusPageContext, StatusPages

logger = logging.getLogger(__name__)


class Readiness:
    """True while the broker serves clients; `app.lifecycle` sets it."""

    def __init__(self) -> None:
        self.is_ready = False

    def __call__(self) -> bool:
        return self.is_ready


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """Values that a broker reads from ZooKeeper before its parts are built."""

    scram_secret: bytes = b""
    restored_ends: RestoredEnds = field(default_factory=dict)


NOTHING_STORED = StoredFacts()


class BrokerServer:
    """All parts of one broker, built and not started (Kafka's `BrokerServer`)."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        environment: Environment,
        stop: Callable[[str], None],
        stored: StoredFacts = NOTHING_STORED,
    ) -> None:
        """`stop(reason)` asks for the end of the process."""
        v, clock, store = config.values, environment.clock, environment.store
        connect = _connect_to_brokers(config, environment)
        self.config, self.environment = config, environment
        self.readiness = Readiness()
        # What this broker knows of the cluster, and who may do what there.
        self.view = MetadataCache(cluster_id, self.broker_epoch)
        self.audit_topic = self._audit_topic(connect)
        publish = None if self.audit_topic is None else self.audit_topic.publish
        self.authorizer, self.acls = build_authorizer(v, clock, store, publish)
        # Logs on disk, and this broker's place in the cluster.
        self.logs = _build_logs(config, cluster_id, environment)
        self.ports = BoundPorts()
        self.own = OwnRegistration(config, cluster_id, environment, self.logs, self.ports)
        self.registration = RegistrationManager(
            store,
            clock,
            self.own.describe,
            session_timeout_ms=v.integer("zookeeper.session.timeout.ms"),
        )
        self.dynamic = DynamicConfigs(config, self.view)
        self.token_watch = TokenWatch(store, TokenTable(token_secrets(v)))
        self.cleaner_processes = CleanerProcesses()
        self.cleaner = LogCleaner(
            self.logs, self.cleaner_processes, clock, lambda: cleaner_settings(self.dynamic)
        )
        # The controller that this broker may be, and the one that it talks to.
        self.controller = _build_controller(cluster_id, environment, self.dynamic)
        self.controller_channel = self._controller_channel()
        # Replicas, coordinators, request handlers.
        self.dead_brokers = DeadBrokers(store, self.view, environment.close_session)
        tiered_topics = TieredTopics(config, self.view)
        self.tiered_ranges = TieredRanges(environment.remote_log, tiered_topics.locate)
        replication = self._replication_ports(cluster_id, connect, stored.restored_ends)
        plane = build_data_plane(self._data_plane_parts(replication, tiered_topics))
        self.replicas, self.services = plane.replicas, plane.services
        self.transaction_channel = plane.transaction_channel
        self.share_state_channel = plane.share_state_channel
        self.tiered = TieredOffsets(self.tiered_ranges, self.replicas)
        # What operators and the controller see and ask.
        self.log_dir_failures = self._log_dir_failures(stop)
        self.status = StatusDocument(
            self.services, clock, environment.lag, self.readiness, self.broker_epoch
        )
        self.metrics = self._metrics(connect)
        self.control = environment.serve_control(
            self._control_table(), config.control, self.authorizer
        )
        self.status_server = None if config.status is None else self._status_server()
        # Listeners, which serve all of it.
        self.tls = TlsListeners(self.dynamic, clock)
        self.listeners = self._build_listeners(stored.scram_secret, self._controls(stop))
        self._subscribe()

    def _build_listeners(self, scram_secret: bytes, controls: BrokerControls) -> list[Listener]:
        sasl = SaslParts(
            users=lambda: self.view.client_quotas,
            secret=scram_secret,
            clock=self.environment.clock,
            entropy=self.environment.entropy,
            find_token=self.token_watch.table.find_token,
            failure_delay=FailureDelays(
                self.environment.clock,
                self.config.values.integer("connection.failed.authentication.delay.ms"),
            ),
        )
        return [
            build_listener(
                self.dynamic,
                self.services,
                name,
                self.tls.make_connection(name),
                sasl_authenticator(self.config, name, sasl),
                controls,
            )
            for name in self.config.protocols
        ]

    def _log_dir_failures(self, stop: Callable[[str], None]) -> LogDirFailures:
        return LogDirFailures(
            self.logs,
            self.replicas,
            self.registration,
            self.services.background,
            self.readiness,
            stop,
        )

    def broker_epoch(self) -> int:
        """The czxid of this broker's registration; -1 while it is not registered."""
        return self.registration.broker_epoch

    @property
    def is_ready(self) -> bool:
        """True while the broker serves clients."""
        return self.readiness.is_ready

    def _controls(self, stop: Callable[[str], None]) -> BrokerControls:
        return BrokerControls(
            status=self.status.text,
            is_ready=self.readiness,
            read_table=self.tiered.refresh_topic,
            stop=stop,
        )

    def _subscribe(self) -> None:
        """Which part hears of which change, besides what `build_data_plane` subscribes."""
        self.logs.on_offline.append(self.log_dir_failures.log_dir_failed)
        self.replicas.leadership_listeners.append(self.tiered.leadership_changed)
        self.dynamic.on_change.append(
            lambda now: self.controller.reconfigure(
                controller_config(now.values, self.config.values)
            )
        )

    def _controller_channel(self) -> ControllerChannel:
        environment = self.environment
        return ControllerChannel(
            self.config.broker_id,
            self.broker_epoch,
            environment.store,
            environment.control_calls,
            self.controller,
            environment.clock,
        )

    def _audit_topic(self, connect: Connect) -> AuditTopic | None:
        """None without an authorizer or a topic for its lines."""
        name = self.config.values.string("headwater.audit.topic")
        if not self.config.values.string("authorizer.class.name") or not name:
            return None
        connections = BrokerConnections(self.view, connect, self.config.inter_broker_listener)
        self.view.on_brokers.append(connections.live_brokers_changed)
        clock = self.environment.clock
        return AuditTopic(name, self.config.broker_id, self.view, connections, clock)

    def _metrics(self, connect: Connect) -> MetricsText:
        elsewhere = LeaderEndOffsets(self.view, connect, self.config.inter_broker_listener)
        return MetricsText(
            BrokerCollector(self.services, self.environment.lag, self.controller, elsewhere)
        )

    def _replication_ports(
        self, cluster_id: str, connect: Connect, restored: RestoredEnds
    ) -> ReplicationPorts:
        environment, view, loop = self.environment, self.view, asyncio.get_running_loop()

        async def off_loop(job: Callable[[], None]) -> None:
            await loop.run_in_executor(environment.pool, environment.files.run_deferred, job)

        return ReplicationPorts(
            clock=environment.clock,
            entropy=environment.entropy,
            connect=connect,
            control=environment.control_calls,
            alter_partition=self.controller_channel.alter_partition,
            broker_epoch=self.broker_epoch,
            cluster_id=lambda: cluster_id,
            broker=lambda broker_id: view.brokers.get(broker_id),
            log_config=self.logs.log_config,
            on_peer_gone=self.dead_brokers.refuses_connections,
            tiered_end=self.tiered_ranges.end,
            restored_end=lambda topic_id, partition: restored.get((topic_id, partition)),
            off_loop=off_loop,
            durable=environment.files.durable,
        )

    def _data_plane_parts(
        self, replication: ReplicationPorts, tiered_topics: TieredTopics
    ) -> DataPlaneParts:
        loop, environment = asyncio.get_running_loop(), self.environment
        return DataPlaneParts(
            loop=loop,
            dynamic=self.dynamic,
            view=self.view,
            logs=self.logs,
            limits=replication_config(self.config),
            replication=replication,
            controller=self.controller_channel,
            authorizer=self.authorizer,
            acls=self.acls,
            warmer=PageCache(loop, environment.pool),
            leads=LeaderLookup(environment.store, self.config.broker_id).is_leader,
            producer_ids=ProducerIds(self.controller_channel.allocate_producer_ids),
            remote_log=environment.remote_log,
            tiered_topic=tiered_topics.locate,
            tokens=self.token_watch.table,
            cleaner=self.cleaner.meter,
            is_topic_deleted=TopicLookup(environment.store).is_deleted,
        )

    def _control_table(self) -> dict[type[Message], ControlHandler]:
        handlers = ControlHandlers(
            ControlParts(
                broker_id=self.config.broker_id,
                view=self.view,
                replicas=self.replicas,
                status=self.status.text,
                is_ready=self.readiness,
            )
        )
        sources = (handlers.table(), self.controller.handlers())
        return {request: handler for source in sources for request, handler in source.items()}

    def _status_server(self) -> HttpStatusServer:
        pages = StatusPages(
            StatusPageContext(
                broker_id=self.config.broker_id,
                clock=self.environment.clock,
                view=self.view,
                broker_events=self.status.broker_events,
                control=self.environment.control_calls,
                document=self.status.text,
                metrics=self.metrics,
                is_ready=self.readiness,
                pool=self.environment.pool,
            )
        )
        security = status_security(self.config)
        return HttpStatusServer(pages.routes(), guard=security.guard, tls=security.tls)


def _connect_to_brokers(config: NodeConfig, environment: Environment) -> Connect:
    async def connect(host: str, port: int) -> PeerConnection:
        return await open_connection(
            host,
            port,
            client_id=f"replica-fetcher-{config.broker_id}",
            negotiate=False,
            credentials=environment.credentials,
        )

    return connect


def build_authorizer(
    v: Values,
    clock: Clock,
    store: MetadataStore,
    publish: Callable[[AuditEntry], None] | None = None,
) -> tuple[Authorizer, AclStore | None]:
    """The authorizer of a broker's settings, and the ACLs that it decides by, if any.

    `publish(entry)` takes each audit line that goes to the log. Raises UsageError when the
    authorizer would refuse everybody.
    """
    if not v.string("authorizer.class.name"):
        return AllowAll(), None
    authorizer = StandardAuthorizer.from_values(v, AuditLog(clock, publish))
    return authorizer, AclStore(store, authorizer)


def _build_logs(config: NodeConfig, cluster_id: str, environment: Environment) -> LogManager:
    def offload(job: Callable[[], None]) -> None:
        environment.log_disk.submit(job).add_done_callback(_log_failure)

    return LogManager(
        environment.files,
        list(config.log_dirs),
        broker_id=config.broker_id,
        cluster_id=cluster_id,
        clock=environment.clock,
        entropy=environment.entropy,
        broker_properties=config.properties,
        offload=offload,
    )


def _build_controller(
    cluster_id: str, environment: Environment, dynamic: DynamicConfigs
) -> ControllerService:
    config = dynamic.config
    return ControllerService(
        ControllerIdentity(
            broker_id=config.broker_id,
            cluster_id=cluster_id,
            control_address=config.control_advertised,
            settings=lambda: dynamic.settings,
        ),
        environment.store,
        environment.control_calls,
        environment.clock,
        environment.entropy,
        controller_config(config.values),
    )


def replication_config(config: NodeConfig) -> ReplicationConfig:
    """Replication's settings, out of a broker's."""
    v = config.values
    return ReplicationConfig(
        replica_lag_time_max_ms=v.integer("replica.lag.time.max.ms"),
        fetch_wait_max_ms=v.integer("replica.fetch.wait.max.ms"),
        fetch_min_bytes=v.integer("replica.fetch.min.bytes"),
        fetch_max_bytes=v.integer("replica.fetch.max.bytes"),
        fetch_response_max_bytes=v.integer("replica.fetch.response.max.bytes"),
        socket_timeout_ms=v.integer("replica.socket.timeout.ms"),
        fetch_backoff_ms=v.integer("replica.fetch.backoff.ms"),
        quota_windows=_windows(v, ""),
        log_dirs_quota_windows=_windows(v, "alter.log.dirs."),
        listener=config.inter_broker_listener,
    )


def cleaner_settings(dynamic: DynamicConfigs) -> CleanerSettings:
    """The log cleaner's settings as they are now."""
    v = dynamic.config.values
    return CleanerSettings(
        map_bytes_max=v.integer("log.cleaner.dedupe.buffer.size"),
        threads=v.integer("log.cleaner.threads"),
        io_bytes_per_s=v.number("log.cleaner.io.max.bytes.per.second"),
    )


def controller_config(v: Values, file: Values | None = None) -> ControllerConfig:
    """The controller's settings, out of a broker's present settings and those of its file."""
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
        token_secrets=token_secrets(file or v),
        token_lifetime_max_ms=v.integer("delegation.token.max.lifetime.ms"),
        token_expiry_time_ms=v.integer("delegation.token.expiry.time.ms"),
        token_expiry_check_interval_ms=v.integer("delegation.token.expiry.check.interval.ms"),
        group_limits=group_limits(v),
    )


def token_secrets(v: Values) -> TokenSecrets:
    """The keys that sign delegation tokens; none: there are no tokens."""
    previous = v.strings("headwater.delegation.token.previous.secret.keys")
    return TokenSecrets(v.string("delegation.token.secret.key") or "", previous)


def _windows(v: Values, prefix: str) -> Windows:
    return Windows(
        v.integer(f"{prefix}replication.quota.window.num"),
        v.integer(f"{prefix}replication.quota.window.size.seconds"),
    )


def _log_failure(job: Future[None]) -> None:
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.error("a job of the log disk failed", exc_info=error)
