"""The processes below a Spark program: its driver, executors, Python workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EXECUTOR = "CoarseGrainedExecutorBackend"
DAEMON = "pyspark.daemon"


def _stat(pid: int) -> tuple[int, str] | None:
    """(parent, command line) of a process that still exists."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1]), command


def below(root: int) -> dict[int, str]:
    """The command lines of all processes that descend from this one."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {pid: stat for pid in pids if (stat := _stat(pid)) is not None}
    return {pid: found[pid][1] for pid in found if root in _ancestors(pid, found)}


def _ancestors(pid: int, known: dict[int, tuple[int, str]]) -> Iterator[int]:
    while pid in known and pid > 1:
        pid = known[pid][0]
        yield pid


def executors(root: int) -> list[int]:
    """The executors' JVMs."""
    return [
        pid for pid, command in below(root).items() if EXECUTOR in command and "java" in command
    ]


def python_workers(root: int) -> list[int]:
    """The Python processes of tasks: children of Spark's daemons, idle ones too."""
    tree = below(root)
    daemons = {pid for pid, command in tree.items() if DAEMON in command}
    return [pid for pid in daemons if (stat := _stat(pid)) is not None and stat[0] in daemons]


def kill(pids: list[int]) -> int:
    """SIGKILL; how many were sent."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
