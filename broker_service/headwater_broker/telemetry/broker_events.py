"""Which brokers went and came, and when, as this broker saw it: the status page's last kill. Pure.

Each broker keeps its own short memory; a reader of several takes the earliest sight of each event
(`broker_epoch` tells the lives of a broker apart).
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
    """What is needed of a live broker."""

    @property
    def broker_epoch(self) -> int:
        """The czxid of its registration: another one is another life."""
        ...

    @property
    def control_address(self) -> str:
        """Where it answered."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """A broker went (`broker_epoch`: of the life that ended) or came (of the new one)."""

    broker_id: int
    kind: str
    broker_epoch: int
    at_ms: int
    away_ms: int = -1
    """How long it was away, with `back`; -1 when its going was not seen."""


@dataclass(frozen=True, slots=True)
class Departed:
    """A broker that is away."""

    broker_epoch: int
    control_address: str
    gone_ms: int


class Comings:
    """Compares what the view names now with what it named before."""

    def __init__(self) -> None:
        self.departed: dict[int, Departed] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._seen: Mapping[int, SeenBroker] = {}

    def observe(self, brokers: Mapping[int, SeenBroker], now_ms: int) -> None:
        """Call whenever the view may name others than before."""
        before, self._seen = self._seen, brokers
        for broker_id, former in before.items():
            if broker_id not in brokers:
                self._went(broker_id, former, now_ms)
        for broker_id, live in brokers.items():
            known = before.get(broker_id)
            if known is not None and known.broker_epoch != live.broker_epoch:
                self._went(broker_id, known, now_ms)  # dead and back between two looks
            if broker_id in self.departed:
                self._came(broker_id, live, now_ms)

    def describe(self) -> list[dict[str, Any]]:
        """The events, oldest first."""
        return [asdict(event) for event in self._events]

    def _went(self, broker_id: int, known: SeenBroker, now_ms: int) -> None:
        epoch = known.broker_epoch
        self.departed[broker_id] = Departed(epoch, known.control_address, now_ms)
        self._events.append(Event(broker_id, GONE, epoch, now_ms))

    def _came(self, broker_id: int, live: SeenBroker, now_ms: int) -> None:
        left = self.departed.pop(broker_id)
        if left.broker_epoch == live.broker_epoch:
            # A false alarm: the same life is named again, it never was away.
            gone = Event(broker_id, GONE, left.broker_epoch, left.gone_ms)
            if gone in self._events:
                self._events.remove(gone)
            return
        away_ms = max(0, now_ms - left.gone_ms)
        self._events.append(Event(broker_id, BACK, live.broker_epoch, now_ms, away_ms))
