"""The HTTP server of the status page: GET only, on the broker's own loop.

Nothing here may stall the loop: heads are short, connections are few, and a client that is slow to
ask or to read is cut off. While there are as many as there may be, one more ends the one that has
waited longest for a request: silent connections keep nobody out. Routes make long replies in slices
(`telemetry.status_page`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from headwater.errors import UsageError
from headwater_broker.network.http_guard import HttpGuard
from headwater_broker.network.http_request import (
    HEAD_BYTES_MAX,
    HEAD_END,
    BadRequestError,
    HttpRequest,
    parse_head,
)

CONNECTIONS_MAX = 64
"""A browser opens up to six."""
HEAD_TIMEOUT_S = 10.0
"""From the end of one reply to the end of the next head: also the longest a connection idles."""
SEND_TIMEOUT_S = 10.0
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
FIXED_HEADERS = (
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'\r\n"
)

_EXTRA_HEADERS = {
    int(HTTPStatus.METHOD_NOT_ALLOWED): "Allow: GET\r\n",
    int(HTTPStatus.UNAUTHORIZED): "WWW-Authenticate: Bearer\r\n",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply."""

    body: bytes
    content_type: str = JSON
    status: int = 200


Route = Callable[[], Awaitable[HttpReply]]


class HttpStatusServer:
    """The status port of one broker. It is bound before it serves, as listeners are."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        guard: HttpGuard | None = None,
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
        head_timeout_s: float = HEAD_TIMEOUT_S,
    ) -> None:
        self.port = 0
        self._guard = guard or HttpGuard()
        self._tls = tls
        self._routes = dict(routes)
        self._connections_max = connections_max
        self._head_timeout_s = head_timeout_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Those of connections that have not asked yet, the longest wait first."""

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._tasks)

    async def bind(self, host: str, port: int) -> int:
        """Bind the port without accepting yet. Raises UsageError when that is not possible."""
        try:
            self._server = await asyncio.start_server(
                self._accept,
                host or None,
                port,
                limit=HEAD_BYTES_MAX,
                start_serving=False,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._head_timeout_s,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"status.listener: port {port} on {host or 'all addresses'} is in use: "
                    "stop the process that holds it, or choose another port"
                ) from None
            raise UsageError(f"status.listener: cannot listen on {host}:{port}: {error}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def serve(self) -> None:
        """Accept connections from now on."""
        if self._server is not None:
            await self._server.start_serving()

    async def close(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A plain function: `close` ends the tasks that are made here.
        work = self._serve_connection(reader, writer)
        task = asyncio.get_running_loop().create_task(work, name="status-page")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._waiting.pop(task, None)

    def _has_place(self) -> bool:
        """True if there is a place for one connection more, or one that waits gave up its own."""
        if len(self._tasks) <= self._connections_max:
            return True
        silent = next(iter(self._waiting), None)
        if silent is None:
            return False
        self._ended(silent)
        silent.cancel()
        return True

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # `drain` waits for the last byte
        try:
            if not self._has_place():
                await _send(writer, _refusal(503, "too many connections"), keep_alive=False)
                return
            while await self._serve_request(reader, writer):
                pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            logger.debug("status page: connection lost: %r", error)
        finally:
            _end(writer)

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Read and answer one request; True when the connection is kept alive."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._waiting[task] = None
        try:
            async with asyncio.timeout(self._head_timeout_s):
                head = await reader.readuntil(HEAD_END)
            self._waiting.pop(task, None)
            if len(head) > HEAD_BYTES_MAX:
                raise BadRequestError(431, "the head is too long")
            request = parse_head(head)
            self._guard.check(request)
        except asyncio.LimitOverrunError:
            refusal = _refusal(431, f"the head is longer than {HEAD_BYTES_MAX} bytes")
            await _send(writer, refusal, keep_alive=False)
            return False
        except BadRequestError as error:
            await _send(writer, _refusal(error.status, error.reason), keep_alive=False)
            return False
        await _send(writer, await self._reply(request), keep_alive=request.keep_alive)
        return request.keep_alive

    async def _reply(self, request: HttpRequest) -> HttpReply:
        route = self._routes.get(request.path)
        if route is None:
            known = " ".join(sorted(self._routes))
            return _refusal(404, f"no such page; the pages are {known}")
        try:
            return await route()
        except Exception:
            logger.exception("status page: %s failed", request.path)
            return _refusal(500, "internal error: see the broker's log")


def _refusal(status: int, reason: str) -> HttpReply:
    return HttpReply(f"{status} {reason}\n".encode(), TEXT, status)


async def _send(writer: asyncio.StreamWriter, reply: HttpReply, *, keep_alive: bool) -> None:
    allow = _EXTRA_HEADERS.get(reply.status, "")
    head = (
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
        f"Content-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(reply.body)}\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
        f"{allow}{FIXED_HEADERS}\r\n"
    )
    writer.write(head.encode("ascii"))
    writer.write(reply.body)
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await writer.drain()


def _end(writer: asyncio.StreamWriter) -> None:
    """Close; abort if bytes are unread, as the socket would stay open for them."""
    if writer.transport.get_write_buffer_size():
        writer.transport.abort()
    else:
        writer.close()
