"""REST over a cluster in memory, asked by functions that return what a client reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx

from headwater_gateway.app.login import Login
from headwater_gateway.registry.clients import OwnRegistry, SchemaRegistry
from headwater_gateway.rest.part import RestPart
from headwater_gateway.rest.registry_port import NoRegistry
from unit.gateway.gateways import SETTINGS, Gateway, running
from unit.gateway.memory_cluster import MemoryCluster
from unit.registry.registries import Registry

V2 = "application/vnd.kafka.v2+json"
JSON_V2 = "application/vnd.kafka.json.v2+json"
BINARY_V2 = "application/vnd.kafka.binary.v2+json"
AVRO_V2 = "application/vnd.kafka.avro.v2+json"
CLUSTER = "/v3/clusters/c1"


class Rest:
    """A client of a running gateway."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient, cluster: MemoryCluster) -> None:
        self.gateway = gateway
        self.client = client
        self.cluster = cluster

    async def send(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **more: Any
    ) -> httpx.Response:
        """The reply. `body`: bytes as they are, else sent as JSON."""
        headers = dict(more.pop("headers", {}))
        if body is not None:
            headers["Content-Type"] = kind
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.request(method, path, content=body, headers=headers, **more)

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json",
                  **more: Any) -> Any:  # fmt: skip
        """The document of the reply; an error's is [status, code]; without one the status."""
        reply = await self.send(method, path, body, kind, **more)
        if reply.status_code >= 400:
            error = reply.json()
            assert error["message"]
            return [reply.status_code, error["error_code"]]
        return reply.json() if reply.content else reply.status_code


def with_rest(
    work: Callable[[Rest], Awaitable[Any]],
    cluster: MemoryCluster | None = None,
    registry: SchemaRegistry | None = None,
    auth: httpx.Auth | None = None,
    **settings: Any,
) -> Any:
    """Run `work` against a gateway."""
    brokers = cluster or MemoryCluster().create("flights", 2)

    async def run() -> Any:
        told = replace(SETTINGS, **settings)
        part = RestPart(told, registry or NoRegistry())
        async with (
            running([part], brokers, **settings) as gateway,
            gateway.client(auth=auth) as client,
        ):
            return await work(Rest(gateway, client, brokers))

    return asyncio.run(run())


class SpiedRegistry:
    """A registry in this process; notes who asked what."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.asked: list[tuple[str, str, str]] = []
        self._own = OwnRegistry(self.registry.client.app)

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((login.name, method, path))
        return await self._own.ask(login, method, path, body)
