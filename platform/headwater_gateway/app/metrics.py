"""What the gateway tells Prometheus: requests by route and status, times, logins. On
prometheus-client, of one event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.routing import BaseRoute
from starlette.types import Scope

from headwater.clock import Clock
from headwater_gateway.app.bodies import BodyBudget
from headwater_gateway.app.client_pools import ClientPools
from headwater_gateway.app.parts import PAGES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROUTE = "headwater.route"
"""The key of a scope under which the shell names a route of its own."""
NO_ROUTE = "none"
"""Of paths that no route has: a label per path would have no end."""
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class GatewayMetrics:
    """Counts requests; `text` is all that Prometheus is told."""

    def __init__(
        self, clock: Clock, api: Iterable[BaseRoute], pages: Iterable[BaseRoute], shell: Collector
    ) -> None:
        """`api`, `pages`: the routes; a request's endpoint tells which of them it had."""
        self._clock = clock
        self._routes = {**_named(api, ""), **_named(pages, PAGES)}
        self._registry = CollectorRegistry()
        self._registry.register(shell)
        self._requests = Counter(
            "headwater_gateway_requests",
            "Requests; status 0: the client went away before a reply began.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "headwater_gateway_request_seconds",
            "From a request's head to the beginning of its reply.",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )

    def answered(self, scope: Scope, status: int, began_s: float) -> None:
        """Count a request whose reply begins, or does not come (0)."""
        route = scope.get(ROUTE) or self._routes.get(id(scope.get("endpoint")), NO_ROUTE)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(self._clock.monotonic() - began_s)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)


class ShellMetrics(Collector):
    """What the shell holds at the moment."""

    def __init__(self, clients: ClientPools, bodies: BodyBudget) -> None:
        self._clients = clients
        self._bodies = bodies

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        gate = self._clients.gate
        gauges = (
            ("login_slots_in_use", "Slots in which brokers are asked about a login.", gate.in_use),
            ("logins_waiting", "Logins that wait for a slot.", gate.waiting),
            ("principals", "Users whose clients are open.", self._clients.open),
            ("body_bytes", "Of request bodies that are held.", self._bodies.in_use),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"headwater_gateway_{name}", text, value)
        refused = self._clients.refused
        yield CounterMetricFamily(
            "headwater_gateway_logins_refused", "Logins that were refused.", refused
        )


def _named(routes: Iterable[BaseRoute], prefix: str) -> dict[int, str]:
    """The identity of each route's endpoint -> its path as it was declared."""
    found: dict[int, str] = {}
    for route in routes:
        known: Any = route
        found[id(known.endpoint)] = prefix + known.path
    return found
