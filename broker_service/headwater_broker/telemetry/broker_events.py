"""Departures and arrivals of other brokers, as this broker saw them. Pure.

The status page shows the last departure. Each broker keeps its own short history; the page takes
the earliest time of each event from all of them. `broker_epoch` distinguishes the registrations of
a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

EVENTS_MAX = 50
GONE = "gone"
BACK = "back"


class SeenBroker(Protocol):
    """A live broker of the cluster."""

    @property
    def broker_epoch(self) -> int:
        """The czxid of its registration."""
        ...

    @property
    def control_address(self) -> str:
        """host:port of its control plane."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """A broker left, with the broker epoch that ended, or came back, with the new one."""

    broker_id: int
    kind: str
    broker_epoch: int
    at_ms: int
    away_ms: int = -1
    """With `back`: how long it was away."""


@dataclass(frozen=True, slots=True)
class Departed:
    """A broker that is away."""

    broker_epoch: int
    control_address: str
    gone_ms: int


class BrokerEvents:
    """Compares the live brokers now with those before."""

    def __init__(self) -> None:
        self.departed: dict[int, Departed] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._seen: Mapping[int, SeenBroker] = {}

    def observe(self, brokers: Mapping[int, SeenBroker], now_ms: int) -> None:
        """Record the live brokers; call whenever they may have changed."""
        before, self._seen = self._seen, brokers
        for broker_id, former in before.items():
            if broker_id not in brokers:
                self._left(broker_id, former, now_ms)
        for broker_id, live in brokers.items():
            known = before.get(broker_id)
            if known is not None and known.broker_epoch != live.broker_epoch:
                self._left(broker_id, known, now_ms)  # it left and came back in between
            if broker_id in self.departed:
                self._came_back(broker_id, live, now_ms)

    def describe(self) -> list[dict[str, Any]]:
        """The events, oldest first."""
        return [asdict(event) for event in self._events]

    def _left(self, broker_id: int, known: SeenBroker, now_ms: int) -> None:
        epoch = known.broker_epoch
        self.departed[broker_id] = Departed(epoch, known.control_address, now_ms)
        self._events.append(Event(broker_id, GONE, epoch, now_ms))

    def _came_back(self, broker_id: int, live: SeenBroker, now_ms: int) -> None:
        left = self.departed.pop(broker_id)
        if left.broker_epoch == live.broker_epoch:
            # The same registration is there again: the broker never left.
            gone = Event(broker_id, GONE, left.broker_epoch, left.gone_ms)
            if gone in self._events:
                self._events.remove(gone)
            return
        away_ms = max(0, now_ms - left.gone_ms)
        self._events.append(Event(broker_id, BACK, live.broker_epoch, now_ms, away_ms))
