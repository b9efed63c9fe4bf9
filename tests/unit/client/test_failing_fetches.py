"""UNKNOWN_SERVER_ERROR of a broker: a short failure is hidden, one that lasts is raised."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.client.consumer import Consumer
from headwater.client.errors import UnknownServerError
from headwater.client.values import TopicPartition
from headwater.ports.remote_log import RemoteLogError, RemoteSlice
from headwater.records.builder import build_batch
from solo_broker import SoloBroker

TP = TopicPartition("t", 0)


class Table:
    """A remote log whose first reads fail."""

    def __init__(self, folder: Path, failures: float) -> None:
        self.failures = failures
        self.path = folder / "slice"
        self.path.write_bytes(build_batch([(1, None, b"old", ())]))

    async def read(self, *_: Any) -> RemoteSlice:
        if self.failures > 0:
            self.failures -= 1
            raise RemoteLogError("the table's folder is gone")
        return RemoteSlice(str(self.path), 0, self.path.stat().st_size, 1)


def first_poll(
    tmp_path: Path, failures: float, timeout_ms: int = 10_000
) -> tuple[Table, dict[TopicPartition, Any]]:
    async def run() -> tuple[Table, dict[TopicPartition, Any]]:
        broker = SoloBroker(tmp_path / "log")
        broker.remote_log = table = Table(tmp_path, failures)
        async with broker:
            broker.create_topic("t")
            broker.replicas.lookup("t", 0).log.local_log_start_offset = 1
            return table, await asyncio.to_thread(poll_from_0, broker.port, timeout_ms)

    return asyncio.run(run())


def poll_from_0(port: int, timeout_ms: int) -> dict[TopicPartition, Any]:
    address = f"127.0.0.1:{port}"
    with Consumer(bootstrap_servers=address, server_error_timeout_ms=timeout_ms) as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 0)
        return consumer.poll(20_000)


def test_a_short_failure_is_retried_in_silence(tmp_path: Path) -> None:
    table, polled = first_poll(tmp_path, failures=3)
    assert table.failures == 0
    assert [record.value for record in polled[TP]] == [b"old"]


def test_an_error_that_lasts_is_raised(tmp_path: Path) -> None:
    with pytest.raises(UnknownServerError, match=r"t-0 at offset 0: broker 1 failed .*verify t"):
        first_poll(tmp_path, failures=float("inf"), timeout_ms=200)
