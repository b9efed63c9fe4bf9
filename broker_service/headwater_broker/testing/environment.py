"""The environment of a broker in a test's process: the metadata store, control plane and files in
memory, or files on a disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import sleep
from typing import Any, cast

from headwater.local.zk_session import DeadSession
from headwater.ports.authorizer import Authorizer
from headwater.ports.files import Files
from headwater.system import SystemEntropy
from headwater.testing.clocks import MovableClock
from headwater.testing.memory_control import MemoryControlNetwork
from headwater.testing.memory_files import MemoryFile, MemoryFiles
from headwater.testing.memory_remote_log import MemoryRemoteLog
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater_broker.app.config import Address
from headwater_broker.app.environment import ControlTable, DeferredFsync, Environment
from headwater_broker.controller.loopback_channel import (
    LoopbackControlCalls,
    LoopbackControlPort,
)
from headwater_broker.log.cleaner_worker import IoThrottle
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.runtime.deferred_fsync import DeferredFsyncFiles
from headwater_broker.runtime.loop_lag import LagProbe

DISK_THREADS = 2


class MemoryDisk(MemoryFiles):
    """`headwater_broker.app.environment.DeferredFsync`: every change is as durable as memory is."""

    def run_deferred(self, job: Callable[[], None]) -> None:
        """Run the job."""
        job()

    async def durable(self) -> None:
        """Nothing to wait for."""

    def sync_all(self) -> None:
        """Nothing to wait for."""


class ExistingMemoryFolders:
    """Memory files for the cleaner, which creates no folder: a missing one was deleted or renamed,
    and must not come back."""

    def __init__(self, files: MemoryDisk) -> None:
        self._files = files

    def open(self, path: str, *, must_exist: bool = False) -> MemoryFile:
        """Open a file. Raises FileNotFoundError when its folder does not exist."""
        folder = path.rpartition("/")[0]
        if not self._files.names(folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
        return self._files.open(path, must_exist=must_exist)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class UntunedProcess:
    """`headwater_broker.runtime.process.ProcessTuning` of a process that is not the broker's own:
    its garbage collection and thread switches stay as they are, and no watchdog ends it."""

    def loaded(self) -> None:
        """Do nothing."""

    def started(self, loop: asyncio.AbstractEventLoop, still_max_s: float) -> None:
        """Do nothing."""

    def stopping(self) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""


class NoControlPort:
    """The control port of a broker without peers: nothing listens."""

    def __init__(self, port: int) -> None:
        self.port = port

    def start(self) -> int:
        """The port that the address names."""
        return self.port

    async def stop_async(self, grace_s: float = 0.5) -> None:
        """Nothing to stop."""


def in_process_environment(
    clock: MovableClock, name: str, control_address: str, *, on_disk: bool
) -> Environment:
    """An environment without peers on the running loop. `name` begins its threads' names; calls to
    `control_address`, its own, never leave the loop."""
    pool = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix=name)
    log_disk = ThreadPoolExecutor(1, thread_name_prefix=name)
    files: DeferredFsync = DeferredFsyncFiles(pool) if on_disk else MemoryDisk(clock=clock)
    calls = LoopbackControlCalls(control_address, MemoryControlNetwork().calls())

    def serve_control(
        table: ControlTable, address: Address, authorizer: Authorizer
    ) -> LoopbackControlPort:
        return calls.serve(table, NoControlPort(address.port))

    return Environment(
        clock=clock,
        entropy=SystemEntropy(),
        store=MemoryStore(MemoryTree()),
        files=files,
        pool=pool,
        log_disk=log_disk,
        control_calls=calls,
        serve_control=serve_control,
        remote_log=MemoryRemoteLog("/tables", lambda path, data: None),
        close_session=_nobody_died,
        boot_id="in-process",
        lag=LagProbe(asyncio.get_running_loop()),
        process=UntunedProcess(),
    )


def _nobody_died(session: DeadSession) -> bool:
    return False


class MemoryCleaning:
    """`headwater_broker.log.cleaner.CleanFunction` of files that no other process can open."""

    def __init__(self, environment: Environment, files: MemoryDisk) -> None:
        self._environment = environment
        self._files = cast(Files, ExistingMemoryFolders(files))

    async def __call__(self, job: CleanJob) -> CleanResult:
        """Run one job in a disk thread."""
        clock = self._environment.clock
        throttle = IoThrottle(clock, sleep, job.io_bytes_per_s)
        loop = asyncio.get_running_loop()
        work = partial(clean, self._files, job, throttle)
        return await loop.run_in_executor(self._environment.pool, work)
