"""The gateway's own metrics: behind the login, by route, and of what its shell holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater_gateway.app.parts import Face
from headwater_gateway.registry.clients import OwnRegistry
from headwater_gateway.registry.part import RegistryPart
from headwater_gateway.rest.part import RestPart
from unit.gateway.gateways import ALICE, SETTINGS, Gateway, TestPart, running
from unit.gateway.memory_cluster import MemoryCluster
from unit.registry.registries import Registry

REQUESTS = "headwater_gateway_requests_total"
SECONDS = "headwater_gateway_request_seconds_count"


async def answer(request: Request) -> Response:
    """Something."""
    return Response("x")


async def page(request: Request) -> Response:
    """A page."""
    return Response("x")


ROUTES = [Route("/topics/{name}", answer, methods=["GET", "POST"])]
PAGE_ROUTES = [Route("/topics/{name}", page)]
LABELS = ("route", "method", "status", "le")


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, values of LABELS ...) -> value."""
    return {
        (one.name, *(one.labels[name] for name in LABELS if name in one.labels)): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def tried(work: Callable[[Gateway, httpx.AsyncClient], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        parts = [TestPart(ROUTES), TestPart(PAGE_ROUTES, Face.PAGES)]
        async with running(parts, **settings) as gateway, gateway.client() as client:
            return await work(gateway, client)

    return asyncio.run(run())


def test_requests_are_counted_by_route_and_status() -> None:
    async def work(gateway: Gateway, client: httpx.AsyncClient) -> str:
        for name in ("a", "b", "c%2Fd"):
            await client.get(f"/topics/{name}")
        await client.post("/topics/a", headers={"Content-Type": "text/plain"}, content=b"x")
        await client.get("/console/topics/a")
        await client.get("/nothing")
        await client.get("/health")
        reply = await client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        return reply.text

    found = samples(tried(work))
    assert found[REQUESTS, "/topics/{name}", "GET", "200"] == 3
    assert found[REQUESTS, "/console/topics/{name}", "GET", "200"] == 1
    assert found[REQUESTS, "none", "POST", "415"] == 1
    assert found[REQUESTS, "none", "GET", "404"] == 1
    assert found[REQUESTS, "/health", "GET", "200"] == 1
    assert found[SECONDS, "/topics/{name}"] == 3
    assert not any("c%2Fd" in part for key in found for part in key)


def test_the_shell_tells_slots_users_and_refused_logins() -> None:
    async def work(gateway: Gateway, client: httpx.AsyncClient) -> str:
        for _ in range(2):
            await client.get("/topics/a", auth=("mallory", "guess"))
        return (await client.get("/metrics", auth=ALICE)).text

    found = samples(tried(work, has_login=True))
    assert found["headwater_gateway_logins_refused_total",] == 2
    assert found["headwater_gateway_principals",] == 1
    assert found["headwater_gateway_login_slots_in_use",] == 0
    assert found["headwater_gateway_logins_waiting",] == 0
    assert found["headwater_gateway_body_bytes",] == 0
    assert found[REQUESTS, "none", "GET", "401"] == 2


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic bm86bm8="}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_strangers_are_told_nothing(headers: dict[str, str], status: int) -> None:
    async def work(gateway: Gateway, client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/metrics", headers=headers)

    reply = tried(work, has_login=True)
    assert reply.status_code == status and "headwater_gateway" not in reply.text


def test_each_route_of_rest_has_its_own_name_and_the_registry_one() -> None:
    async def run() -> str:
        registry = RegistryPart(lambda _stack: Registry().client.app)
        rest = RestPart(SETTINGS, OwnRegistry(registry))
        async with (
            running([registry, rest], MemoryCluster().create("flights")) as gateway,
            gateway.client() as client,
        ):
            for path in ("/subjects", "/topics", "/topics/flights", "/kafka/v3/clusters"):
                assert (await client.get(path)).status_code == 200, path
            return (await client.get("/metrics")).text

    found = samples(asyncio.run(run()))
    for route in ("/{registry}", "/topics", "/topics/{topic}", "/kafka/v3/clusters"):
        assert found[REQUESTS, route, "GET", "200"] == 1, route
