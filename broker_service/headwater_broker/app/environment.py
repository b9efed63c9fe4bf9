"""The broker's environment: clock, files, store, threads, network; real, or doubles in memory.

`BrokerServer` and `Lifecycle` meet the outside only through an `Environment` and through the
running loop (timers, connections, executors), so that `tests/sim` runs them whole on virtual time,
and `headwater_broker.testing` in a test's process. `app.system_environment` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.local.zk_session import DeadSession
from headwater.ports.authorizer import Authorizer
from headwater.ports.control import ControlCalls, ControlHandler
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.ports.files import Files
from headwater.ports.metadata_store import MetadataStore
from headwater.ports.remote_log import RemoteLog
from headwater.wire.schema import Message
from headwater_broker.app.config import Address
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.runtime.process import ProcessTuning


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

ServeControl = Callable[[ControlTable, Address, Authorizer], ControlPort]
"""Makes the serving side: its handlers, where it listens, and who decides what callers may do."""


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
    serve_control: ServeControl
    remote_log: RemoteLog
    close_session: Callable[[DeadSession], bool]
    """Ends the metadata session of a dead broker. It may block, so it runs in a thread."""
    boot_id: str
    """Changes when the machine boots; empty where the kernel has none."""
    lag: LagProbe
    process: ProcessTuning
    credentials: Credentials = NO_CREDENTIALS
    """Shown by this broker's followers to the leaders that they fetch from."""
