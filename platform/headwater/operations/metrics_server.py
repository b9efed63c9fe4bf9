"""Serves one collector's metrics for Prometheus over HTTP, from threads (a JMX exporter).

It is guarded as the brokers' status port is: requests name this server in their Host header, and
off loopback a process that logs in to a cluster serves only who shows a token or a certificate.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.security.bearer_token import TokenFile, shows
from headwater.security.own_hosts import OwnHosts
from headwater.security.tls_context import ClientValues, server_context
from headwater.sockets import is_loopback

TOKEN_KEY = "bearer.token.file"
HOSTS_KEY = "allowed.hosts"
TLS_PREFIX = "ssl."
WAITING_MAX = 32
"""Connections that have not asked yet; one more ends the one that has waited longest."""
SILENCE_S = 10.0
"""A connection that sends nothing for so long is closed."""
REQUEST_S = 60.0
"""How long a connection may take at all; a scrape of lags asks the brokers."""

logger = logging.getLogger(__name__)

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class MetricsListener:
    """Where and how metrics are served."""

    option: str
    """The option that gave the address, for errors."""
    address: str
    """HOST:PORT"""
    config: str = ""
    """A file of properties: bearer.token.file, ssl.*, allowed.hosts; empty: none."""
    config_option: str = "--metrics-config"
    is_secure: bool = False
    """Whether the process logs in to a cluster: what it serves is not for everybody then."""


def serve_metrics(listener: MetricsListener, collector: Collector) -> Callable[[], None]:
    """Serve `http://HOST:PORT/metrics`; the call that ends it. Raises UsageError."""
    host, port = _host_port(listener)
    properties = {}
    if listener.config:
        properties = read_java_properties(listener.config, listener.config_option)
    tls = _tls(properties)
    path = properties.get(TOKEN_KEY, "")
    token = TokenFile(TOKEN_KEY, path) if path else None
    is_mutual = tls is not None and tls.verify_mode is ssl.CERT_REQUIRED
    if token is None and not is_mutual:
        _check_loopback(listener, host)
    registry = CollectorRegistry()
    registry.register(collector)
    hosts = OwnHosts([host, *(h.strip() for h in properties.get(HOSTS_KEY, "").split(","))])
    try:
        server = _Server(host, port, tls)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"{listener.option} {listener.address}: {error}: give a free port of this host"
        ) from error
    server.set_app(_guarded(make_wsgi_app(registry), hosts, token))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _host_port(listener: MetricsListener) -> tuple[str, int]:
    host, _, port = listener.address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{listener.option} {listener.address!r}: give HOST:PORT")
    return host.strip("[]"), int(port)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    for name in properties:
        if name not in (TOKEN_KEY, HOSTS_KEY) and not name.startswith(TLS_PREFIX):
            raise UsageError(
                f"config {name} is not for metrics: there are {TOKEN_KEY}, {HOSTS_KEY}, ssl.*"
            )
    if not any(name.startswith(TLS_PREFIX) for name in properties):
        return None
    return server_context(ClientValues(properties))


def _check_loopback(listener: MetricsListener, host: str) -> None:
    if is_loopback(host):
        return
    text = (
        f"{listener.option} {listener.address}: everybody who reaches this host sees topics, "
        f"groups and lags: listen on 127.0.0.1, or give {listener.config_option} FILE with "
        f"{TOKEN_KEY}, or with ssl.keystore.*, ssl.truststore.* and ssl.client.auth=required"
    )
    if listener.is_secure:
        raise UsageError(text)
    logger.warning("%s", text)


def _guarded(app: Wsgi, hosts: OwnHosts, token: Callable[[], str] | None) -> Wsgi:
    def guard(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if host and not hosts.has(host):
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"this Host is not a name of this server: see allowed.hosts\n"]
        if token is not None and not shows(environ.get("HTTP_AUTHORIZATION", ""), token()):
            headers = [("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")]
            start("401 Unauthorized", headers)
            return [b"a bearer token is needed\n"]
        return app(environ, start)

    return guard


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        logger.debug("metrics: a connection ended at its limit by itself")


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S
    server: _Server

    def parse_request(self) -> bool:
        """True for a request: its connection waits no longer."""
        is_request = super().parse_request()
        self.server.asked()
        return is_request

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per connection; TLS handshakes are in the threads too: a silent client holds up
    nobody."""

    daemon_threads = True

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._waiting: dict[int, socket.socket] = {}
        """By thread, the longest wait first."""
        self._lock = threading.Lock()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """As the base classes do, without asking DNS for this host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection, in its thread."""
        request.settimeout(SILENCE_S)
        if self._tls is None:
            with self._limited(request):
                super().finish_request(request, client_address)
            return
        with (
            self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ) as secured,
            self._limited(secured),
        ):
            secured.do_handshake()
            super().finish_request(secured, client_address)

    def asked(self) -> None:
        """The connection of this thread has sent its request."""
        with self._lock:
            self._waiting.pop(threading.get_ident(), None)

    @contextmanager
    def _limited(self, connection: socket.socket) -> Iterator[None]:
        """Let a connection wait among the others, and end it REQUEST_S after its begin: a byte now
        and then is no silence."""
        with self._lock:
            self._waiting[threading.get_ident()] = connection
            if len(self._waiting) > WAITING_MAX:
                _end(self._waiting.pop(next(iter(self._waiting))))
        end = threading.Timer(REQUEST_S, _end, [connection])
        end.daemon = True
        end.start()
        try:
            yield
        finally:
            end.cancel()
            self.asked()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or whose handshake failed, is no error of this process."""
        logger.debug("metrics: connection of %s failed", client_address, exc_info=True)
