"""Schemas for decoding: of a registry that this process serves, without a way through a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login
from headwater_gateway.app.settings import OWN_REGISTRY, GatewaySettings
from headwater_gateway.console.messages.schema_lookup import SchemaLookup
from headwater_gateway.registry.clients import OwnRegistry, SchemaRegistry
from headwater_tier.typed.decoding import SchemaSource
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError
from unit.registry.registries import Registry

ANYONE, SALT = Login.anonymous(), bytes(32)
OFF_LOOPBACK = GatewaySettings(
    "127.0.0.1:1", host="0.0.0.0", is_tls=True, schema_registry=OWN_REGISTRY
)


async def of(registry: SchemaRegistry, *questions: Any) -> list[Any]:
    """The answers to (method, argument), each asked from a thread as children's questions are."""
    lookup = SchemaLookup(OFF_LOOPBACK, registry, SALT)
    source: SchemaSource = lookup.of(ANYONE)
    assert lookup.of(ANYONE) is source
    return [
        await asyncio.to_thread(getattr(source, method), argument) for method, argument in questions
    ]


def test_a_gateway_with_tls_decodes_by_its_own_registry() -> None:
    registry = Registry()
    number = registry.register("t-value", '"int"')
    asked = (("by_id", number), ("latest", "t-value"), ("by_id", 99), ("latest", "nothing"))
    found = asyncio.run(of(OwnRegistry(registry.client.app), *asked))
    assert [found[0].text, found[1].schema_id, *found[2:]] == ['"int"', number, None, None]


def test_a_registry_that_refuses_is_no_missing_schema() -> None:
    class Refusing:
        async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
            raise GatewayError(403, 40301, "the schema registry: denied")

    with pytest.raises(SchemaUnavailableError, match=r"of this gateway answers .* with status 403"):
        asyncio.run(of(Refusing(), ("by_id", 1)))
