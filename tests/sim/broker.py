"""A broker of the world: its host with a clock and a disk, and its process, which restarts.

The process runs the real code, `headwater_broker.app.lifecycle.build` and `live`, over an
`Environment` of doubles. It ends by `kill` (kill -9), by power loss, by a clean stop, or by an
error at start; then the supervisor starts it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.local.zk_session import DeadSession
from headwater.ports.authorizer import Authorizer
from headwater.testing.clocks import EPOCH_MS, SeededEntropy
from headwater.testing.memory_remote_log import MemoryRemoteLog
from headwater_broker.app.config import Address, from_properties
from headwater_broker.app.environment import ControlPort, ControlTable, Environment
from headwater_broker.app.lifecycle import build, live
from headwater_broker.app.wiring import BrokerServer
from headwater_broker.runtime.loop_lag import LagProbe
from sim.control import ControlDouble, ControlPortDouble
from sim.disk import Disk
from sim.loop import ProcessLoop, ThreadDouble
from sim.network import CONTROL_PORT, DATA_PORT
from sim.store import StoreDouble

if TYPE_CHECKING:
    from sim.world import World

SESSION_TIMEOUT_MS = 3000
SUPERVISOR_CLOSES_S = 0.03
"""How soon a supervisor closes the session of its dead broker."""
RESTART_S = 1.0
DATA_FOLDER = "/disk"
"""The data folder, unless the plan names several."""

PROPERTIES = {
    "zookeeper.connect": "zk:2181",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "400",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
    "controlled.shutdown.enable": "true",
    "auto.create.topics.enable": "false",
}


class HostClock:
    """`headwater.clock.Clock` of one host. A fault may step its wall clock."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def now_ms(self) -> int:
        """The host's wall time."""
        return EPOCH_MS + int(self.monotonic() * 1000) + self._broker.skew_ms

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._broker.world.scheduler.now


class UnmeasuredLag(LagProbe):
    """Measures nothing: virtual time is never late."""

    def start(self) -> None:
        """Do nothing."""


class NoCare:
    """The care of a process that is none: no garbage collection, no watchdog."""

    def loaded(self) -> None:
        """Do nothing."""

    def started(self, loop: asyncio.AbstractEventLoop, still_max_s: float) -> None:
        """Do nothing: there is no watchdog on virtual time."""

    def stopping(self) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""


