"""What the status port serves: the page, this broker's document, all brokers' documents, metrics.

`/cluster.json` is composed here so that a page needs one origin only: this broker asks the others
over the control plane and joins their texts as they are, parsing none of them.
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
from headwater_broker.telemetry.broker_events import Comings
from headwater_broker.telemetry.cached_answer import Recent
from headwater_broker.telemetry.metrics import CONTENT_TYPE, MetricsText

CLUSTER_FORMAT = 1
KEEP_S = 0.5
"""However many pages look, a document is made twice a second at most."""
PEER_TIMEOUT_MS = 700
"""A broker that hangs costs a page this much, once per look."""
PAGE = "status_page.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """What the pages are made of."""

    broker_id: int
    clock: Clock
    view: MetadataCache
    comings: Comings
    control: ControlCalls
    document: Callable[[], Awaitable[str]]
    metrics: MetricsText
    is_ready: Callable[[], bool]
    pool: Executor
    """Metrics are formatted there: that is text alone, and the interpreter switches often."""


class StatusPages:
    """The routes of one broker."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._page = files("headwater_broker.telemetry").joinpath(PAGE).read_bytes()
        self._own = Recent(parts.document, parts.clock, KEEP_S)
        self._cluster = Recent(self._compose, parts.clock, KEEP_S)
        self._metrics = Recent(self._render_metrics, parts.clock, KEEP_S)

    def routes(self) -> dict[str, Route]:
        """For `server.http_status.HttpStatusServer`."""
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
        ready = self._parts.is_ready()
        told = {"broker_id": self._parts.broker_id, "ready": ready}
        return HttpReply(json.dumps(told).encode(), status=200 if ready else 503)

    async def _render_metrics(self) -> bytes:
        families = await self._parts.metrics.collect()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parts.pool, self._parts.metrics.format, families)

    async def _compose(self) -> str:
        parts = self._parts
        others = [b for i, b in sorted(parts.view.brokers.items()) if i != parts.broker_id]
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
            for broker_id, left in sorted(parts.comings.departed.items())
        ]
        head = json.dumps(
            {
                "format": CLUSTER_FORMAT,
                "told_by": parts.broker_id,
                "cluster_id": parts.view.cluster_id,
                "controller_id": parts.view.controller_id,
                "now_ms": parts.clock.now_ms(),
            }
        )
        return f'{head[:-1]},"brokers":[{",".join([own, *texts, *away])}]}}'

    async def _own_row(self) -> str:
        # Before it is registered the view does not name it, but it is here and tells.
        return _row(self._parts.broker_id, "", await self._own.get())

    async def _peer_row(self, broker: LiveBroker) -> str:
        control, address = self._parts.control, broker.control_address
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
    """`document` is JSON already, as a broker of this cluster encoded it."""
    told = {"broker_id": broker_id, "alive": True, "control_address": address, "problem": ""}
    return f'{json.dumps(told)[:-1]},"document":{document}}}'
