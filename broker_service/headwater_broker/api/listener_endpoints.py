"""Advertised addresses of brokers, by listener."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater_broker.api.context import Services


class Endpoint(NamedTuple):
    """A broker's address on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def endpoints(services: Services, listener: str, broker_ids: Iterable[int]) -> list[Endpoint]:
    """Endpoints of those of `broker_ids` that are live and have this listener, by id."""
    found = []
    for broker_id in sorted(broker_ids):
        broker = services.view.brokers.get(broker_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == listener and broker is not None:
                found.append(Endpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
