"""`Manager`: runs the brokers of a cluster, as local processes or as Spark jobs.

`headwater.local.daemon` locks the folder, writes cluster.json and handles signals around a Manager.
A launcher makes one. It is an entry point of the group `headwater.launchers`, called as
`launcher(spec, master, changed)`; the manager calls `changed()` whenever `state()` has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headwater.local.cluster_spec import ClusterSpec
from headwater.local.processes import ProcessRef

Progress = Callable[[str, int, int], None]
"""Called with what has happened, the number of steps done, and the number of all steps."""


@dataclass(frozen=True, slots=True)
class ManagerState:
    """The brokers' addresses, and the processes of the cluster on this machine."""

    bootstrap_servers: str
    zookeeper: str
    control_addresses: tuple[str, ...]
    processes: tuple[ProcessRef, ...] = ()
    spec: ClusterSpec | None = None
    """The cluster with its present brokers; None while they are those of the start."""


class Manager(Protocol):
    """Runs the brokers of one cluster from `start` to `stop`."""

    def start(self, progress: Progress) -> None:
        """Return when every broker is ready. Raises HeadwaterError after it has stopped all."""
        ...

    def state(self) -> ManagerState:
        """What runs now. Any thread may call."""
        ...

    def stop(self, progress: Progress) -> None:
        """Drain the brokers and end every process. May be called at any time, and repeatedly."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker as its manager knows it; None: no process runs, or it is not known."""

    broker_id: int
    address: str
    ready: bool
    restarts: int
    """How often the broker became ready again after its first start."""
    pid: int | None
    host: str | None
    log_path: str
    python: str
    """The interpreter that runs the broker."""
    executor_id: str | None = None
    """The Spark executor that runs the broker's task."""
    executor_pid: int | None = None


@runtime_checkable
class ElasticManager(Protocol):
    """A Manager that changes its brokers while the cluster runs. Any thread may call.

    A method that changes something raises HeadwaterError. None of them moves replicas: see
    `headwater.operations`.
    """

    @property
    def spec(self) -> ClusterSpec:
        """The cluster with its present brokers."""
        ...

    def broker_states(self) -> tuple[BrokerState, ...]:
        """Every broker, in the order of ids."""
        ...

    def add_brokers(self, count: int, progress: Progress) -> None:
        """Start brokers with the lowest free ids; those that are ready stay when one fails."""
        ...

    def restart_broker(self, broker_id: int, progress: Progress, python: str = "") -> None:
        """Drain a broker, start it again, return when it is ready. With `python`, this interpreter
        runs the broker from now on."""
        ...

    def stop_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker; it stays down until `start_broker`, or the next start of the cluster."""
        ...

    def start_broker(self, broker_id: int, progress: Progress) -> None:
        """Start a broker that `stop_broker` has stopped; return when it is ready."""
        ...

    def remove_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and take it out of the cluster. Its data folder stays."""
        ...

    def log_tail(self, broker_id: int, size: int) -> str:
        """The last `size` bytes of a broker's log, from the start of a line on."""
        ...


Launcher = Callable[[ClusterSpec, str, Callable[[], None]], Manager]


def silent(_text: str, _done: int, _total: int) -> None:
    """A Progress that shows nothing."""
