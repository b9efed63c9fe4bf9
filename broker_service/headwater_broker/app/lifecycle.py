"""A broker's life: start in order, say so when ready, run, drain, stop in the reverse order."""

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
from headwater_broker.app.environment import Environment, system_environment
from headwater_broker.app.scheduler import Ticks
from headwater_broker.app.wiring import Node
from headwater_broker.log.folder_inspection import inspect
from headwater_broker.metadata.registration import check_store_knows_broker, ensure_cluster_id
from headwater_broker.runtime import process

ISR_TICK_MAX_S = 1.0
"""The tick also lets the high watermark go on past a follower that fell silent."""
READY_TIMEOUT_S = 30.0
VIEW_POLL_S = 0.005
DRAIN_TIMEOUT_MS = 10_000
DRAIN_PAUSE_S = 0.2
DRAIN_MAX_S = 20.0
"""No try begins after this: without a controller there is nobody to hand leaderships over."""
TIERED_REFRESH_S = 10.0
FILES_EVERY_S = 1.0
"""How late, at most, a disk error met off the loop is acted upon."""
PRODUCER_IDS_EVERY_S = 1.0
RATES_EVERY_S = 1.0
COLLECT_EVERY_S = 10.0
DISK_FAILURES_EVERY_S = 1.0
"""How soon the controller is told again of a failed folder, when it could not be."""
WATCHDOG_MIN_S = 10.0
"""The loop may stand still as long as a session lasts, but at least so long."""

logger = logging.getLogger(__name__)


async def run(config: NodeConfig, announce: Callable[[dict[str, Any]], None]) -> None:
    """Run a broker until it is told to stop. Raises UsageError when it cannot start."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def stop(reason: str) -> None:
        if not stopping.done():
            stopping.set_result(reason)

    process.watch_stop(loop, stop)
    node = await build(config, await system_environment(config), stop)
    await live(node, announce, stopping)


async def build(config: NodeConfig, environment: Environment, stop: Callable[[str], None]) -> Node:
    """All parts, none started. Raises UsageError, the store's session closed."""
    try:
        folders = inspect(environment.files, config.log_dirs)
        await check_store_knows_broker(
            environment.store, config.zookeeper, config.broker_id, folders
        )
        known = config.cluster_id or next((f.cluster_id for f in folders if f.cluster_id), None)
        cluster_id = await ensure_cluster_id(environment.store, environment.entropy, known)
        return Node(config, cluster_id, environment, stop)
    except BaseException:
        await environment.store.close()
        raise


async def live(
    node: Node, announce: Callable[[dict[str, Any]], None], stopping: asyncio.Future[str]
) -> None:
    """Start, run until `stopping` is done, drain, stop. Raises UsageError."""
    life = Life(node, announce)
    try:
        await life.start(stopping)
        reason = await stopping
        logger.info("stopping: %s", reason)
        await life.drain()
        life.check_folders()
    finally:
        await life.stop()