class Broker:
    """A broker's host, and its process while it runs."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.id = broker_id
        self.host = f"b{broker_id}"
        self.disk = Disk(world.scheduler, world.random)
        self.skew_ms = 0
        self.boots = 1
        self.lives = 0
        self.loop: ProcessLoop | None = None
        self.node: BrokerServer | None = None
        self.store: StoreDouble | None = None
        self.release = world.today
        """The release that its next process runs."""
        self.dead_processes: list[Any] = []
        """Loops and parts of dead processes. If they were collected early, their code would run on.
        """
        self._stopping: asyncio.Future[str] | None = None

    def __repr__(self) -> str:
        return f"broker {self.id}"

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.loop is not None

    @property
    def folders(self) -> list[str]:
        """Its data folders."""
        return self.world.plan.properties.get("log.dirs", DATA_FOLDER).split(",")

    # -- the process

    def start(self) -> None:
        """Start the process."""
        if self.is_up or self.host in self.world.network.dark:
            return
        self.lives += 1
        world = self.world
        loop = self.loop = world.process(f"b{self.id}.{self.lives}", self.host)
        loop.on_kill = lambda: self.kill("killed at a chosen moment")
        self._threads = ThreadDouble(loop)
        self._log_disk = ThreadDouble(loop)
        self.disk.taken_by(
            loop,
            lambda: not (self._threads.is_running_job or self._log_disk.is_running_job),
        )
        self.store = world.ensemble.connect(loop, SESSION_TIMEOUT_MS / 1000, self.release)
        world.note(f"{self} starts (life {self.lives})")
        task = loop.create_task(self._run(loop))
        task.add_done_callback(lambda done: self._ended(loop, done))

    async def _run(self, loop: ProcessLoop) -> None:
        self._stopping = loop.create_future()
        stopping = self._stopping

        def stop(reason: str) -> None:
            if not stopping.done():
                stopping.set_result(reason)

        config = from_properties(
            {
                **PROPERTIES,
                "log.dirs": DATA_FOLDER,
                **self.world.plan.properties,
                "broker.id": str(self.id),
                "listeners": f"PLAINTEXT://{self.host}:{DATA_PORT}",
                # A port without TLS: with an authorizer it must be on loopback.
                "control.listener": f"127.0.0.1:{CONTROL_PORT}",
                "control.advertised.listener": f"{self.host}:{CONTROL_PORT}",
            }
        )
        node = await build(config, self._environment(loop), stop)
        self.node = node
        self.world.watch(self, node)
        await live(node, lambda ready: None, stopping)

    def _environment(self, loop: ProcessLoop) -> Environment:
        world, store = self.world, self.store
        assert store is not None

        def serve_control(
            table: ControlTable, address: Address, authorizer: Authorizer
        ) -> ControlPort:
            return ControlPortDouble(world.control, loop, table, address.port, store.release)

        return Environment(
            clock=HostClock(self),
            entropy=SeededEntropy(world.random.getrandbits(64)),
            store=store,
            files=self.disk,
            pool=self._threads,
            log_disk=self._log_disk,
            control_calls=ControlDouble(world.control, loop, store.release),
            serve_control=serve_control,
            remote_log=MemoryRemoteLog("/tables", lambda path, data: None),
            close_session=self._close_session,
            boot_id=f"{self.host}-boot-{self.boots}",
            lag=UnmeasuredLag(loop),
            process=NoCare(),
        )

    def _close_session(self, session: DeadSession) -> bool:
        """Close the session of a dead peer."""
        ensemble = self.world.ensemble
        if self.store is None or not self.store.can_talk():
            return False
        self.world.note(f"{self} closes the session {session.session_id} of a dead peer")
        ensemble.end_session(session.session_id)
        return True

    def _ended(self, loop: ProcessLoop, task: asyncio.Task[None]) -> None:
        """The process ended by itself."""
        if loop.is_dead:
            return
        error = None if task.cancelled() else task.exception()
        self.world.note(f"{self} ends: {error!r}" if error else f"{self} ends")
        if error is not None and not isinstance(error, HeadwaterError | OSError):
            self.world.unforeseen(f"{self} failed", error)
        self._end_process()
        self.start_later(RESTART_S * (0.5 + self.world.random.random()))

    def start_later(self, delay_s: float) -> None:
        """The supervisor starts it again."""
        self.world.scheduler.later(delay_s, self.start)

    # -- how it ends

    def stop(self) -> None:
        """A clean stop: drain, flush, write the clean-shutdown mark."""
        if self._stopping is not None and not self._stopping.done() and self.loop is not None:
            self.world.note(f"{self} is to stop")
            stopping = self._stopping
            self.loop.call_soon(
                lambda: None if stopping.done() else stopping.set_result("a clean stop")
            )

    def kill(self, reason: str) -> None:
        """Kill -9. A supervisor may close the session; otherwise peers do, or it times out."""
        if self.loop is None:
            return
        self.world.note(f"{self} dies: {reason}")
        store, world = self.store, self.world
        self._end_process()
        if store is not None and world.random.random() < world.plan.supervised:
            session_id = store.session_id

            def close() -> None:
                if world.network.passes(self.host, "zk"):
                    world.ensemble.end_session(session_id)

            world.scheduler.later(world.random.random() * SUPERVISOR_CLOSES_S, close)

    def lose_power(self) -> None:
        """The host loses power: data that is not durable is lost, and connections are not reset."""
        self.world.note(f"{self} loses power")
        self.world.network.dark.add(self.host)
        self._end_process()
        self.disk.lose_power()
        self.boots += 1

    def power_back(self) -> None:
        """The host boots."""
        self.world.note(f"{self} has power again")
        self.world.network.host_is_back(self.host)

    def _end_process(self) -> None:
        loop = self.loop
        if loop is None:
            return
        self.dead_processes.append((loop, self.node, self._stopping))
        loop.kill()
        if self.store is not None:
            self.store.is_over = True
        self.disk.owner = None
        self.disk.release()
        self.world.network.process_died(loop)
        self.world.forget(self)
        self.loop = self.node = self._stopping = None
