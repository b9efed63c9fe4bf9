"""The environment of a broker on a machine: ZooKeeper, gRPC, disks, threads of the system."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep

from headwater.local.zk_session import close_session
from headwater.ports.authorizer import Authorizer
from headwater.ports.control import ControlCalls
from headwater.system import SystemClock, SystemEntropy
from headwater_broker.app.broker_credentials import broker_credentials
from headwater_broker.app.config import Address, NodeConfig
from headwater_broker.app.control_security import ControlSecurity, control_security
from headwater_broker.app.environment import (
    ControlPort,
    ControlTable,
    Environment,
    ServeControl,
)
from headwater_broker.app.zookeeper_security import zookeeper_security
from headwater_broker.controller import control_client
from headwater_broker.controller.control_client import GrpcControlCalls
from headwater_broker.controller.loopback_channel import LoopbackControlCalls
from headwater_broker.metadata.store_zk import ZooKeeperStore
from headwater_broker.network import control_grpc
from headwater_broker.network.control_grpc import ControlServer
from headwater_broker.runtime.deferred_fsync import DeferredFsyncFiles
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.runtime.process import InterpreterTuning
from headwater_broker.security.control_admission import ControlAdmission
from headwater_tier.remote_log import DeltaRemoteLog

DISK_THREADS = 4
THREAD_START_S = 0.01
"""How long each thread of the pool is kept busy at first, so that the pool starts the next one."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CACHE_FOLDER = "remote-log-cache"


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
    )


def _control_plane(
    config: NodeConfig, security: ControlSecurity | None, loop: asyncio.AbstractEventLoop
) -> tuple[ControlCalls, ServeControl]:
    """Both sides of the control plane, with mTLS if there is `security`."""
    shown = None if security is None else control_client.CurrentKeys(security.keys.now)
    calls = LoopbackControlCalls(config.control_advertised, GrpcControlCalls(shown))

    def serve_control(table: ControlTable, address: Address, authorizer: Authorizer) -> ControlPort:
        asked, admit = None, None
        if security is not None and security.mapper is not None:
            asked = control_grpc.mutual_tls(security.keys.now)
            admit = ControlAdmission(security.mapper, authorizer).admit
        port = ControlServer(
            table, loop, host=address.host, port=address.port, credentials=asked, admit=admit
        )
        return calls.serve(table, port)

    return calls, serve_control
