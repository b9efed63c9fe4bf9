"""The registry as an ASGI application, on Starlette: the only module that imports its routing."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login_gate import LoginGate
from headwater_gateway.registry.apicurio_api import ApicurioResources
from headwater_gateway.registry.contexts_path import without_contexts
from headwater_gateway.registry.errors import RegistryError
from headwater_gateway.registry.http_guard import BODY_BYTES_MAX, HttpGuard
from headwater_gateway.registry.http_requests import PlainText, RegistryRequest, error_reply, reply
from headwater_gateway.registry.parts import RegistryParts
from headwater_gateway.registry.resources import Resource, Resources
from headwater_gateway.registry.rights import Rights

READ_THREADS = 32
WRITE_THREADS = 16
"""Of each path."""

log = logging.getLogger(__name__)


def registry_app(parts: RegistryParts, guard: HttpGuard, gate: LoginGate) -> ASGIApp:
    """The application. `gate`: which logins the brokers are asked about."""
    paths = {**Resources(parts).routes(), **ApicurioResources(parts).routes()}
    routes = [
        Route(path, Endpoint(by_method, parts.rights, guard, gate), methods=list(by_method))
        for path, by_method in paths.items()
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _unexpected}
    return EscapedPaths(Starlette(routes=routes, exception_handlers=handlers))


class Endpoint:
    """A path: reads the body, checks the request, calls the function of the method in a thread."""

    def __init__(
        self, by_method: dict[str, Resource], rights: Rights, guard: HttpGuard, gate: LoginGate
    ) -> None:
        self._by_method = by_method
        self._rights = rights
        self._guard = guard
        self._gate = gate
        self._limiters: tuple[CapacityLimiter, CapacityLimiter] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    def _threads(self, method: str) -> CapacityLimiter:
        """While brokers hang, writes that wait leave threads to the readers."""
        if self._limiters is None:
            self._limiters = (CapacityLimiter(READ_THREADS), CapacityLimiter(WRITE_THREADS))
        return self._limiters[method not in ("GET", "HEAD")]

    async def _answer(self, request: Request) -> Response:
        try:
            has_body = request.method in ("POST", "PUT")
            self._guard.check(request.headers, has_body=has_body)
            await self._log_in(request)
            body = await _body(request) if has_body else b""
            work = partial(self._call, request, body)
            document = await to_thread.run_sync(work, limiter=self._threads(request.method))
        except RegistryError as error:
            return error_reply(request, error)
        except GatewayError as error:  # of the gate
            refused = RegistryError(error.status, error.code, str(error))
            return error_reply(request, refused)
        if isinstance(document, PlainText):
            return PlainTextResponse(document, headers={"X-Content-Type-Options": "nosniff"})
        return reply(request, document, 204 if document is None else 200)

    async def _log_in(self, request: Request) -> None:
        """Have the brokers asked about a login that they do not know, before the body is read."""
        authorization = request.headers.get("authorization", "")
        digest = self._rights.to_ask(authorization)
        if digest is None:
            return
        host = request.client.host if request.client else ""
        async with self._gate.turn(digest, host):
            try:
                # In a thread beside those of readers and writers; the gate bounds how many.
                beside = CapacityLimiter(1)
                await to_thread.run_sync(self._rights.log_in, authorization, limiter=beside)
            except RegistryError as error:
                raise GatewayError(error.status, error.code, str(error)) from error

    def _call(self, request: Request, body: bytes) -> Any:
        user = self._rights.log_in(request.headers.get("authorization", ""))
        method = "GET" if request.method == "HEAD" else request.method
        if method not in self._by_method:
            raise RegistryError(405, 405, "HTTP 405 Method Not Allowed")
        return self._by_method[method](RegistryRequest(request, body, user))


class EscapedPaths:
    """Matches routes by the path as it was sent, still escaped, without `/contexts/C` before it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            path = raw.partition(b"?")[0].decode("latin-1")
            path, query = without_contexts(path, scope["query_string"].decode("latin-1"))
            trimmed = path.rstrip("/") or "/"
            scope = {**scope, "path": trimmed, "query_string": query.encode("latin-1")}
        await self._app(scope, receive, send)


async def _body(request: Request) -> bytes:
    blob = b""
    async for chunk in request.stream():
        blob += chunk
        if len(blob) > BODY_BYTES_MAX:
            raise RegistryError(413, 413, f"the body is longer than {BODY_BYTES_MAX} bytes")
    return blob


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    return error_reply(request, RegistryError(status, status, f"HTTP {status} {error.detail}"))


async def _unexpected(request: Request, error: Exception) -> Response:
    """The server's log has the story (Starlette raises the error again)."""
    return error_reply(request, RegistryError(500, 500, f"Internal Server Error: {error!r:.200}"))
