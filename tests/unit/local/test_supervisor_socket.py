"""Requests to a running supervisor through its Unix socket, and the changes that they ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError, UsageError
from headwater.local import cluster_file
from headwater.local.cluster_file import ClusterRecord
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.daemon import ADD_BROKERS, RESTART_BROKER, Changes
from headwater.local.manager import ManagerState, Progress
from headwater.local.supervisor_socket import NAME, SupervisorSocket, ask


class Elastic:
    """A manager of brokers that are ready at once; one of them never is."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.restarted: list[int] = []
        self.broken: int | None = None

    def start(self, progress: Progress) -> None:
        raise NotImplementedError

    def stop(self, progress: Progress) -> None:
        raise NotImplementedError

    def state(self) -> ManagerState:
        control = tuple(slot.control_address for slot in self.spec.slots)
        return ManagerState(self.spec.bootstrap_servers, self.spec.zookeeper, control)

    def add_brokers(self, count: int, progress: Progress) -> None:
        for done in range(1, count + 1):
            if self.spec.brokers == self.broken:
                raise HeadwaterError(f"broker-{self.broken} exited with 3")
            self.spec = replace(self.spec, brokers=self.spec.brokers + 1)
            progress(f"broker-{self.spec.brokers - 1} is ready", done, count)

    def restart_broker(self, broker_id: int, progress: Progress) -> None:
        self.restarted.append(broker_id)


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
    server = SupervisorSocket(folder, Changes(elastic, record))
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
    [done] = ask(served, RESTART_BROKER, broker_id=1)
    assert elastic.restarted == [1] and done["brokers"] == {"1": "127.0.0.1:9093"}


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (RESTART_BROKER, {"broker_id": 2}, "broker id 2: give 0 to 1"),
        (RESTART_BROKER, {}, "broker id None"),
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
    assert elastic.restarted == [0]


def test_an_unforeseen_error_is_reported_and_the_next_request_is_served(
    served: Path, elastic: Elastic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_count: int, _progress: Progress) -> None:
        raise ZeroDivisionError("one")

    monkeypatch.setattr(elastic, "add_brokers", broken)
    with pytest.raises(HeadwaterError, match="ZeroDivisionError"):
        list(ask(served, ADD_BROKERS, count=1))
    list(ask(served, RESTART_BROKER, broker_id=0))
    assert elastic.restarted == [0]


def test_only_its_owner_may_use_the_socket(served: Path) -> None:
    assert (served / NAME).stat().st_mode & 0o777 == 0o600


def test_a_socket_that_a_killed_supervisor_left_is_replaced(folder: Path, elastic: Elastic) -> None:
    record = ClusterRecord(elastic.spec, "local", "supervisor")
    first = SupervisorSocket(folder, Changes(elastic, record))
    first.open()
    second = SupervisorSocket(folder, Changes(elastic, record))
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
    record = ClusterRecord(ClusterSpec(folder, "abc", 2, 9092), "spark", "supervisor")
    with pytest.raises(UsageError, match="run as Spark jobs"):
        Changes(Rigid(), record)({"command": ADD_BROKERS, "count": 1}, lambda _event: None)
