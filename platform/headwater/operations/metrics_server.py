"""Serves one collector's metrics for Prometheus over HTTP, from a thread (a JMX exporter)."""

from __future__ import annotations

from collections.abc import Callable
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from headwater.errors import UsageError


def serve_metrics(option: str, address: str, collector: Collector) -> Callable[[], None]:
    """Serve `http://HOST:PORT/metrics`; the call that ends it.

    `option`: the option that gave `address`, for errors. Raises UsageError.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{option} {address!r}: give HOST:PORT")
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server: WSGIServer
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError) as error:
        raise UsageError(f"{option} {address}: {error}: give a free port of this host") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
