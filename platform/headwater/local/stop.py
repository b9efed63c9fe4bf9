"""`headwater down`: ends the processes of a cluster and checks that none is left."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.local import cluster_file
from headwater.local.processes import ProcessRef, of_cluster, wait_gone

MANAGER_GRACE_S = 45.0
DRAIN_GRACE_S = 15.0
TERM_WAIT_S = 2.0
KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """What `stop_cluster` has found. `killed` are the processes that it had to kill."""

    was_running: bool
    processes: int
    killed: tuple[ProcessRef, ...] = ()


def stop_cluster(directory: Path) -> Stopped:
    """Stop the cluster of `directory`. Raises HeadwaterError when a process survives."""
    cluster = cluster_file.load(directory)
    manager = cluster.manager if cluster is not None else None
    before = _alive(directory, cluster)
    was_running = manager is not None and manager.alive()
    if manager is not None and was_running:
        manager.send(signal.SIGTERM)
        wait_gone([manager], MANAGER_GRACE_S)
    killed = end_leftovers(directory)
    if cluster is not None:
        cluster_file.save(directory, replace(cluster, manager=None, processes=()))
    return Stopped(was_running or bool(before), len(before), tuple(killed))


def end_leftovers(directory: Path) -> list[ProcessRef]:
    """End the processes of `directory` that have no manager; those that had to be killed.

    Brokers drain when their supervisor dies, and need ZooKeeper for that: it is stopped after them.
    """
    cluster = cluster_file.load(directory)
    zookeepers = {p.pid for p in cluster.processes if p.name == "zookeeper"} if cluster else set()
    left = _alive(directory, cluster)
    wait_gone([p for p in left if _session_of(p) not in zookeepers], DRAIN_GRACE_S)
    left = _alive(directory, cluster)
    for process in left:
        process.send(signal.SIGTERM)
    left = wait_gone(left, TERM_WAIT_S)
    for process in left:
        process.send(signal.SIGKILL)
    wait_gone(left, KILL_WAIT_S)
    survivors = _alive(directory, cluster)
    if survivors:
        names = ", ".join(f"{p.name} (pid {p.pid})" for p in survivors)
        raise HeadwaterError(f"these processes of {directory} did not end: {names}")
    return left


def _alive(directory: Path, cluster: cluster_file.ClusterFile | None) -> list[ProcessRef]:
    """The live processes of the cluster, by cluster.json and by their environment, except this
    one."""
    listed: list[ProcessRef] = []
    if cluster is not None:
        listed = [*cluster.processes, *([cluster.manager] if cluster.manager else [])]
    alive = {p.pid: p for p in [*of_cluster(directory), *listed] if p.alive()}
    alive.pop(os.getpid(), None)
    return list(alive.values())


def _session_of(process: ProcessRef) -> int:
    """The process's POSIX session; every supervised child leads one."""
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1
