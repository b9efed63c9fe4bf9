"""The broker's environment: clock, files, store, threads, network; real or the simulator's.

`Node` and `Life` meet the outside only through an `Environment` and through the running loop
(timers, connections, executors), so that `tests/sim` runs them whole on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep
from typing import Protocol

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.local.zk_session import DeadSession, close_session
from headwater.ports.control import ControlCalls, ControlHandler
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.ports.files import Files
from headwater.ports.metadata_store import MetadataStore
from headwater.ports.remote_log import RemoteLog
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.schema import Message
from headwater_broker.app.broker_credentials import broker_credentials
from headwater_broker.app.config import Address, NodeConfig
from headwater_broker.app.control_security import ControlSecurity, control_security
from headwater_broker.app.zookeeper_security import zookeeper_security
from headwater_broker.controller import control_client
from headwater_broker.controller.control_client import GrpcControlCalls
from headwater_broker.controller.loopback_channel import LoopbackControlCalls
from headwater_broker.metadata.store_zk import ZooKeeperStore
from headwater_broker.network import control_grpc
from headwater_broker.network.control_grpc import ControlServer
from headwater_broker.runtime.deferred_fsync import DeferredFsyncFiles
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.runtime.process import InterpreterTuning, ProcessTuning
from headwater_broker.security.control_admission import ControlAdmission
from headwater_tier.remote_log import DeltaRemoteLog

DISK_THREADS = 4
THREAD_START_S = 0.01
"""How long each thread of the pool is kept busy at first, so that the pool starts the next one."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CACHE_FOLDER = "remote-log-cache"


class Store(MetadataStore, Protocol):
    """The metadata store, with its `close`."""

    async def secure(self) -> int:
        """Give the cluster's nodes their ACLs (zookeeper.set.acl); how many changed."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted at once."""
        ...


class DeferredFsync(Files, Protocol):
    """Files whose small changes may become durable a moment after they return."""

    def run_deferred(self, job: Callable[[], None]) -> None:
        """Run a job of the loop in this thread; its writes become durable soon, too."""
        ...

    async def durable(self) -> None:
        """Return when all changes made on the loop so far are durable."""
        ...

    def sync_all(self) -> None:
        """Wait until everything is durable; from now on every change is so at once."""
        ...


class ControlPort(Protocol):
    """The serving side of the control plane."""

    port: int

    def start(self) -> int:
        """Bind and serve; the port. Raises UsageError when it is taken."""
        ...

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """Refuse new calls at once; calls in flight have `grace_s`."""
        ...


ControlTable = Mapping[type[Message], ControlHandler]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything outside the broker, except the event loop."""

    clock: Clock
    entropy: Entropy
    store: Store
    files: DeferredFsync
    pool: Executor
    """Threads that may wait for a disk."""
    log_disk: Executor
    """One such thread: jobs of logs run in order (`headwater_broker.log.log_context`)."""
    control_calls: ControlCalls
    serve_control: Callable[[ControlTable, Address], ControlPort]
    remote_log: RemoteLog
    close_session: Callable[[DeadSession], bool]
    """Ends the metadata session of a dead broker. It may block, so it runs in a thread."""
    boot_id: str
    """Changes when the machine boots; empty where the kernel has none."""
    lag: LagProbe
    process: ProcessTuning
    credentials: Credentials = NO_CREDENTIALS
    """Shown by this broker's followers to the leaders that they fetch from."""
    control_admission: ControlAdmission | None = None
    """Decides who may call the control plane; None without TLS."""


async def system_environment(config: NodeConfig) -> Environment:
    """The environment of this machine, with a session on the metadata store. Raises UsageError."""
    values, loop = config.values, asyncio.get_running_loop()
    security = control_security(config)
    at_store = zookeeper_security(values)
    session_timeout_ms = values.integer("zookeeper.session.timeout.ms")
    store = ZooKeeperStore(config.zookeeper, session_timeout_ms, security=at_store)
    await store.start(values.integer("zookeeper.connection.timeout.ms"))
    pool = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
    for _ in range(DISK_THREADS):  # start them now, so that the loop need not wait for one later
        pool.submit(sleep, THREAD_START_S)

    calls, serve_control = _control_plane(config, security, loop)

    return Environment(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        store=store,
        files=DeferredFsyncFiles(pool),
        pool=pool,
        log_disk=ThreadPoolExecutor(1, thread_name_prefix="log-disk"),
        control_calls=calls,
        serve_control=serve_control,
        remote_log=DeltaRemoteLog(str(Path(config.log_dirs[0], CACHE_FOLDER))),
        close_session=partial(close_session, config.zookeeper, security=at_store),
        boot_id=BOOT_ID.read_text().strip() if BOOT_ID.exists() else "",
        lag=LagProbe(loop),
        process=InterpreterTuning(),
        credentials=broker_credentials(config),
        control_admission=None if security is None else security.admission,
    )


def _control_plane(
    config: NodeConfig, security: ControlSecurity | None, loop: asyncio.AbstractEventLoop
) -> tuple[ControlCalls, Callable[[ControlTable, Address], ControlPort]]:
    """Both sides of the control plane, with mTLS if there is `security`."""
    shown, asked, admit = None, None, None
    if security is not None:
        shown = control_client.CurrentKeys(security.keys.now)
    if security is not None and security.admission is not None:
        asked, admit = control_grpc.mutual_tls(security.keys.now), security.admission.admit
    calls = LoopbackControlCalls(config.control_advertised, GrpcControlCalls(shown))

    def serve_control(table: ControlTable, address: Address) -> ControlPort:
        port = ControlServer(
            table, loop, host=address.host, port=address.port, credentials=asked, admit=admit
        )
        return calls.serve(table, port)

    return calls, serve_control
