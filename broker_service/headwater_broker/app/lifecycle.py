"""A broker's life: start in order, announce it when ready, run, drain, stop in reverse order."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from headwater.errors import HeadwaterError, KafkaError
from headwater.ports.metadata_store import SessionState, StoreError
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.environment import Environment
from headwater_broker.app.scheduler import Scheduler
from headwater_broker.app.tls_listeners import RENEWAL_CHECK_S
from headwater_broker.app.wiring import BrokerServer, StoredFacts
from headwater_broker.app.zookeeper_security import SET_ACL, check_brokers_have_credentials
from headwater_broker.log.folder_inspection import inspect
from headwater_broker.metadata.registration import check_store_knows_broker, ensure_cluster_id
from headwater_broker.metadata.restored_ends import read_restored_ends
from headwater_broker.metadata.scram_secret import ensure_scram_secret
from headwater_broker.runtime import process

ISR_TICK_MAX_S = 1.0
"""The tick also lets the high watermark pass a follower that stopped fetching."""
READY_TIMEOUT_S = 30.0
VIEW_POLL_S = 0.005
DRAIN_TIMEOUT_MS = 10_000
DRAIN_MAX_S = 20.0
"""No attempt starts after this: without a controller nothing hands leaderships over."""
TIERED_REFRESH_S = 10.0
FILES_EVERY_S = 1.0
"""Longest time before a disk error met off the loop is acted upon."""
PRODUCER_IDS_EVERY_S = 1.0
RATES_EVERY_S = 1.0
COLLECT_EVERY_S = 10.0
LOG_DIR_FAILURES_EVERY_S = 1.0
"""Pause before the controller is informed again of a failed log directory."""
WATCHDOG_MIN_S = 10.0
"""The loop may block as long as the metadata session lasts, but at least this long."""

logger = logging.getLogger(__name__)


async def build(
    config: NodeConfig, environment: Environment, stop: Callable[[str], None]
) -> BrokerServer:
    """Build all parts, start none. Raises UsageError, with the store's session closed."""
    try:
        folders = inspect(environment.files, config.log_dirs)
        await check_store_knows_broker(
            environment.store, config.zookeeper, config.broker_id, folders
        )
        known = config.cluster_id or next((f.cluster_id for f in folders if f.cluster_id), None)
        if config.values.boolean(SET_ACL):
            await check_brokers_have_credentials(environment.store, config.broker_id)
            logger.info("%d nodes of ZooKeeper secured", await environment.store.secure())
        cluster_id = await ensure_cluster_id(environment.store, environment.entropy, known)
        secret = b""
        if any(protocol.uses_sasl for protocol in config.protocols.values()):
            secret = await ensure_scram_secret(environment.store, environment.entropy)
        stored = StoredFacts(secret, await read_restored_ends(environment.store))
        return BrokerServer(config, cluster_id, environment, stop, stored)
    except BaseException:
        await environment.store.close()
        raise


async def live(
    server: BrokerServer, announce: Callable[[dict[str, Any]], None], stopping: asyncio.Future[str]
) -> None:
    """Start, run until `stopping` is done, drain, stop. Raises UsageError."""
    lifecycle = Lifecycle(server, announce, Scheduler(asyncio.get_running_loop()))
    try:
        await lifecycle.start(stopping)
        reason = await stopping
        logger.info("stopping: %s", reason)
        await lifecycle.drain()
        lifecycle.check_log_dirs()
    finally:
        await lifecycle.stop()


