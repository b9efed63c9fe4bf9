"""Moves of replicas between the log dirs of a broker, from a reassignment plan (KIP-113)."""

from __future__ import annotations

import time

from headwater.cli.partition_arguments import name_of
from headwater.cli.reassign.plan import LogDirs, current_log_dirs, log_dir_moves
from headwater.client.admin.client import Admin
from headwater.client.values import LogDirDescription, TopicPartition
from headwater.errors import ErrorCode
from headwater.system import SystemClock

CREATED_WITHIN_S = 10.0
"""Time limit for the creation of new replicas, as in Kafka's tool."""
POLL_S = 0.1


def move_log_dirs(admin: Admin, log_dirs: LogDirs) -> dict[str, str]:
    """Ask each broker once; the refusals, by replica. A broker that is down is not waited for."""
    refused: dict[str, str] = {}
    live = {broker.node_id for broker in admin.describe_cluster().brokers} if log_dirs else set()
    for broker_id, targets in _by_broker(log_dirs).items():
        if broker_id not in live:
            why = f"broker {broker_id} does not run: start it, then execute the plan again"
            code = ErrorCode.BROKER_NOT_AVAILABLE
            refused |= {
                _name(broker_id, TopicPartition(*tp)): f"{code.name}: {why}" for tp in targets
            }
            continue
        for tp, error in admin.alter_replica_log_dirs(broker_id, targets).items():
            if error is not None:
                refused[_name(broker_id, tp)] = _why(admin, broker_id, targets[tp], error.code)
    return refused


def _why(admin: Admin, broker_id: int, path: str, code: ErrorCode) -> str:
    """The reason why a replica was not moved, for messages."""
    if code is not ErrorCode.LOG_DIR_NOT_FOUND:
        return f"{code.name}: not moved to {path}"
    known = ", ".join(row.path for row in admin.describe_log_dirs([broker_id])[broker_id])
    return f"{code.name}: broker {broker_id} has no log dir {path}: its log.dirs are {known}"


def move_log_dirs_when_created(admin: Admin, log_dirs: LogDirs) -> dict[str, str]:
    """Ask until every new replica exists, so that it can be moved; the refusals, by replica."""
    clock = SystemClock()
    until = clock.monotonic() + CREATED_WITHIN_S
    while True:
        refused = move_log_dirs(admin, log_dirs)
        waits = [why for why in refused.values() if ErrorCode.REPLICA_NOT_AVAILABLE.name in why]
        if not waits or clock.monotonic() > until:
            return refused
        time.sleep(POLL_S)


def log_dir_states(admin: Admin, log_dirs: LogDirs) -> dict[str, str]:
    """The state of every replica that is not in its log dir yet, by its name."""
    return log_dir_moves(log_dirs, _described(admin, log_dirs)) if log_dirs else {}


def cancel_log_dirs(admin: Admin, log_dirs: LogDirs) -> tuple[list[str], dict[str, str]]:
    """Cancel the moves in progress as Kafka's tool does: replicas stay in the log dir from which
    they are served. Returns the names of these replicas, and the refusals by replica."""
    back = current_log_dirs(log_dirs, _described(admin, log_dirs)) if log_dirs else {}
    refused = move_log_dirs(admin, back)
    names = [_name(broker_id, tp) for broker_id, tp in sorted(back)]
    return [name for name in names if name not in refused], refused


def _described(admin: Admin, log_dirs: LogDirs) -> dict[int, list[LogDirDescription]]:
    """The log dirs of the plan's brokers that run."""
    live = {broker.node_id for broker in admin.describe_cluster().brokers}
    return admin.describe_log_dirs(live & {broker_id for broker_id, _ in log_dirs})


def _by_broker(log_dirs: LogDirs) -> dict[int, dict[TopicPartition | tuple[str, int], str]]:
    found: dict[int, dict[TopicPartition | tuple[str, int], str]] = {}
    for (broker_id, tp), path in log_dirs.items():
        found.setdefault(broker_id, {})[tp] = path
    return found


def _name(broker_id: int, tp: TopicPartition) -> str:
    return f"{name_of(tp)} on broker {broker_id}"
