"""A client connection as the raw handlers (Produce, Fetch, ShareFetch) see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from headwater_broker.api.context import Services
from headwater_broker.api.rejected_batches import RejectedBatches
from headwater_broker.api.replies import ParkedReply
from headwater_broker.api.request_meters import ApiMeter
from headwater_broker.security.session import Session


class Peer(Protocol):
    """The connection of a raw request."""

    services: Services
    session: Session
    client_id: str
    """Client id of the last request; set only while some client has a quota."""
    is_exempt: bool
    """True for a broker's connection: client quotas do not apply to it."""
    raw_meters: Mapping[int, ApiMeter]
    """By API key; `Meters.of_followers` once the peer has fetched as a follower."""
    rejected: RejectedBatches | None
    """Batches that were rejected and are sent again; None while there are none."""
    at_end: dict[object, Callable[[], None]]
    """Called when the connection is lost: what ends with it, by owner."""

    def park(self) -> ParkedReply:
        """Keep the next place in the order of replies."""
        ...

    def mute(self, delay_ms: int) -> None:
        """Read nothing from the client for so long (KIP-219)."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end on the loop; an exception closes the connection."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection: a response cannot be given, so none of those behind it can. Earlier
        responses are still sent."""
        ...
