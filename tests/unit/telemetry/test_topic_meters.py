"""Counters of topics: they end with their topic, and the broker's totals keep them."""

from __future__ import annotations

from pathlib import Path

from headwater.client.connection import Connection
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve


def test_a_deleted_topic_is_counted_in_the_totals_only(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("short-lived")
        broker.create_topic("kept")
        for topic in ("short-lived", "kept"):
            await produce(c, topic, batch(3))
            await fetch(c, topic, 0)
        meters = broker.services.meters
        assert set(meters.topics) == {"short-lived", "kept"}
        broker.delete_topic("short-lived")
        assert set(meters.topics) == {"kept"}
        total = meters.total()
        assert (total.records_in, total.bytes_in) == (6, 2 * len(batch(3)))
        assert total.bytes_out == 2 * len(batch(3))

    serve(tmp_path, scenario)
