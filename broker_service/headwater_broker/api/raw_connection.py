"""A connection as the raw handlers (Produce, Fetch) see it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from headwater_broker.api.context import Services
from headwater_broker.api.produce.rejected_batches import RefusedBatches
from headwater_broker.api.replies import ParkedReply
from headwater_broker.api.request_meters import ApiMeter
from headwater_broker.security.session import Session


class Peer(Protocol):
    """What a raw handler sees of a connection."""

    services: Services
    session: Session
    client_id: str
    """Of the last request; told only while client quotas are set."""
    is_exempt: bool
    """A broker's: quotas of clients do not count."""
    raw_meters: Mapping[int, ApiMeter]
    """By API key; `Meters.of_followers` once the peer has fetched as a follower."""
    refused: RefusedBatches | None
    """Batches to be sent again; None as long as none was refused."""

    def park(self) -> ParkedReply:
        """Keep the next place in the order of replies."""
        ...

    def mute(self, delay_ms: int) -> None:
        """Read nothing of this client for so long (KIP-219)."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end on the loop; an error that it lets out closes the connection."""
        ...

    def close(self, reason: str) -> None:
        """A reply cannot be given, so nothing behind it can: what came before still goes out."""
        ...