class Life:
    """Starts and stops the parts of a node."""

    def __init__(self, node: Node, announce: Callable[[dict[str, Any]], None]) -> None:
        self._node = node
        self._announce = announce
        self._ticks = Ticks(asyncio.get_running_loop())
        self._is_loaded = False
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self, stopping: asyncio.Future[str]) -> None:
        """Ports, logs, control plane, registration, first word of the controller; then clients."""
        node = self._node
        for listener, address in zip(node.listeners, node.config.listeners, strict=True):
            await listener.bind(address.host, address.port)
        await self._bind_status()
        node.logs.load_all()
        self._is_loaded = True
        self.check_folders()
        node.environment.process.loaded()
        node.control.start()
        if node.status_server is not None:
            await node.status_server.serve()
        await node.registration.start()
        await node.controller.start()
        await self._first_view(stopping)
        for listener in node.listeners:
            await listener.serve()
        self._start_ticks()
        node.is_ready = True
        node.store.on_session(self._session_changed)
        session_s = node.config.values.integer("zookeeper.session.timeout.ms") / 1000
        still_max_s = max(session_s, WATCHDOG_MIN_S)
        node.environment.process.started(asyncio.get_running_loop(), still_max_s)
        node.lag.start()
        self._tell()

    def check_folders(self) -> None:
        """Raises HeadwaterError when no data folder is left: whoever runs brokers shall know."""
        logs = self._node.logs
        if not logs.directory_ids:
            raise HeadwaterError(
                f"all data folders have failed ({', '.join(logs.offline_directories)}): "
                "see the errors above, mend the disk or name others in log.dirs"
            )

    async def _bind_status(self) -> None:
        node = self._node
        if node.status_server is not None and node.config.status is not None:
            address = node.config.status
            node.status.status_port = await node.status_server.bind(address.host, address.port)

    async def _first_view(self, stopping: asyncio.Future[str]) -> None:
        """Wait until the controller has told us of the cluster: before that we know nothing."""
        deadline = self._node.clock.monotonic() + READY_TIMEOUT_S
        while not self._node.view.is_complete and not stopping.done():
            if self._node.clock.monotonic() > deadline:
                raise HeadwaterError(
                    f"no controller has spoken within {READY_TIMEOUT_S:.0f} s: "
                    "is another broker's control port reachable from here?"
                )
            await asyncio.sleep(VIEW_POLL_S)

    def _tell(self) -> None:
        node = self._node
        credentials = node.store.session()
        self._announce(
            {
                "ready": True,
                "broker_id": node.config.broker_id,
                "port": node.listeners[0].port,
                "control_port": node.control.port,
                "session_id": credentials.session_id,
                "session_password": credentials.password.hex(),
            }
        )

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        try:
            self._tell()  # a new session has a new id: the supervisor must know it
        except StoreError as error:
            logger.warning("the session is gone again: %s", error)

    def _start_ticks(self) -> None:
        node, v, every = self._node, self._node.config.values, self._ticks.every
        every(
            "isr",
            min(v.integer("replica.lag.time.max.ms") / 2000, ISR_TICK_MAX_S),
            node.replicas.isr_tick,
        )
        every("files", FILES_EVERY_S, node.logs.maintain_files)
        node.services.alter_log_dirs.tick()
        self._start_log_ticks()
        every("garbage", COLLECT_EVERY_S, node.environment.process.tick)
        node.status.observe_brokers()
        node.services.view.on_brokers.append(node.status.observe_brokers)
        every("rates", RATES_EVERY_S, node.status.sample)
        every("disk failures", DISK_FAILURES_EVERY_S, node.report_log_dir_failures)
        every("tiered ends", TIERED_REFRESH_S, self._refresh_tiered)
        self._stock_producer_ids()
        every("producer ids", PRODUCER_IDS_EVERY_S, self._stock_producer_ids)

    def _stock_producer_ids(self) -> None:
        ids = self._node.services.producer_ids
        if ids.is_low:
            self._node.services.background.once("producer ids", ids.stock)

    def _start_log_ticks(self) -> None:
        node, v, logs = self._node, self._node.config.values, self._node.logs
        first_s = v.integer("log.initial.task.delay.ms") / 1000

        def every(name: str, key: str, work: Callable[[], object]) -> None:
            self._ticks.every(name, v.integer(key) / 1000, work, first_s=first_s)

        every("flush", "log.flush.scheduler.interval.ms", logs.flush_due)
        every(
            "retention",
            "log.retention.check.interval.ms",
            lambda: logs.retain_all(node.tiered.end_of),
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
            every("compaction", "log.cleaner.backoff.ms", node.cleaner.tick)
            node.dynamic.on_change.append(self._cleaner_backoff_changed)

    def _cleaner_backoff_changed(self, config: NodeConfig) -> None:
        seconds = config.values.integer("log.cleaner.backoff.ms") / 1000
        self._ticks.change_interval("compaction", seconds)

    def _refresh_tiered(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            work = self._node.tiered.refresh()
            self._refreshing = asyncio.get_running_loop().create_task(work)

    async def drain(self) -> None:
        """Controlled shutdown: hand leaderships over while clients are still served."""
        node, v = self._node, self._node.config.values
        if not v.boolean("controlled.shutdown.enable") or len(node.view.brokers) < 2:
            return
        node.replicas.leave()
        give_up_s = node.clock.monotonic() + DRAIN_MAX_S
        for attempt in range(v.integer("controlled.shutdown.max.retries") + 1):
            if node.clock.monotonic() > give_up_s:
                return
            try:
                remaining = await node.controller_channel.controlled_shutdown(DRAIN_TIMEOUT_MS)
            except KafkaError as error:
                logger.warning("controlled shutdown, try %d: %s", attempt + 1, error)
            else:
                if remaining == 0:
                    return
                logger.info("controlled shutdown: %d partitions still led here", remaining)
            await asyncio.sleep(DRAIN_PAUSE_S)

    async def stop(self) -> None:
        """Everything down, logs flushed and marked clean, session closed."""
        node = self._node
        node.is_ready = False
        broker_epoch = node.broker_epoch()
        self._ticks.stop()
        node.environment.process.stopping()
        node.lag.stop()
        if self._refreshing is not None:
            self._refreshing.cancel()
        failed = [what for what, step in self._last_steps() if not await self._went(what, step)]
        if self._is_loaded:  # a start that failed before must not mark an unclean folder clean
            close = partial(node.logs.close, broker_epoch)
            in_thread = partial(node.loop.run_in_executor, None, close)
            failed += [] if await self._went("logs", in_thread) else ["logs"]
        failed += [] if await self._went("store", node.store.close) else ["store"]
        node.environment.log_disk.shutdown(wait=True)
        node.environment.pool.shutdown(wait=True)
        logger.info("stopped %s", f"without {', '.join(failed)}" if failed else "cleanly")

    def _last_steps(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """What is stopped before the logs are closed, in order."""
        node = self._node

        async def close_controller_channel() -> None:
            node.controller_channel.close()

        async def settle_files() -> None:
            node.files.sync_all()

        for listener in node.listeners:
            yield f"listener {listener.name}", listener.close
        if node.status_server is not None:
            yield "status", node.status_server.close
        yield "groups", node.services.groups.close
        yield "background", node.services.background.close
        yield "tiered", node.tiered.close
        yield "remote log", node.remote_log.close
        yield "alter log dirs", node.services.alter_log_dirs.close
        yield "cleaner", node.cleaner.close
        yield "cleaners", node.cleaners.close
        yield "replicas", node.replicas.close
        yield "dead peers", node.dead_peers.close
        yield "controller", node.controller.stop
        yield "control port", node.control.stop_async
        yield "controller calls", close_controller_channel
        yield "control calls", node.control_calls.close
        yield "registration", node.registration.stop
        yield "files", settle_files

    @staticmethod
    async def _went(what: str, step: Callable[[], Awaitable[object]]) -> bool:
        """Do one step of the stop. One that fails is told, and keeps no log from being closed."""
        try:
            await step()
        except Exception:
            logger.exception("stopping: %s failed", what)
            return False
        return True


def announce_on_stdout(told: dict[str, Any]) -> None:
    """One JSON line for the supervisor."""
    sys.stdout.write(json.dumps(told, separators=(",", ":")) + "\n")
    sys.stdout.flush()
