"""What becomes of parked requests when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from solo_broker import SoloBroker
from unit.server.test_data_plane import batch, fetch, produce, serve


def test_what_is_parked_goes_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        parked = asyncio.create_task(fetch(other, "t", 0, max_wait_ms=2**31 - 1))
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        other.close()
        with pytest.raises(ConnectionError):
            await parked
        while broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        await produce(c, "t", batch())  # wakes nobody that is gone

    serve(tmp_path, scenario)
