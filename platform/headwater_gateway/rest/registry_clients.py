"""Schema registries for the REST routes: one at a URL, and the one that this process serves."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Scope

from headwater.errors import UsageError
from headwater.security.tls_context import client_context
from headwater.sockets import is_loopback
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
UNAVAILABLE = 50301


class HttpRegistry:
    """A registry at a URL (`SchemaRegistry`), asked as the user's own login."""

    def __init__(self, url: str, properties: Mapping[str, str], *, has_login: bool) -> None:
        """Raises UsageError for a URL that is none, or by which passwords would go in clear."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(f"--schema-registry {url!r}: give http://HOST:PORT or https://")
        if parts.scheme == "http" and has_login and not is_loopback(parts.hostname):
            raise UsageError(f"--schema-registry {url} would get passwords in clear: use https")
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/")
        tls = {k: v for k, v in properties.items() if k.startswith("ssl.")}
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = client_context(tls)

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """See the port."""
        try:
            status, answer = await asyncio.to_thread(self._ask, login, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise GatewayError(
                503, UNAVAILABLE, f"the schema registry does not answer: {error}"
            ) from error
        return document_of(status, answer)

    def _ask(self, login: Login, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, content, headers_of(login))
            reply = connection.getresponse()
            return reply.status, reply.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=self._tls
        )


class OwnRegistry:
    """The registry that this process serves (`SchemaRegistry`), called without a socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(self, login: Login, method: str, path: str, body: Any = None) -> Any:
        """See the port."""
        headers = [(k.lower().encode(), v.encode()) for k, v in headers_of(login).items()]
        raw, _, query = path.partition("?")
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), *headers],
            "scheme": "http",
            "root_path": "",
            "client": None,
            "server": ("localhost", 0),
            "state": {},
        }
        content = b"" if body is None else json.dumps(body).encode()
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        status, answer = 0, b""

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            answer += message.get("body", b"")

        await self._app(scope, receive, send)
        return document_of(status, answer)


def headers_of(login: Login) -> dict[str, str]:
    """Headers of a request as this user."""
    authorization = login.authorization()
    own = {"Authorization": authorization} if authorization else {}
    return {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE, **own}


def document_of(status: int, answer: bytes) -> Any:
    """The document of a reply. Raises GatewayError for an error's."""
    try:
        document = json.loads(answer) if answer else None
    except (ValueError, RecursionError):
        document = None
        status = max(status, 502)
    if status < 400:
        return document
    told = document if isinstance(document, dict) else {}
    code, message = told.get("error_code"), told.get("message")
    raise GatewayError(
        status,
        code if isinstance(code, int) else status,
        f"the schema registry: {message or f'HTTP {status}'}",
    )
