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


@runtime_checkable
class ElasticManager(Protocol):
    """A Manager that can change its brokers while the cluster runs. Any thread may call."""

    spec: ClusterSpec

    def add_brokers(self, count: int, progress: Progress) -> None:
        """Start brokers with the next ids. Raises HeadwaterError; those that are ready stay."""
        ...

    def restart_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker, start it again, return when it is ready. Raises HeadwaterError."""
        ...


Launcher = Callable[[ClusterSpec, str, Callable[[], None]], Manager]


def silent(_text: str, _done: int, _total: int) -> None:
    """A Progress that shows nothing."""
