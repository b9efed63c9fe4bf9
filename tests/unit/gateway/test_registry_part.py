"""The schema registry under the gateway: its paths, its media types, read-only."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headwater_gateway.registry.clients import OwnRegistry
from headwater_gateway.registry.part import RegistryPart
from headwater_gateway.rest.part import RestPart
from unit.gateway.gateways import SETTINGS, running
from unit.gateway.memory_cluster import MemoryCluster
from unit.registry.registries import Registry

V1 = "application/vnd.schemaregistry.v1+json"
SCHEMA = {"schema": '"int"'}


def asked(*requests: tuple[str, str, Any], is_read_only: bool = False) -> list[Any]:
    """Status and document of each reply of one gateway with registry and REST."""
    registry = Registry()
    registry.register("there-value", '"string"')

    async def run() -> list[Any]:
        part = RegistryPart(lambda _stack: registry.client.app, is_read_only=is_read_only)
        rest = RestPart(SETTINGS, OwnRegistry(part))
        cluster = MemoryCluster().create("flights")
        async with running([part, rest], cluster) as gateway, gateway.client() as client:
            found = []
            for method, path, body in requests:
                content = None if body is None else json.dumps(body)
                headers = {"Content-Type": V1, "Accept": V1}
                reply = await client.request(method, path, content=content, headers=headers)
                found.append([reply.status_code, reply.json()])
            return found

    return asyncio.run(run())


def test_both_interfaces_in_one_process() -> None:
    made, listed, by_id, topics, missing = asked(
        ("POST", "/subjects/a%2Fb/versions", SCHEMA),
        ("GET", "/subjects", None),
        ("GET", "/schemas/ids/2", None),
        ("GET", "/topics", None),
        ("GET", "/schemas/ids/9", None),
    )
    assert [made[0], made[1]["id"]] == [200, 2]
    assert listed == [200, ["a/b", "there-value"]]
    assert by_id[1]["schema"] == '"int"'
    assert topics == [200, ["flights"]]
    assert [missing[0], missing[1]["error_code"]] == [404, 40403]


def test_contexts_before_a_path() -> None:
    made, listed = asked(
        ("POST", "/contexts/.other/subjects/a/versions", SCHEMA),
        ("GET", "/contexts/.other/subjects", None),
    )
    assert [made[0], listed] == [200, [200, [":.other:a"]]]


def test_read_only_asks_and_changes_nothing() -> None:
    found = asked(
        ("GET", "/subjects", None),
        ("POST", "/compatibility/subjects/there-value/versions/latest", {"schema": '"string"'}),
        ("POST", "/subjects/there-value", {"schema": '"string"'}),
        ("POST", "/subjects/there-value/versions", SCHEMA),
        ("PUT", "/config", {"compatibility": "NONE"}),
        ("DELETE", "/subjects/there-value", None),
        ("DELETE", "/config", None),
        is_read_only=True,
    )
    assert [row[0] for row in found] == [200, 200, 200, 404, 404, 404, 404]
