"""`BrokerOperations`: the steps by which brokers of a running cluster are changed.

The cluster's manager (`headwater up`, or a Spark driver) starts and stops processes; the brokers
move replicas. Every operation first looks at what is there and does what is missing, so that one
that was interrupted continues when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from headwater.errors import HeadwaterError, UsageError
from headwater.local import change_requests
from headwater.local.manager import Progress, silent
from headwater.operations.pacing import Pacing
from headwater.operations.reassignments import ClusterAdmin, Reassignments
from headwater.operations.replica_moves import (
    NAMES_SHOWN_MAX,
    drain_moves,
    partitions_on,
    rebalance_moves,
    replicas_of,
)

Event = dict[str, Any]


class ManagerClient(Protocol):
    """A way to the cluster's manager: in this process, through a socket, or through ZooKeeper."""

    def ask(self, command: str, **arguments: Any) -> Iterator[Event]:
        """Send a request; its events up to and including `done`. Raises HeadwaterError."""
        ...


OpenAdmin = Callable[[str], AbstractContextManager[ClusterAdmin]]
"""Opens an Admin of these bootstrap servers."""


class BrokerOperations:
    """Operations of one cluster. Every method raises HeadwaterError when it cannot be completed."""

    def __init__(
        self,
        manager: ManagerClient,
        open_admin: OpenAdmin,
        *,
        progress: Progress = silent,
        pacing: Pacing | None = None,
    ) -> None:
        self._manager = manager
        self._open_admin = open_admin
        self._progress = progress
        self._pacing = pacing or Pacing()

    def status(self) -> dict[str, Any]:
        """The manager's view: cluster id, addresses, and a row for each broker."""
        return _without_event(self._ask(change_requests.STATUS))

    def log_tail(self, broker_id: int, size: int) -> str:
        """The last `size` bytes of a broker's log, from whichever host it is on."""
        done = self._ask(change_requests.LOG_TAIL, broker_id=broker_id, size=size)
        return str(done["text"])

    def add(self, count: int) -> dict[int, str]:
        """Start brokers; their addresses by id. They have no replicas yet."""
        done = self._ask(change_requests.ADD_BROKERS, count=count)
        return {int(broker_id): address for broker_id, address in done["brokers"].items()}

    def rebalance(self) -> int:
        """Move replicas until no broker has two more than another; the number of partitions."""
        with self._admin() as admin:
            moves = Reassignments(admin, self._pacing, self._progress)
            return moves.run(rebalance_moves, "brokers have the same number of replicas")

    def drain(self, broker_ids: Collection[int]) -> int:
        """Move every replica off these brokers; the number of partitions moved. They go on running
        and get no replica back, but new topics may use them."""
        self._check_known(broker_ids)
        with self._admin() as admin:
            return self._drain(admin, broker_ids)

    def remove(self, broker_ids: Collection[int]) -> list[str]:
        """Drain brokers, stop them and take them out of the cluster; their data folders, which
        stay."""
        self._check_known(broker_ids)
        if len(set(broker_ids)) == len(self._broker_ids()):
            raise UsageError("a cluster needs a broker: stop it with `headwater down`")
        folders: list[str] = []
        with self._admin() as admin:
            self._drain(admin, broker_ids)
            for broker_id in sorted(set(broker_ids), reverse=True):
                self._stop_empty(admin, broker_id)
                folders += self._ask(change_requests.REMOVE_BROKER, broker_id=broker_id)["folders"]
        return folders

    def restart(self, broker_id: int, python: str = "") -> str:
        """Restart a broker and wait until it is in sync; its address. `python`: the interpreter
        that runs it from now on."""
        done = self._ask(change_requests.RESTART_BROKER, broker_id=broker_id, python=python)
        with self._admin() as admin:
            self._wait_in_sync(admin, {broker_id}, f"broker {broker_id}")
        return str(done["brokers"][str(broker_id)])

    def rolling_restart(self, python: str = "") -> list[int]:
        """Restart one broker after the other, the controller last; the ids of those restarted.

        Every partition must be in sync before the first one and after each. With `python`, brokers
        that this interpreter runs already are left alone.
        """
        rows = self.status()["brokers"]
        with self._admin() as admin:
            everywhere = {int(row["broker_id"]) for row in rows}
            self._wait_in_sync(admin, everywhere, "before the first restart", at_once=True)
            controller = admin.describe_cluster().controller_id
        todo = [
            int(row["broker_id"])
            for row in sorted(rows, key=lambda r: (r["broker_id"] == controller, r["broker_id"]))
            if not python or row["python"] != python
        ]
        for done, broker_id in enumerate(todo, start=1):
            self._ask(change_requests.RESTART_BROKER, broker_id=broker_id, python=python)
            with self._admin() as admin:
                self._wait_in_sync(admin, everywhere, f"after the restart of broker {broker_id}")
            self._progress(f"broker {broker_id} is in sync again", done, len(todo))
        return todo

    def scale(self, brokers: int, *, rebalance: bool = True) -> None:
        """Add brokers, or remove those with the highest ids, until there are `brokers`. With
        `rebalance`, replicas move to the added ones."""
        if brokers < 1:
            raise UsageError(f"{brokers} brokers: a cluster needs one; stop it instead")
        ids = self._broker_ids()
        if brokers < len(ids):
            self.remove(ids[brokers:])
            return
        if brokers > len(ids):
            self.add(brokers - len(ids))
        if rebalance:
            self.rebalance()

    def _drain(self, admin: ClusterAdmin, broker_ids: Collection[int]) -> int:
        draining = frozenset(broker_ids)
        names = ", ".join(map(str, sorted(draining)))
        moves = Reassignments(admin, self._pacing, self._progress)
        return moves.run(
            lambda replicas, brokers: drain_moves(replicas, brokers, draining),
            f"no replicas on broker {names}",
            draining,
        )

    def _stop_empty(self, admin: ClusterAdmin, broker_id: int) -> None:
        """Stop a drained broker. A topic that was created meanwhile may have put a replica on it:
        then the broker is started and drained again."""
        while True:
            self._ask(change_requests.STOP_BROKER, broker_id=broker_id)
            self._pacing.wait_until(
                lambda: all(b.node_id != broker_id for b in admin.describe_cluster().brokers),
                self._pacing.in_sync_s,
            )
            if not partitions_on(replicas_of(admin.describe_topics().values()), [broker_id]):
                return
            self._ask(change_requests.START_BROKER, broker_id=broker_id)
            self._drain(admin, [broker_id])

    def _wait_in_sync(
        self, admin: ClusterAdmin, broker_ids: Collection[int], when: str, *, at_once: bool = False
    ) -> None:
        """Wait until these brokers are in the ISR of all their partitions, and have a leader."""

        def lagging() -> list[str]:
            live = {b.node_id for b in admin.describe_cluster().brokers}
            down = [f"broker {i} does not run" for i in sorted(set(broker_ids) - live)]
            return down + [
                f"{topic.name}-{row.partition}"
                for topic in admin.describe_topics().values()
                for row in topic.partitions
                if row.leader < 0 or set(row.replicas).intersection(broker_ids) - set(row.isr)
            ]

        limit = self._pacing.settle_s if at_once else self._pacing.in_sync_s
        if not self._pacing.wait_until(lambda: not lagging(), limit, times=2):
            late = lagging()
            shown = ", ".join(late[:NAMES_SHOWN_MAX])
            raise HeadwaterError(
                f"{when}: {len(late)} not in sync ({shown}): see `headwater topics describe"
                " --under-replicated`, then run this command again"
            )

    def _check_known(self, broker_ids: Collection[int]) -> None:
        known = self._broker_ids()
        missing = sorted(set(broker_ids).difference(known))
        if missing:
            raise UsageError(
                f"no broker {missing[0]}: the brokers are {', '.join(map(str, known))}"
            )

    def _broker_ids(self) -> list[int]:
        return sorted(int(row["broker_id"]) for row in self.status()["brokers"])

    def _admin(self) -> AbstractContextManager[ClusterAdmin]:
        return self._open_admin(str(self.status()["bootstrap_servers"]))

    def _ask(self, command: str, **arguments: Any) -> Event:
        """The `done` event of a request; shows its progress."""
        for event in self._manager.ask(command, **arguments):
            if event["event"] == "done":
                return event
            if event["event"] == "progress":
                self._progress(event["text"], event["done"], event["total"])
        raise HeadwaterError(f"the cluster's manager ended before it answered {command}")


def _without_event(event: Event) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "event"}
