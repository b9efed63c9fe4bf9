"""Spark's master URLs of one machine: `local[N]` and `local-cluster[N,CORES,MB]`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOCAL = re.compile(r"local(?:\[([0-9]+|\*)(?:,\s*[0-9]+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*[0-9]+\s*\]")


@dataclass(frozen=True, slots=True)
class LocalMaster:
    """A master that runs everything on this machine; no executors of their own: one JVM."""

    executors: int | None
    cores: int
    """Of each executor, or of the one JVM."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return (self.executors or 1) * self.cores


def local_master(master: str, cores_here: int) -> LocalMaster | None:
    """The parsed URL; None for a master of several machines. `local[*]` has `cores_here`."""
    local = _LOCAL.fullmatch(master)
    if local:
        return LocalMaster(None, cores_here if local[1] == "*" else int(local[1] or 1))
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    return LocalMaster(int(cluster[1]), int(cluster[2])) if cluster else None
