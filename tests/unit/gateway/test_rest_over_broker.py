"""REST with the real SDK before a real broker's data plane, both in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.system import SystemClock
from headwater_gateway.app.sdk_clients import SdkConnector
from headwater_gateway.rest.part import RestPart
from headwater_gateway.rest.registry_port import NoRegistry
from solo_broker import CLUSTER_ID
from unit.client.served_broker import ServedBroker
from unit.gateway.gateways import SETTINGS, running
from unit.gateway.rest_gateways import JSON_V2, V2

ONE = "/consumers/g/instances/one"
RECORDS = 50
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, group_initial_rebalance_delay_ms="0") as served:
        served.do(lambda b: b.create_topic("flights", 2))
        served.do(lambda b: b.create_topic("__consumer_offsets", 1))
        yield served


def asked(broker: ServedBroker, work: Callable[[Ask], Awaitable[Any]]) -> Any:
    """Run `work` with a client of a gateway before the broker."""
    settings = replace(SETTINGS, bootstrap_servers=broker.bootstrap)

    async def run() -> Any:
        part, connector = RestPart(settings, NoRegistry()), SdkConnector(settings)
        async with (
            running([part], connector, SystemClock()) as gateway,
            gateway.client(timeout=60) as client,
        ):

            async def ask(method: str, path: str, body: Any = None, kind: str = V2) -> Any:
                content = None if body is None else json.dumps(body)
                headers = {"Content-Type": kind}
                reply: httpx.Response = await client.request(
                    method, path, content=content, headers=headers
                )
                assert reply.is_success, reply.text
                return reply.json() if reply.content else None

            return await work(ask)

    return asyncio.run(run())


def test_produced_consumed_committed_and_read_on(broker: ServedBroker) -> None:
    async def work(ask: Ask) -> None:
        rows = [{"value": n, "partition": n % 2} for n in range(RECORDS)]
        report = await ask("POST", "/topics/flights", {"records": rows}, JSON_V2)
        at = [(row["partition"], row["offset"]) for row in report["offsets"]]
        assert at == [(n % 2, n // 2) for n in range(RECORDS)]
        settings = {"name": "one", "format": "json", "auto.offset.reset": "earliest",
                    "auto.commit.enable": "false"}  # fmt: skip
        await ask("POST", "/consumers/g", settings)
        await ask("POST", f"{ONE}/subscription", {"topics": ["flights"]})
        found: list[int] = []
        while len(found) < RECORDS:  # a little at a time: the rest is given back, and read again
            found += [r["value"] for r in await ask("GET", f"{ONE}/records?max_bytes=20")]
        assert sorted(found) == list(range(RECORDS))
        for partition in (0, 1):
            mine = [n for n in found if n % 2 == partition]
            assert mine == sorted(mine)
        await ask("POST", f"{ONE}/offsets")
        group = f"/v3/clusters/{CLUSTER_ID}/consumer-groups/g"
        assert (await ask("GET", f"{group}/lag-summary"))["total_lag"] == 0
        assert (await ask("GET", group))["state"] == "STABLE"
        positions = {"offsets": [{"topic": "flights", "partition": 1, "offset": 3}]}
        await ask("POST", f"{ONE}/positions", positions)
        again = await ask("GET", f"{ONE}/records?timeout=5000")
        assert [r["offset"] for r in again][:1] == [3]
        await ask("DELETE", ONE)
        assert (await ask("GET", group))["state"] == "EMPTY"

    asked(broker, work)


def test_two_members_share_the_partitions(broker: ServedBroker) -> None:
    async def work(ask: Ask) -> None:
        for name in ("one", "two"):
            await ask("POST", "/consumers/g", {"name": name, "format": "json"})
            path = f"/consumers/g/instances/{name}/subscription"
            await ask("POST", path, {"topics": ["flights"]})
        while True:  # each read lets a member take part in the rebalance
            sizes = []
            for name in ("one", "two"):
                await ask("GET", f"/consumers/g/instances/{name}/records?timeout=50")
                found = await ask("GET", f"/consumers/g/instances/{name}/assignments")
                sizes.append(len(found["partitions"]))
            if sizes == [1, 1]:
                return

    asked(broker, work)


def test_topics_and_offsets(broker: ServedBroker) -> None:
    async def work(ask: Ask) -> None:
        topic = await ask("GET", "/topics/flights")
        assert [row["leader"] for row in topic["partitions"]] == [1, 1]
        await ask("POST", "/topics/flights", {"records": [{"value": 1, "partition": 0}]}, JSON_V2)
        offsets = await ask("GET", "/topics/flights/partitions/0/offsets")
        assert offsets == {"beginning_offset": 0, "end_offset": 1}
        (row,) = (await ask("GET", "/v3/clusters"))["data"]
        assert row["cluster_id"] == CLUSTER_ID

    asked(broker, work)


def test_a_broker_that_is_gone(broker: ServedBroker) -> None:
    broker.close_port()
    settings = replace(SETTINGS, bootstrap_servers=broker.bootstrap)

    async def run() -> int:
        connector = SdkConnector(settings, connect_timeout_ms=200)
        part = RestPart(settings, NoRegistry())
        async with running([part], connector) as gateway, gateway.client() as client:
            return (await client.get("/topics")).status_code

    assert asyncio.run(run()) == 503
