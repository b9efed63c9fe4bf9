"""Requests to a running supervisor through its Unix socket, and the changes that they ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError, UsageError
from headwater.local import cluster_file
from headwater.local.change_requests import (
    ADD_BROKERS,
    LOG_TAIL,
    REMOVE_BROKER,
    RESTART_BROKER,
    START_BROKER,
    STATUS,
    STOP_BROKER,
    ChangeRequests,
)
from headwater.local.cluster_file import ClusterRecord
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import BrokerState, ManagerState, Progress
from headwater.local.supervisor_socket import NAME, SupervisorSocket, ask


class Elastic:
    """A manager of brokers that are ready at once; one of them never is."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.calls: list[tuple[str, int]] = []
        self.changed: Callable[[], None] = lambda: None
        self.pythons: list[str] = []
        self.broken: int | None = None

    def start(self, progress: Progress) -> None:
        raise NotImplementedError

    def stop(self, progress: Progress) -> None:
        raise NotImplementedError

    def state(self) -> ManagerState:
        control = tuple(slot.control_address for slot in self.spec.slots)
        return ManagerState(
            self.spec.bootstrap_servers, self.spec.zookeeper, control, spec=self.spec
        )

    def broker_states(self) -> tuple[BrokerState, ...]:
        return tuple(
            BrokerState(s.broker_id, s.address, True, 0, 7, "here", f"{s.name}.log", "python")
            for s in self.spec.slots
        )

    def add_brokers(self, count: int, progress: Progress) -> None:
        for done, broker_id in enumerate(self.spec.free_ids(count), start=1):
            if broker_id == self.broken:
                raise HeadwaterError(f"broker-{self.broken} exited with 3")
            self.spec = self.spec.with_broker(broker_id)
            self.changed()
            progress(f"broker-{broker_id} is ready", done, count)

    def restart_broker(self, broker_id: int, progress: Progress, python: str = "") -> None:
        self.calls.append(("restart", broker_id))
        self.pythons.append(python)

    def stop_broker(self, broker_id: int, progress: Progress) -> None:
        self.calls.append(("stop", broker_id))

    def start_broker(self, broker_id: int, progress: Progress) -> None:
        self.calls.append(("start", broker_id))

    def remove_broker(self, broker_id: int, progress: Progress) -> None:
        self.calls.append(("remove", broker_id))
        self.spec = self.spec.without_broker(broker_id)
        self.changed()

    def log_tail(self, broker_id: int, size: int) -> str:
        return "x" * size


