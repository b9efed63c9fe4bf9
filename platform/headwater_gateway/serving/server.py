"""An ASGI application served by uvicorn until SIGTERM; where it may listen.

Only this package imports uvicorn.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from threading import Thread
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from headwater.errors import UsageError
from headwater.sockets import is_loopback
from headwater_gateway.serving.protocol import BoundedProtocol

GRACE_S = 5
STDIN = 0
BACKLOG = 2_048
CONNECTIONS_MAX = 2_000
"""More of them are answered with 503."""
KEEP_ALIVE_S = 60


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a server listens. `tls` None: plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """For people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ExposureOptions:
    """The options of a command, for the errors of `check_exposure`."""

    listen: str
    """As `--host 10.0.0.7`."""
    tls: str
    """What gives the server TLS."""
    loopback: str
    """What makes it listen at loopback."""
    login: str = "--command-config with security.protocol=SASL_SSL or SASL_PLAINTEXT"
    proxies: str = ""
    """What names proxies before the server; empty without."""


def check_exposure(listener: Listener, options: ExposureOptions, *, has_login: bool) -> None:
    """Off loopback a server needs TLS and a login, and behind a proxy a login. Raises
    UsageError."""
    if options.proxies and not has_login:
        raise UsageError(
            f"{options.proxies} lets in whoever reaches the proxy, and the brokers' listener has no"
            f" login: give {options.login}"
        )
    if is_loopback(listener.host):
        return
    if listener.tls is None:
        raise UsageError(
            f"{options.listen} is not loopback, and passwords would cross the network in clear: "
            f"give {options.tls}, or {options.loopback}"
        )
    if not has_login:
        raise UsageError(
            f"{options.listen} is not loopback, and the brokers' listener has no login: give "
            f"{options.login}, or {options.loopback}"
        )


class HttpServer(uvicorn.Server):
    """Prints a JSON line once it listens, as brokers do, for who waits for it."""

    def __init__(
        self, app: ASGIApp, listener: Listener, lifespan: AbstractAsyncContextManager[None]
    ) -> None:
        """`lifespan` is entered before it listens, and left when all requests are done."""
        config = uvicorn.Config(
            app,
            host=listener.host,
            port=listener.port,
            http=BoundedProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            log_config=None,
            ws="none",
            proxy_headers=False,
            backlog=BACKLOG,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        config.ssl = listener.tls
        super().__init__(config)
        self._listener = listener
        self._lifespan = AsyncExitStack()
        self._begin = lifespan

    def stop_at_end_of_stdin(self) -> None:
        """The supervisor's end of stdin closes when it ends, however it ends."""
        while os.read(STDIN, 4096):
            pass  # nothing is asked of a service there
        self.should_exit = True

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen, then say so. Raises what the application's beginning raises."""
        await self._lifespan.enter_async_context(self._begin)
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            print(json.dumps({"ready": True, "url": self._listener.url}), flush=True)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Let requests end for GRACE_S, then cancel them; the application ends after them."""
        await super().shutdown(sockets)  # type: ignore[arg-type]
        await self._lifespan.aclose()


def behind_proxies(app: ASGIApp, addresses: Sequence[str]) -> ASGIApp:
    """The application, which takes the client's address and scheme from these proxies."""
    # uvicorn and Starlette have types of their own for the same protocol.
    return cast("ASGIApp", ProxyHeadersMiddleware(cast("Any", app), list(addresses)))


def serve(
    app: ASGIApp,
    listener: Listener,
    *,
    until_stdin_ends: bool = False,
    lifespan: AbstractAsyncContextManager[None] | None = None,
    trusted_proxies: Sequence[str] = (),
) -> int:
    """Serve until SIGTERM or SIGINT, or until whoever started it is gone; the exit code.

    `trusted_proxies`: addresses and networks whose X-Forwarded-For and X-Forwarded-Proto count.
    """
    if trusted_proxies:
        app = behind_proxies(app, trusted_proxies)
    server = HttpServer(app, listener, lifespan or nullcontext())
    if until_stdin_ends:
        Thread(target=server.stop_at_end_of_stdin, daemon=True).start()
    # uvicorn raises the signal again at its end, when connections to the brokers are still open.
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run()
    except SystemExit:  # uvicorn has logged why it cannot listen
        return 1
    finally:
        signal.signal(signal.SIGTERM, former)
    return 0 if server.started else 1
