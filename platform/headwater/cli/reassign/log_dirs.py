"""The `log_dirs` of a reassignment plan: replicas move between data folders (KIP-113)."""

from __future__ import annotations

import time

from headwater.cli.partition_arguments import name_of
from headwater.cli.reassign.plan import Folders, judge_folders, way_back
from headwater.client.admin.client import Admin
from headwater.client.values import LogDirDescription, TopicPartition
from headwater.errors import ErrorCode
from headwater.system import SystemClock

COME_S = 10.0
"""How long replicas that are to come may take to be there, as in Kafka's tool."""
POLL_S = 0.1


def move_folders(admin: Admin, folders: Folders) -> dict[str, str]:
    """Ask each broker once; why not, by replica. One that does not run is not waited for."""
    refused: dict[str, str] = {}
    live = {broker.node_id for broker in admin.describe_cluster().brokers} if folders else set()
    for broker_id, targets in _by_broker(folders).items():
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
    """Why a replica was not moved to a folder."""
    if code is not ErrorCode.LOG_DIR_NOT_FOUND:
        return f"{code.name}: not moved to {path}"
    known = ", ".join(row.path for row in admin.describe_log_dirs([broker_id])[broker_id])
    return f"{code.name}: broker {broker_id} has no data folder {path}: its folders are {known}"


def move_folders_when_there(admin: Admin, folders: Folders) -> dict[str, str]:
    """Ask until every replica is where it can be moved, or told where it shall be made."""
    clock = SystemClock()
    until = clock.monotonic() + COME_S
    while True:
        refused = move_folders(admin, folders)
        waits = [why for why in refused.values() if ErrorCode.REPLICA_NOT_AVAILABLE.name in why]
        if not waits or clock.monotonic() > until:
            return refused
        time.sleep(POLL_S)


def folder_status(admin: Admin, folders: Folders) -> dict[str, str]:
    """What is to be said of each replica that is not in its folder yet, by its name."""
    return judge_folders(folders, _described(admin, folders)) if folders else {}


def cancel_folders(admin: Admin, folders: Folders) -> tuple[list[str], dict[str, str]]:
    """End the copies that are under way, as Kafka's tool does: each replica stays in the folder
    that it is served from. The names of those; and why others were refused."""
    back = way_back(folders, _described(admin, folders)) if folders else {}
    refused = move_folders(admin, back)
    names = [_name(broker_id, tp) for broker_id, tp in sorted(back)]
    return [name for name in names if name not in refused], refused


def _described(admin: Admin, folders: Folders) -> dict[int, list[LogDirDescription]]:
    """The data folders of those brokers of a plan that run."""
    live = {broker.node_id for broker in admin.describe_cluster().brokers}
    return admin.describe_log_dirs(live & {broker_id for broker_id, _ in folders})


def _by_broker(folders: Folders) -> dict[int, dict[TopicPartition | tuple[str, int], str]]:
    found: dict[int, dict[TopicPartition | tuple[str, int], str]] = {}
    for (broker_id, tp), path in folders.items():
        found.setdefault(broker_id, {})[tp] = path
    return found


def _name(broker_id: int, tp: TopicPartition) -> str:
    return f"{name_of(tp)} on broker {broker_id}"
