"""The status of Headwater's brokers: rates, memory, uptime. Others have no such API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from headwater.client.blocking.broker_status import BrokerStatusClient
from headwater.client.security_options import credentials_from
from headwater.client.values import Broker
from headwater.errors import HeadwaterError
from headwater_gateway.console.shell import Shell

FRESH_S = 15.0
"""The document names every topic: it is not asked for at each tick."""
BROKERS_MAX = 30
"""More brokers are listed without."""


class LiveStatus(NamedTuple):
    """A broker's own figures."""

    bytes_in: float
    """Per second, as the next two."""
    bytes_out: float
    records_in: float
    memory: int | None
    connections: int | None
    started_ms: int | None


async def live_statuses(
    shell: Shell, request: Request, brokers: Sequence[Broker]
) -> dict[int, LiveStatus]:
    """By broker id; brokers that do not tell are left out."""
    clients = shell.clients(request)

    async def load() -> dict[int, LiveStatus]:
        ask = [asyncio.to_thread(_ask, b, clients.options) for b in brokers[:BROKERS_MAX]]
        found = zip(brokers, await asyncio.gather(*ask), strict=False)
        return {b.node_id: status for b, status in found if status is not None}

    key = (request.state.login, "live statuses")
    return await shell.snapshots.get(key, load, fresh_s=FRESH_S) or {}


def _ask(broker: Broker, options: Mapping[str, Any]) -> LiveStatus | None:
    """Blocking. None from brokers that are not Headwater's, or refuse, or do not answer."""
    address = f"{broker.host}:{broker.port}"
    try:
        with BrokerStatusClient(address, credentials_from(options)) as client:
            return live_status(json.loads(client.status().document))
    except (HeadwaterError, OSError, ValueError):
        return None


def live_status(document: Mapping[str, Any]) -> LiveStatus:
    """The figures of a status document (format 1). Raises ValueError for what is none."""
    rates = document.get("rates")
    if not isinstance(rates, Mapping):
        raise ValueError("a status document without rates")
    return LiveStatus(
        float(rates.get("bytes_in", 0)),
        float(rates.get("bytes_out", 0)),
        float(rates.get("records_in", 0)),
        document.get("rss_bytes"),
        document.get("connections"),
        document.get("started_ms"),
    )
