"""The status port: status page, status documents of this and of all brokers, metrics, health.

The broker composes `/cluster.json` so that the page needs only one origin: it asks the other
brokers over the control plane, and joins their texts without parsing them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.resources import files

from headwater.clock import Clock
from headwater.errors import KafkaError
from headwater.ports.control import ControlCalls, ControlUnavailableError
from headwater.wire.control import LiveBroker, StatusReply, StatusRequest
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.network.http_server import HTML, HttpReply, Route
from headwater_broker.telemetry.broker_events import BrokerEvents
from headwater_broker.telemetry.cached_answer import CachedAnswer
from headwater_broker.telemetry.metrics import CONTENT_TYPE, MetricsText

CLUSTER_FORMAT = 1
KEEP_S = 0.5
"""A document is encoded at most twice a second, whatever the number of open pages."""
PEER_TIMEOUT_MS = 700
"""A broker that hangs delays `/cluster.json` by this much."""
PAGE = "status_page.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPageContext:
    """The parts of the broker that the status port reads."""

    broker_id: int
    clock: Clock
    view: MetadataCache
    broker_events: BrokerEvents
    control: ControlCalls
    document: Callable[[], Awaitable[str]]
    metrics: MetricsText
    is_ready: Callable[[], bool]
    pool: Executor
    """Formats metrics off the loop."""


class StatusPages:
    """The routes of one broker."""

    def __init__(self, context: StatusPageContext) -> None:
        self._context = context
        self._page = files("headwater_broker.telemetry").joinpath(PAGE).read_bytes()
        self._own = CachedAnswer(context.document, context.clock, KEEP_S)
        self._cluster = CachedAnswer(self._compose, context.clock, KEEP_S)
        self._metrics = CachedAnswer(self._render_metrics, context.clock, KEEP_S)

    def routes(self) -> dict[str, Route]:
        """The handlers for `network.http_server.HttpStatusServer`, by path."""
        return {
            "/": self._get_page,
            "/status.json": self._get_status,
            "/cluster.json": self._get_cluster,
            "/metrics": self._get_metrics,
            "/health": self._get_health,
        }

    async def _get_page(self) -> HttpReply:
        return HttpReply(self._page, HTML)

    async def _get_status(self) -> HttpReply:
        return HttpReply((await self._own.get()).encode())

    async def _get_cluster(self) -> HttpReply:
        return HttpReply((await self._cluster.get()).encode())

    async def _get_metrics(self) -> HttpReply:
        return HttpReply(await self._metrics.get(), CONTENT_TYPE)

    async def _get_health(self) -> HttpReply:
        ready = self._context.is_ready()
        row = {"broker_id": self._context.broker_id, "ready": ready}
        return HttpReply(json.dumps(row).encode(), status=200 if ready else 503)

    async def _render_metrics(self) -> bytes:
        families = await self._context.metrics.collect()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._context.pool, self._context.metrics.format, families
        )

    async def _compose(self) -> str:
        context = self._context
        others = [b for i, b in sorted(context.view.brokers.items()) if i != context.broker_id]
        own, *texts = await asyncio.gather(self._own_row(), *map(self._peer_row, others))
        away = [
            json.dumps(
                {
                    "broker_id": broker_id,
                    "alive": False,
                    "control_address": left.control_address,
                    "gone_ms": left.gone_ms,
                    "problem": "not registered",
                }
            )
            for broker_id, left in sorted(context.broker_events.departed.items())
        ]
        head = json.dumps(
            {
                "format": CLUSTER_FORMAT,
                "answered_by": context.broker_id,
                "cluster_id": context.view.cluster_id,
                "controller_id": context.view.controller_id,
                "now_ms": context.clock.now_ms(),
            }
        )
        return f'{head[:-1]},"brokers":[{",".join([own, *texts, *away])}]}}'

    async def _own_row(self) -> str:
        # The metadata cache has this broker only once it is registered.
        return _row(self._context.broker_id, "", await self._own.get())

    async def _peer_row(self, broker: LiveBroker) -> str:
        control, address = self._context.control, broker.control_address
        try:
            reply = await control.call(address, StatusRequest(), StatusReply, PEER_TIMEOUT_MS)
        except (ControlUnavailableError, KafkaError) as error:
            late = "DEADLINE" in str(error)
            problem = f"no answer within {PEER_TIMEOUT_MS} ms" if late else "does not answer"
            return json.dumps(
                {
                    "broker_id": broker.broker_id,
                    "alive": True,
                    "control_address": address,
                    "problem": problem,
                }
            )
        return _row(broker.broker_id, address, reply.document)


def _row(broker_id: int, address: str, document: str) -> str:
    """A broker's row; `document` is JSON already."""
    row = {"broker_id": broker_id, "alive": True, "control_address": address, "problem": ""}
    return f'{json.dumps(row)[:-1]},"document":{document}}}'