class Rigid:
    """A manager that cannot change its brokers."""

    def start(self, progress: Progress) -> None:
        raise NotImplementedError

    def stop(self, progress: Progress) -> None:
        raise NotImplementedError

    def state(self) -> ManagerState:
        raise NotImplementedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Deeper than the path of a Unix socket may be."""
    made = tmp_path / ("a" * 60) / ("b" * 60)
    made.mkdir(parents=True)
    return made


@pytest.fixture
def elastic(folder: Path) -> Elastic:
    return Elastic(ClusterSpec(folder, "abc", 2, 9092))


@pytest.fixture
def served(folder: Path, elastic: Elastic) -> Iterator[Path]:
    record = ClusterRecord(elastic.spec, "local", "supervisor")
    record.manager = elastic
    elastic.changed = record.update
    server = SupervisorSocket(folder, ChangeRequests(elastic))
    server.open()
    yield folder
    server.close()


def test_brokers_are_added_and_recorded(served: Path) -> None:
    events = list(ask(served, ADD_BROKERS, count=2))
    assert [event.get("text") for event in events] == [
        "broker-2 is ready",
        "broker-3 is ready",
        None,
    ]
    assert events[-1]["brokers"] == {"2": "127.0.0.1:9094", "3": "127.0.0.1:9095"}
    found = cluster_file.load(served)
    assert found is not None and found.brokers == 4
    assert found.bootstrap_servers.endswith("127.0.0.1:9095") and len(found.control_addresses) == 4


def test_brokers_before_one_that_fails_stay_and_the_error_is_raised(
    served: Path, elastic: Elastic
) -> None:
    elastic.broken = 3
    with pytest.raises(HeadwaterError, match="broker-3 exited with 3"):
        list(ask(served, ADD_BROKERS, count=2))
    found = cluster_file.load(served)
    assert found is not None and found.brokers == 3


def test_a_broker_is_restarted(served: Path, elastic: Elastic) -> None:
    [done] = ask(served, RESTART_BROKER, broker_id=1, python="/new/python")
    assert elastic.calls == [("restart", 1)] and elastic.pythons == ["/new/python"]
    assert done["brokers"] == {"1": "127.0.0.1:9093"}


def test_a_broker_is_stopped_and_started(served: Path, elastic: Elastic) -> None:
    list(ask(served, STOP_BROKER, broker_id=1))
    list(ask(served, START_BROKER, broker_id=1))
    assert elastic.calls == [("stop", 1), ("start", 1)]


def test_a_removed_broker_leaves_the_record_and_its_id_is_used_again(
    served: Path, elastic: Elastic
) -> None:
    list(ask(served, ADD_BROKERS, count=1))
    [done] = ask(served, REMOVE_BROKER, broker_id=1)
    assert done["folders"] == [str(served / "broker-1")]
    found = cluster_file.load(served)
    assert found is not None and found.spec(served).broker_ids == (0, 2)
    *_, added = ask(served, ADD_BROKERS, count=1)
    assert list(added["brokers"]) == ["1"]
    found = cluster_file.load(served)
    assert found is not None and found.spec(served).broker_ids == (0, 1, 2)


def test_the_last_broker_is_not_removed(served: Path, elastic: Elastic) -> None:
    list(ask(served, REMOVE_BROKER, broker_id=0))
    with pytest.raises(UsageError, match="the only one"):
        list(ask(served, REMOVE_BROKER, broker_id=1))
    assert elastic.calls == [("remove", 0)]


def test_the_status_and_a_log_are_shown(served: Path) -> None:
    [status] = ask(served, STATUS)
    assert [row["broker_id"] for row in status["brokers"]] == [0, 1]
    assert status["bootstrap_servers"] == "127.0.0.1:9092,127.0.0.1:9093"
    [log] = ask(served, LOG_TAIL, broker_id=1, size=5)
    assert log["text"] == "xxxxx"


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (RESTART_BROKER, {"broker_id": 2}, "no broker 2: the brokers are 0, 1"),
        (RESTART_BROKER, {}, "no broker None"),
        (ADD_BROKERS, {"count": 0}, "count 0: give 1 to 100"),
        ("dance", {}, "does not know the command 'dance'"),
        (ADD_BROKERS, {"format": 2}, "format 2, this supervisor reads 1"),
    ],
)
def test_bad_requests_are_usage_errors_and_the_next_is_served(
    served: Path, elastic: Elastic, command: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        list(ask(served, command, **arguments))
    list(ask(served, RESTART_BROKER, broker_id=0))
    assert elastic.calls == [("restart", 0)]


def test_an_unforeseen_error_is_reported_and_the_next_request_is_served(
    served: Path, elastic: Elastic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_count: int, _progress: Progress) -> None:
        raise ZeroDivisionError("one")

    monkeypatch.setattr(elastic, "add_brokers", broken)
    with pytest.raises(HeadwaterError, match="ZeroDivisionError"):
        list(ask(served, ADD_BROKERS, count=1))
    list(ask(served, RESTART_BROKER, broker_id=0))
    assert elastic.calls == [("restart", 0)]


def test_only_its_owner_may_use_the_socket(served: Path) -> None:
    assert (served / NAME).stat().st_mode & 0o777 == 0o600


def test_a_socket_that_a_killed_supervisor_left_is_replaced(folder: Path, elastic: Elastic) -> None:
    first = SupervisorSocket(folder, ChangeRequests(elastic))
    first.open()
    second = SupervisorSocket(folder, ChangeRequests(elastic))
    second.open()
    list(ask(folder, RESTART_BROKER, broker_id=0))
    second.close()
    first.close()
    assert not (folder / NAME).exists()


def test_without_a_supervisor_the_error_says_so(folder: Path) -> None:
    before = os.getcwd()
    with pytest.raises(HeadwaterError, match="does not listen"):
        list(ask(folder, RESTART_BROKER, broker_id=0))
    assert os.getcwd() == before


def test_brokers_of_a_manager_that_cannot_change_them_are_left_alone(folder: Path) -> None:
    with pytest.raises(HeadwaterError, match="still starting"):
        ChangeRequests(Rigid())({"command": ADD_BROKERS, "count": 1}, lambda _event: None)