class Lifecycle:
    """Starts and stops the parts of a broker."""

    def __init__(
        self,
        server: BrokerServer,
        announce: Callable[[dict[str, Any]], None],
        scheduler: Scheduler,
    ) -> None:
        """`announce` passes the broker's ports and session to its supervisor."""
        self._server = server
        self._announce = announce
        self._scheduler = scheduler
        self._is_loaded = False
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self, stopping: asyncio.Future[str]) -> None:
        """Bind ports, load logs, register; when the controller has sent the metadata, serve."""
        server = self._server
        for listener, address in zip(server.listeners, server.config.listeners, strict=True):
            await listener.bind(address.host, address.port)
            server.ports.listeners[listener.name] = listener.port
        await self._bind_status()
        self.load_logs()
        server.environment.process.loaded()
        server.ports.control = server.control.start()
        if server.status_server is not None:
            await server.status_server.serve()
        if server.acls is not None:
            await server.acls.start()
        await server.registration.start()
        await server.controller.start()
        await self._first_view(stopping)
        await server.token_watch.start()
        for listener in server.listeners:
            await listener.serve()
        if server.audit_topic is not None:
            server.audit_topic.start()
        self.schedule()
        server.readiness.is_ready = True
        server.environment.store.on_session(self._session_changed)
        session_s = server.config.values.integer("zookeeper.session.timeout.ms") / 1000
        blocked_max_s = max(session_s, WATCHDOG_MIN_S)
        server.environment.process.started(asyncio.get_running_loop(), blocked_max_s)
        server.environment.lag.start()
        self._announce_ready()

    def load_logs(self) -> None:
        """Open every log. Raises HeadwaterError when no log directory is left."""
        self._server.logs.load_all()
        self._is_loaded = True
        self.check_log_dirs()

    def check_log_dirs(self) -> None:
        """Raises HeadwaterError when no log directory is left, so that the supervisor sees it."""
        logs = self._server.logs
        if not logs.directory_ids:
            raise HeadwaterError(
                f"all log directories have failed ({', '.join(logs.offline_directories)}): "
                "see the errors above, repair the disk or name others in log.dirs"
            )

    async def _bind_status(self) -> None:
        server = self._server
        if server.status_server is not None and server.config.status is not None:
            address = server.config.status
            port = await server.status_server.bind(address.host, address.port)
            server.status.status_port = port

    async def _first_view(self, stopping: asyncio.Future[str]) -> None:
        """Wait for the first metadata of the controller: before that, nothing is known here."""
        deadline = self._server.environment.clock.monotonic() + READY_TIMEOUT_S
        while not self._server.view.is_complete and not stopping.done():
            if self._server.environment.clock.monotonic() > deadline:
                raise HeadwaterError(
                    f"no controller has sent metadata within {READY_TIMEOUT_S:.0f} s: "
                    "is another broker's control port reachable from here?"
                )
            await asyncio.sleep(VIEW_POLL_S)

    def _announce_ready(self) -> None:
        server = self._server
        credentials = server.environment.store.session()
        self._announce(
            {
                "ready": True,
                "broker_id": server.config.broker_id,
                "port": server.listeners[0].port,
                "control_port": server.ports.control,
                "session_id": credentials.session_id,
                "session_password": credentials.password.hex(),
            }
        )

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        try:
            self._announce_ready()  # a new session has a new id: the supervisor must know it
        except StoreError as error:
            logger.warning("the session is gone again: %s", error)

    def schedule(self) -> None:
        """Begin the periodic work."""
        server, v, every = self._server, self._server.config.values, self._scheduler.every
        every(
            "isr",
            min(v.integer("replica.lag.time.max.ms") / 2000, ISR_TICK_MAX_S),
            server.replicas.isr_tick,
        )
        every("files", FILES_EVERY_S, server.logs.maintain_files)
        server.services.alter_log_dirs.tick()
        self._schedule_log_work()
        every("garbage", COLLECT_EVERY_S, server.environment.process.tick)
        server.status.observe_brokers()
        server.services.view.on_brokers.append(server.status.observe_brokers)
        every("rates", RATES_EVERY_S, server.status.sample)
        every("certificates", RENEWAL_CHECK_S, server.tls.check_files)
        every("log dir failures", LOG_DIR_FAILURES_EVERY_S, server.log_dir_failures.report)
        every("tiered offsets", TIERED_REFRESH_S, self._refresh_tiered)
        self._stock_producer_ids()
        every("producer ids", PRODUCER_IDS_EVERY_S, self._stock_producer_ids)

    def _stock_producer_ids(self) -> None:
        ids = self._server.services.producer_ids
        if ids.is_low:
            self._server.services.background.once("producer ids", ids.stock)

    def _schedule_log_work(self) -> None:
        server, v, logs = self._server, self._server.config.values, self._server.logs
        first_s = v.integer("log.initial.task.delay.ms") / 1000

        def every(name: str, key: str, work: Callable[[], object]) -> None:
            self._scheduler.every(name, v.integer(key) / 1000, work, first_s=first_s)

        every("flush", "log.flush.scheduler.interval.ms", logs.flush_due)
        every(
            "retention",
            "log.retention.check.interval.ms",
            lambda: logs.retain_all(server.tiered_ranges.end_for_retention),
        )
        every("producers", "producer.id.expiration.check.interval.ms", logs.expire_producers)
        every(
            "high watermarks",
            "replica.high.watermark.checkpoint.interval.ms",
            logs.checkpoint_high_watermarks,
        )
        every(
            "recovery points",
            "log.flush.offset.checkpoint.interval.ms",
            logs.checkpoint_recovery_points,
        )
        every(
            "log starts",
            "log.flush.start.offset.checkpoint.interval.ms",
            logs.checkpoint_log_starts,
        )
        if v.boolean("log.cleaner.enable"):
            every("compaction", "log.cleaner.backoff.ms", server.cleaner.tick)
            server.dynamic.on_change.append(self._cleaner_backoff_changed)

    def _cleaner_backoff_changed(self, config: NodeConfig) -> None:
        seconds = config.values.integer("log.cleaner.backoff.ms") / 1000
        self._scheduler.change_interval("compaction", seconds)

    def _refresh_tiered(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            work = self._server.tiered.refresh()
            self._refreshing = asyncio.get_running_loop().create_task(work)

    async def drain(self) -> None:
        """Controlled shutdown: hand leaderships over while clients are still served."""
        server, v = self._server, self._server.config.values
        if not v.boolean("controlled.shutdown.enable") or len(server.view.brokers) < 2:
            return
        server.replicas.begin_controlled_shutdown()
        clock = server.environment.clock
        give_up_s = clock.monotonic() + DRAIN_MAX_S
        for attempt in range(v.integer("controlled.shutdown.max.retries") + 1):
            if attempt:
                await asyncio.sleep(v.integer("controlled.shutdown.retry.backoff.ms") / 1000)
            if clock.monotonic() > give_up_s:
                break
            try:
                remaining = await server.controller_channel.controlled_shutdown(DRAIN_TIMEOUT_MS)
            except KafkaError as error:
                logger.warning("controlled shutdown, attempt %d: %s", attempt + 1, error)
            else:
                if remaining == 0:
                    return
                logger.info("controlled shutdown: %d partitions still led here", remaining)
        logger.warning(
            "stopping without a completed controlled shutdown: the controller elects other leaders "
            "when this broker is gone"
        )

    async def stop(self) -> None:
        """Stop everything, flush the logs and mark them clean, close the session."""
        server = self._server
        server.readiness.is_ready = False
        broker_epoch = server.broker_epoch()
        self._scheduler.stop()
        server.environment.process.stopping()
        server.environment.lag.stop()
        if self._refreshing is not None:
            self._refreshing.cancel()
        failed = [name for name, close in self._closing() if not await self._closed(name, close)]
        if self._is_loaded:  # a start that failed before must not mark an unclean directory clean
            close_logs = partial(asyncio.to_thread, server.logs.close, broker_epoch)
            failed += [] if await self._closed("logs", close_logs) else ["logs"]
        failed += [] if await self._closed("store", server.environment.store.close) else ["store"]
        server.environment.log_disk.shutdown(wait=True)
        server.environment.pool.shutdown(wait=True)
        logger.info("stopped %s", f"without {', '.join(failed)}" if failed else "cleanly")

    def _closing(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """The parts that are closed before the logs, in order."""
        server, environment = self._server, self._server.environment

        async def close_controller_channel() -> None:
            server.controller_channel.close()

        async def settle_files() -> None:
            environment.files.sync_all()

        for listener in server.listeners:
            yield f"listener {listener.name}", listener.close
        yield "tls", server.tls.close
        if server.status_server is not None:
            yield "status", server.status_server.close
        if server.audit_topic is not None:
            yield "audit topic", server.audit_topic.close
        yield "groups", server.services.groups.close
        yield "transactions", server.services.transactions.close
        yield "share partitions", server.services.shares.close
        yield "share states", server.services.share_states.close
        yield "transaction channel", server.transaction_channel.close
        yield "share state channel", server.share_state_channel.close
        yield "transaction verification", server.services.verifier.close
        yield "appends", server.services.appends.close
        yield "background", server.services.background.close
        yield "tiered", server.tiered.close
        yield "remote log", environment.remote_log.close
        yield "alter log dirs", server.services.alter_log_dirs.close
        yield "cleaner", server.cleaner.close
        yield "cleaner processes", server.cleaner_processes.close
        yield "replicas", server.replicas.close
        yield "dead brokers", server.dead_brokers.close
        yield "controller", server.controller.stop
        yield "control port", server.control.stop_async
        yield "controller channel", close_controller_channel
        yield "control calls", environment.control_calls.close
        yield "delegation tokens", server.token_watch.stop
        if server.acls is not None:
            yield "acls", server.acls.close
        yield "registration", server.registration.stop
        yield "files", settle_files

    @staticmethod
    async def _closed(name: str, close: Callable[[], Awaitable[object]]) -> bool:
        """Close one part. A failure is logged, and keeps no log from being closed."""
        try:
            await close()
        except Exception:
            logger.exception("stopping: %s failed", name)
            return False
        return True


SESSION_KEYS = ("session_id", "session_password")
"""The keys by which a supervisor closes a dead broker's session; they could end a live one, too."""


def announce_on_stdout(announcement: dict[str, Any]) -> None:
    """One JSON line for the supervisor; where there is none, a line for a log, without secrets."""
    if not process.is_managed():
        announcement = {k: v for k, v in announcement.items() if k not in SESSION_KEYS}
    sys.stdout.write(json.dumps(announcement, separators=(",", ":")) + "\n")
    sys.stdout.flush()
