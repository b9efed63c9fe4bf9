"""Parked requests of a connection that is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.wire.apis.k01_fetch import PartitionData
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve


async def parked_fetch(broker: SoloBroker, c: Connection) -> asyncio.Task[PartitionData]:
    """A fetch of the empty t-0, once it waits for records: for weeks, if need be."""
    parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=2**31 - 1))
    while not broker.services.purgatories.fetch.parked:
        await asyncio.sleep(0)
    return parked


def test_what_is_parked_goes_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        parked = await parked_fetch(broker, other)
        other.close()
        with pytest.raises(ConnectionError):
            await parked
        while broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        await produce(c, "t", batch())  # wakes nobody that is gone

    serve(tmp_path, scenario)


@contextmanager
def reused(number: int, folder: Path) -> Iterator[None]:
    """The descriptor is another file's meanwhile, as after its own was deleted and closed."""
    other = folder / "other"
    other.write_bytes(b"\xee" * (1 << 20))
    kept, taken = os.dup(number), os.open(other, os.O_RDONLY)
    os.dup2(taken, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)
        os.close(taken)


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_slice_behind_a_parked_reply_outlives_its_segment(
    tmp_path: Path, *, is_parked: bool
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        broker.create_topic("big")
        large = batch(1, 100_000)
        if not is_parked:
            await produce(c, "big", large)
        first = asyncio.create_task(produce(c, "t", batch(), acks=-1))
        waiting = broker.services.purgatories
        while not waiting.produce.parked:
            await asyncio.sleep(0)
        second = asyncio.create_task(fetch(c, "big", 0, max_wait_ms=20_000))
        if is_parked:
            while not waiting.fetch.parked:
                await asyncio.sleep(0)
            other = await open_connection("127.0.0.1", broker.port)
            await produce(other, "big", large)
            other.close()
        for _ in range(20):  # it is ready, and behind the first
            await asyncio.sleep(0.01)
        with reused(broker.replicas.partitions[("big", 0)].log.active.file.fileno(), tmp_path):
            partition = broker.replicas.partitions[("t", 0)]
            partition.update_follower(2, BROKER_EPOCH, 1, broker.services.clock.monotonic())
            await first
            row = await second
        assert bytes(row.records or b"")[61:] == large[61:]

    serve(tmp_path, scenario)
