"""What a scrape says of the partitions led here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headwater_broker.telemetry.metrics import BrokerCollector
from solo_broker import SoloBroker


def test_below_the_minimum_is_what_refuses_acks_all(tmp_path: Path) -> None:
    """A topic with fewer replicas than min.insync.replicas needs only those."""

    async def story() -> None:
        async with SoloBroker(tmp_path) as broker:
            two: Any = {"configs": {"min.insync.replicas": "2"}}
            broker.create_topic("alone", **two)
            broker.create_topic("both", replicas=(1, 2), **two)
            assert scraped(broker, "headwater_under_min_isr_partitions") == 0
            broker.create_topic("short", replicas=(1, 2), isr=(1,), **two)
            assert scraped(broker, "headwater_under_min_isr_partitions") == 1

    asyncio.run(story())


def test_the_controller_tells_of_the_cluster() -> None:
    of_controller: Any = SimpleNamespace(
        is_active=True, offline_partitions=3, unclean_elections_total=2
    )
    nothing: Any = None
    families = BrokerCollector(nothing, nothing, of_controller)._cluster()
    assert {f.samples[0].name: f.samples[0].value for f in families} == {
        "headwater_active_controller": 1,
        "headwater_offline_partitions": 3,
        "headwater_unclean_elections_total": 2,
    }


def scraped(broker: SoloBroker, name: str) -> float:
    lag: Any = None
    families = BrokerCollector(lambda: broker.services, lag, lag)._partitions(broker.services)
    [family] = [family for family in families if family.name == name]
    return float(family.samples[0].value)
