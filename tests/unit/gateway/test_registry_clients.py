"""The registries that the REST routes ask: at a URL, and in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headwater.errors import UsageError
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login, LoginKind, password_login
from headwater_gateway.registry.clients import HttpRegistry, OwnRegistry
from unit.registry.registries import Registry, record

ANYONE = Login.anonymous()


@pytest.fixture
def asked() -> Iterator[tuple[str, list[Any]]]:
    """A registry that answers 404, and what it was asked."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("authorization")))
            body = b'{"error_code": 40403, "message": "Schema not found"}'
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_each_user_asks_with_its_own_login(asked: tuple[str, list[Any]]) -> None:
    url, seen = asked
    registry = HttpRegistry(f"{url}/below/", {}, has_login=True)
    for login in (password_login("alice", "a:b"), Login("bob", LoginKind.TOKEN, "e.y.J"), ANYONE):
        with pytest.raises(GatewayError) as refused:
            asyncio.run(registry.ask(login, "GET", "/schemas/ids/7"))
        assert [refused.value.status, refused.value.code] == [404, 40403]
    assert seen == [
        ("/below/schemas/ids/7", "Basic YWxpY2U6YTpi"),
        ("/below/schemas/ids/7", "Bearer e.y.J"),
        ("/below/schemas/ids/7", None),
    ]


def test_a_registry_that_does_not_answer() -> None:
    registry = HttpRegistry("http://127.0.0.1:1", {}, has_login=False)
    with pytest.raises(GatewayError) as refused:
        asyncio.run(registry.ask(ANYONE, "GET", "/subjects"))
    assert [refused.value.status, refused.value.code] == [503, 50301]


@pytest.mark.parametrize("url", ["ftp://x", "x", "", "http://", "http://registry.example:8081"])
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--schema-registry"):
        HttpRegistry(url, {}, has_login=True)


def test_the_registry_of_this_process() -> None:
    own = OwnRegistry(Registry().client.app)

    async def run() -> Any:
        body = {"schema": '"int"'}
        made = await own.ask(ANYONE, "POST", "/subjects/a-value/versions", body)
        assert (await own.ask(ANYONE, "GET", "/schemas/ids/1"))["schema"] == '"int"'
        with pytest.raises(GatewayError) as refused:
            await own.ask(ANYONE, "POST", "/subjects/a-value/versions", {"schema": record()})
        assert refused.value.status in (400, 422)
        return made["id"]

    assert asyncio.run(run()) == 1
