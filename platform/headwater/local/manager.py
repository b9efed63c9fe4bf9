"""What runs a cluster: the one interface of the local supervisor and of Spark's launcher.

`headwater.local.daemon` locks the folder, keeps cluster.json and handles signals around a Manager.
A launcher is an entry point of group `headwater.launchers`: `name = "module:callable"`, called as
`launcher(spec, master, changed)`, where `changed()` is to be called whenever `state()` changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headwater.local.cluster_spec import ClusterSpec
from headwater.local.processes import ProcessRef

Progress = Callable[[str, int, int], None]
"""(what just happened, steps done, steps in all)."""


@dataclass(frozen=True, slots=True)
class ManagerState:
    """Where the brokers are now, and which processes of this machine belong to the cluster."""

    bootstrap_servers: str
    zookeeper: str
    control_addresses: tuple[str, ...]
    processes: tuple[ProcessRef, ...] = ()


class Manager(Protocol):
    """Runs the brokers of one cluster until told to stop."""

    def start(self, progress: Progress) -> None:
        """Return when every broker is ready. Raises HeadwaterError, having stopped everything."""
        ...

    def state(self) -> ManagerState:
        """What runs now; any thread may ask."""
        ...

    def stop(self, progress: Progress) -> None:
        """Drain the brokers, end every process; safe at any time, safe to repeat."""
        ...


Launcher = Callable[[ClusterSpec, str, Callable[[], None]], Manager]


def silent(_text: str, _done: int, _total: int) -> None:
    """The Progress of those who do not show any."""
