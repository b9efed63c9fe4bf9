"""A registry without Kafka for the tests: its application, asked over HTTP."""

from __future__ import annotations

import json
from typing import Any

from starlette.testclient import TestClient

from headwater.testing.clocks import ManualClock
from headwater_gateway.app.login_gate import LoginGate
from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.http_app import registry_app
from headwater_gateway.registry.http_guard import HttpGuard
from headwater_gateway.registry.memory_store import MemoryStore
from headwater_gateway.registry.parts import RegistryParts
from headwater_gateway.registry.rights import OpenRights, Rights

FORMATS = FormatCatalog()
"""Parsing is pure: all tests share what was parsed."""


class Registry:
    """One registry and a client of it."""

    def __init__(self, store: MemoryStore | None = None, rights: Rights | None = None) -> None:
        self.store = store or MemoryStore()
        parts = RegistryParts(self.store, FORMATS, rights or OpenRights(), lambda: "c1", "0.1.0")
        app = registry_app(parts, HttpGuard(), LoginGate(ManualClock()))
        self.client = TestClient(app, base_url="http://localhost")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The document of the reply; an error's is [status, code, message]."""
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        content = None if body is None else json.dumps(body)
        reply = self.client.request(method, path, content=content, headers=names)
        if reply.status_code >= 400:
            error = reply.json()
            return [reply.status_code, error["error_code"], error["message"]]
        return reply.json() if reply.content else None

    def code(self, method: str, path: str, body: Any = None) -> list[int]:
        """Status and code of an error."""
        status, code, _message = self.ask(method, path, body)
        return [status, code]

    def register(self, subject: str, schema: Any, query: str = "", **more: Any) -> Any:
        """The id of the schema, or the error."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        reply = self.ask("POST", f"/subjects/{subject}/versions{query}", {"schema": text, **more})
        return reply["id"] if isinstance(reply, dict) else reply

    def restarted(self) -> Registry:
        """Another registry that reads the same records."""
        return Registry(MemoryStore(self.store.records))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """An Avro record; a field is a name (an int), or (name, type) or (name, type, default)."""
    rows = []
    for field in fields:
        parts = (field, "int") if isinstance(field, str) else field
        rows.append(dict(zip(("name", "type", "default"), parts, strict=False)))
    return {"type": "record", "name": name, "fields": rows}
