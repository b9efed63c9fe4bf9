"""Protocols between a listener and its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.security.protocol import SecurityProtocol
from headwater_broker.api.broker_controls import BrokerControls
from headwater_broker.api.context import Services
from headwater_broker.api.registry import ApiRow
from headwater_broker.network.turn_budget import TurnBudget
from headwater_broker.network.wrong_protocol import WrongProtocolHints
from headwater_broker.security.authentication_gate import TokenExchange
from headwater_broker.security.session import Session


@dataclass(frozen=True, slots=True)
class ServedRequests:
    """The requests that a connection serves."""

    rows: dict[int, ApiRow]
    """By API key."""
    request_bytes_max: int


class AcceptedConnection(Protocol):
    """A connection as its listener sees it."""

    session: Session
    accepted: asyncio.Transport
    """The transport of the accepted socket."""
    last_active_tick: int
    """The idle sweep before which bytes came or went last."""

    @property
    def in_flight(self) -> int:
        """Replies that are not written yet."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that the kernel has not taken yet."""
        ...

    def mute(self, delay_ms: int) -> None:
        """Read nothing for so long."""
        ...

    def shrink_when_quiet(self) -> None:
        """Give a large, empty receive buffer back."""
        ...

    def close(self, reason: str) -> None:
        """Close; replies that are ready are still sent."""
        ...

    def close_idle(self) -> None:
        """Close; replies that the client has not read are dropped."""
        ...


class GatedConnection(AcceptedConnection, Protocol):
    """A connection whose gate decides what it serves."""

    def serve(self, requests: ServedRequests) -> None:
        """From the next frame on serve these requests, and no others."""
        ...

    def serve_tokens(self, exchange: TokenExchange) -> None:
        """From the next frame on take each as a SASL token without a request header."""
        ...

    def close_after_reply(self, reason: str) -> None:
        """Read nothing more; close once the request at hand is answered."""
        ...


class Acceptor(Protocol):
    """The listener that accepted a connection, as the connection sees it."""

    services: Services
    controls: BrokerControls
    loop: asyncio.AbstractEventLoop
    name: str
    protocol: SecurityProtocol
    hints: WrongProtocolHints
    served: ServedRequests
    """All of its requests."""
    in_flight_max: int
    tick: int
    """How many idle sweeps there were."""
    turn: TurnBudget

    def open_session(self, connection: GatedConnection) -> Session:
        """The session of a new connection, behind a gate where authentication is required. From
        then on the connection serves what the gate lets through."""
        ...

    def authenticated(self, connection: AcceptedConnection) -> None:
        """A connection is authenticated: limits of unauthenticated ones end for it."""
        ...

    def admit(self, connection: AcceptedConnection) -> str:
        """Count a new connection; the reason to refuse it, or an empty text."""
        ...

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection is gone."""
        ...

    def spawn(
        self, work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]
    ) -> None:
        """Run `work` to its end; `failed` gets the exception that it raises."""
        ...
