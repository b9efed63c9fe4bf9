"""The driver's state of a broker whose task is replaced by one on another machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.local.cluster_spec import ClusterSpec
from headwater_spark.cluster.broker_slot import BrokerSlot
from headwater_spark.cluster.driver_link import TaskLink
from headwater_spark.cluster.link_channel import PlainChannel

Ends = tuple[TaskLink, socket.socket]


@pytest.fixture
def links() -> Iterator[tuple[Ends, Ends]]:
    pairs = [socket.socketpair() for _ in range(2)]
    first, second = [(TaskLink(PlainChannel(driver)), task) for driver, task in pairs]
    yield first, second
    for link, task in (first, second):
        link.close()
        task.close()


def slot() -> BrokerSlot:
    spec = ClusterSpec(Path("/data"), "id")
    log = Path("/data/broker-1.log")
    return BrokerSlot(spec.slot(1), log, spec.host, one_host=False, command=("python",))


def test_a_task_on_another_machine_replaces_one_that_fell_silent(links: tuple[Ends, Ends]) -> None:
    (first, zombie), (second, _) = links
    broker = slot()
    broker.on_task_up({"host": "10.0.0.1"}, first)
    broker.on_ready({"ready": True, "pid": 7})
    assert broker.state().ready and broker.state().address == "10.0.0.1:9093"

    broker.on_task_up({"host": "10.0.0.2"}, second)
    assert json.loads(zombie.recv(100)) == {"command": "stop"}
    assert zombie.recv(100) == b""
    assert not broker.state().ready, "the new broker has not reported yet"
    assert broker.state().address == "10.0.0.2:9093"
    assert broker.is_current(second) and not broker.is_current(first)


def test_the_end_of_a_replaced_tasks_connection_changes_nothing(links: tuple[Ends, Ends]) -> None:
    (first, _), (second, _) = links
    broker = slot()
    broker.on_task_up({"host": "10.0.0.1"}, first)
    broker.on_task_up({"host": "10.0.0.2"}, second)
    broker.on_ready({"ready": True, "pid": 8})
    assert broker.on_task_lost(first) is None
    assert broker.state().ready and broker.state().host == "10.0.0.2"
