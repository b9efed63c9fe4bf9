"""The driver's port for broker tasks: who gets in, and whose reports count."""

from __future__ import annotations

import json
import queue
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.system import SystemEntropy
from headwater_spark.cluster import driver_link
from headwater_spark.cluster.driver_link import DriverLink
from headwater_spark.cluster.entry_tokens import EntryTokens

WAIT_S = 10.0


class Driver:
    """A link that keeps what it hears."""

    def __init__(self) -> None:
        self.tokens = EntryTokens(SystemEntropy())
        self.reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self.lost: queue.Queue[int] = queue.Queue()
        self.link = DriverLink(
            "127.0.0.1",
            self.tokens.admits,
            lambda report, _link: self.reports.put(report),
            lambda broker_id, _link: self.lost.put(broker_id),
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.link.port), WAIT_S)


@pytest.fixture
def driver() -> Iterator[Driver]:
    found = Driver()
    yield found
    found.link.close()


def say(task: socket.socket, **report: Any) -> None:
    task.sendall(json.dumps(report).encode() + b"\n")


def test_a_task_reports_for_its_own_broker_only(driver: Driver) -> None:
    token = driver.tokens.issue(4)
    with driver.connect() as task:
        say(task, event="up", broker_id=4, token=token)
        assert driver.reports.get(timeout=WAIT_S) == {"event": "up", "broker_id": 4}
        say(task, event="gone", broker_id=5, code=0)
        assert driver.reports.get(timeout=WAIT_S)["broker_id"] == 4
    assert driver.lost.get(timeout=WAIT_S) == 4


@pytest.mark.parametrize("token", ["", "wrong", None])
def test_who_has_no_token_is_told_so_and_heard_no_further(
    driver: Driver, token: str | None
) -> None:
    driver.tokens.issue(4)
    with driver.connect() as task:
        say(task, event="up", broker_id=4, token=token)
        assert json.loads(task.makefile().readline()) == {"command": "refuse"}
        assert task.recv(1) == b""
    assert driver.reports.empty() and driver.lost.empty()


def test_silent_connections_are_few_and_leave_room_again(driver: Driver) -> None:
    silent = [driver.connect() for _ in range(driver_link.ENTERING_MAX)]
    with driver.connect() as one_more:
        assert one_more.recv(1) == b"", "it is closed at once"
    for task in silent:
        task.shutdown(socket.SHUT_WR)
        assert task.makefile().readline() == '{"command": "refuse"}\n'
        assert task.recv(1) == b""
        task.close()
    token = driver.tokens.issue(4)
    with driver.connect() as task:
        say(task, event="up", broker_id=4, token=token)
        assert driver.reports.get(timeout=WAIT_S)["event"] == "up"
