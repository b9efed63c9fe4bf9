"""Requests to the manager of a running cluster: `headwater cluster`, `Cluster.attach`.

A request is a JSON object `{"command": ..., ...}`. It comes through the Unix socket of the
cluster's folder (`supervisor_socket`) or, to a manager on another host, through ZooKeeper
(`zk_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from headwater.errors import HeadwaterError, UsageError
from headwater.local.cluster_spec import BROKERS_MAX
from headwater.local.manager import ElasticManager, Manager, Progress
from headwater.local.supervisor_socket import Report

STATUS = "status"
ADD_BROKERS = "add-brokers"
RESTART_BROKER = "restart-broker"
STOP_BROKER = "stop-broker"
START_BROKER = "start-broker"
REMOVE_BROKER = "remove-broker"
LOG_TAIL = "log-tail"
LOG_BYTES_MAX = 256 * 1024
"""A reply through ZooKeeper has at most 1 MiB, and JSON escapes may take several bytes each."""


class ChangeRequests:
    """Carries out requests; any thread may call. Changes are made one at a time by the manager."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._handlers: dict[str, Callable[..., dict[str, Any]]] = {
            STATUS: self._status,
            ADD_BROKERS: self._add,
            RESTART_BROKER: self._restart,
            STOP_BROKER: self._stop,
            START_BROKER: self._start,
            REMOVE_BROKER: self._remove,
            LOG_TAIL: self._log_tail,
        }

    def __call__(self, request: dict[str, Any], report: Report) -> dict[str, Any]:
        """The `done` event of a request. Raises HeadwaterError."""
        command = request.get("command")
        handler = self._handlers.get(command) if isinstance(command, str) else None
        if handler is None:
            raise UsageError(f"the cluster's manager does not know the command {command!r}")
        if not isinstance(self._manager, ElasticManager):
            raise HeadwaterError("the cluster is still starting: try again when it is up")
        done = handler(self._manager, request, progress_to(report))
        return {"event": "done", **done}

    def _status(
        self, manager: ElasticManager, _request: dict[str, Any], _progress: Progress
    ) -> dict[str, Any]:
        state = self._manager.state()
        return {
            "cluster_id": manager.spec.cluster_id,
            "directory": str(manager.spec.directory),
            "bootstrap_servers": state.bootstrap_servers,
            "zookeeper": state.zookeeper,
            "control_addresses": list(state.control_addresses),
            "brokers": [asdict(row) for row in manager.broker_states()],
        }

    def _add(
        self, manager: ElasticManager, request: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        count = _number(request, "count", 1, BROKERS_MAX)
        before = manager.spec.broker_ids
        manager.add_brokers(count, progress)
        return self._addresses(i for i in manager.spec.broker_ids if i not in before)

    def _restart(
        self, manager: ElasticManager, request: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        broker_id = _broker_id(manager, request)
        manager.restart_broker(broker_id, progress, str(request.get("python") or ""))
        return self._addresses([broker_id])

    def _stop(
        self, manager: ElasticManager, request: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        broker_id = _broker_id(manager, request)
        manager.stop_broker(broker_id, progress)
        return self._addresses([broker_id])

    def _start(
        self, manager: ElasticManager, request: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        broker_id = _broker_id(manager, request)
        manager.start_broker(broker_id, progress)
        return self._addresses([broker_id])

    def _remove(
        self, manager: ElasticManager, request: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        broker_id = _broker_id(manager, request)
        if manager.spec.brokers == 1:
            raise UsageError(
                f"broker {broker_id} is the only one: stop the cluster with `headwater down`"
            )
        slot = manager.spec.slot(broker_id)
        manager.remove_broker(broker_id, progress)
        return {"folders": list(map(str, slot.folders))}

    def _log_tail(
        self, manager: ElasticManager, request: dict[str, Any], _progress: Progress
    ) -> dict[str, Any]:
        size = _number(request, "size", 1, LOG_BYTES_MAX)
        return {"text": manager.log_tail(_broker_id(manager, request), size)}

    def _addresses(self, broker_ids: Iterable[int]) -> dict[str, Any]:
        assert isinstance(self._manager, ElasticManager)
        wanted = set(broker_ids)
        rows = self._manager.broker_states()
        return {"brokers": {str(r.broker_id): r.address for r in rows if r.broker_id in wanted}}


def progress_to(report: Report) -> Progress:
    """A Progress that reports events."""

    def progress(text: str, done: int, total: int) -> None:
        report({"event": "progress", "text": text, "done": done, "total": total})

    return progress


def _broker_id(manager: ElasticManager, request: dict[str, Any]) -> int:
    """The request's broker, which must be one of the cluster's. Raises UsageError."""
    value, ids = request.get("broker_id"), manager.spec.broker_ids
    if not isinstance(value, int) or value not in ids:
        raise UsageError(f"no broker {value}: the brokers are {', '.join(map(str, ids))}")
    return value


def _number(request: dict[str, Any], key: str, least: int, most: int) -> int:
    value = request.get(key)
    if not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{key.replace('_', ' ')} {value}: give {least} to {most}")
    return value
