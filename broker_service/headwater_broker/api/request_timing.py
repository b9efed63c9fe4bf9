"""The times of a request by stage (Kafka's RequestChannel.Request)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

STAGES = ("queue", "local", "remote", "throttle", "send")


class Meter(Protocol):
    """Where the times of a request are added up."""

    def give_back(self, weight: int) -> None:
        """A timed request that stood for `weight` requests stands for itself alone."""
        ...

    def record(self, weight: int, total: float, stages: tuple[float, ...]) -> None:
        """A timed request is over: seconds in all, and of each of STAGES."""
        ...


class RequestTiming:
    """When one request passed from stage to stage (Kafka's RequestChannel.Request).

    queue: from the turn of the loop that read it to its handler. local: in the handler. remote:
    parked, for other replicas, for data, for the controller. send: from the reply to the kernel.
    throttle: how long the client is muted for a quota; it is not part of the total.
    """

    __slots__ = (
        "_arrived",
        "_began",
        "_handled",
        "_is_sent",
        "_meter",
        "_now",
        "_ready",
        "_weight",
        "throttle_s",
    )

    def __init__(
        self, meter: Meter, weight: int, arrived: float, now: Callable[[], float], began: float
    ) -> None:
        """`weight`: for how many requests it stands; 0: for itself alone."""
        self._meter = meter
        self._weight = weight
        self._now = now
        self._arrived = arrived
        self._began = began
        self._handled: float | None = None
        self._ready: float | None = None
        self._is_sent = False
        self.throttle_s = 0.0

    def handled(self) -> float:
        """The handler returned; for how many seconds it ran."""
        self._handled = self._now()
        return self._handled - self._began

    def stand_alone(self) -> None:
        """The request is awaited: it stands for itself alone, not for those that are not."""
        if self._weight:
            self._meter.give_back(self._weight)
            self._weight = 0

    def ready(self) -> None:
        """The reply is complete: it was parked until now."""
        self._ready = self._now()

    def sent(self) -> None:
        """The kernel has the reply, or nobody waits for it any more. Repeats do nothing."""
        if self._is_sent:
            return
        self._is_sent = True
        now = self._now()
        handled = now if self._handled is None else self._handled
        ready = handled if self._ready is None else self._ready
        self._meter.record(
            self._weight,
            now - self._arrived,
            (
                self._began - self._arrived,
                handled - self._began,
                ready - handled,
                self.throttle_s,
                now - ready,
            ),
        )
