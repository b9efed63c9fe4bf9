"""Counters of the data plane and times of its requests, read by the metrics when they are scraped.

Every request is counted. Of those that are answered within their turn of the loop (Produce, Fetch,
Metadata, ...) only those of some turns are timed, and stand for those since: so a histogram's count
is the number of requests all the same. Of the others each one is timed and stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater_broker.api.request_timing import STAGES, RequestTiming
from headwater_broker.runtime.histogram import Histogram

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78


class ApiMeter:
    """Requests of one API: how many, their times, their errors."""

    __slots__ = (
        "_accounted",
        "_last",
        "_of_turn",
        "_turn",
        "_weight_max",
        "errors",
        "requests",
        "stages",
        "total",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.errors: dict[int, int] = {}
        """Replies with an error, by its code; of Produce and Fetch by partition."""
        self.total = Histogram()
        self.stages = tuple(Histogram() for _ in STAGES)
        self._accounted = 0
        """For so many requests some timed one stands."""
        self._turn = -1
        self._of_turn = 0
        """Requests timed in the last turn in which some were."""
        self._weight_max = 1
        self._last: tuple[float, tuple[float, ...]] | None = None

    def begin(self, turn: int, arrived: float, now: Callable[[], float]) -> RequestTiming:
        """Time the request that was counted just now, in this turn of the loop; it came at
        `arrived`.

        The requests that were not timed since are spread over those of this turn, as far as the
        turn before tells how many these will be.
        """
        left = self.requests - self._accounted
        if turn != self._turn:
            self._weight_max = max(-(-left // max(self._of_turn, 1)), 1)
            self._turn, self._of_turn = turn, 0
        self._of_turn += 1
        weight = min(left, self._weight_max)
        self._accounted += weight
        return RequestTiming(self, weight, arrived, now, now())

    def begin_alone(self, arrived: float, began: float, now: Callable[[], float]) -> RequestTiming:
        """Time the request that was counted just now and whose handler began at `began`; it stands
        for itself alone."""
        self._accounted += 1
        return RequestTiming(self, 0, arrived, now, began)

    def give_back(self, weight: int) -> None:
        """A timed request that stood for `weight` requests stands for itself alone."""
        self._accounted -= weight - 1

    def record(self, weight: int, total: float, stages: tuple[float, ...]) -> None:
        """A timed request is over; `weight` as in RequestTiming, `stages` in the order of
        STAGES."""
        if weight or self._last is None:
            self._last = total, stages
        weight = weight or 1
        self.total.observe(total, weight)
        for histogram, seconds in zip(self.stages, stages, strict=True):
            histogram.observe(seconds, weight)

    def settle(self) -> None:
        """Before a scrape: the requests since the last timed one took as long as that."""
        rest = self.requests - self._accounted
        if rest > 0 and self._last is not None:
            self._accounted = self.requests
            self.record(rest, *self._last)

    def failed(self, code: int) -> None:
        """Count an error that a reply carries."""
        self.errors[code] = self.errors.get(code, 0) + 1


class TopicMeter:
    """One topic's traffic on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "records_in",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.bytes_rejected = 0
        self.failed_produces = 0
        """Batches that were not appended, whatever the reason."""
        self.failed_fetches = 0
        """Partitions of Fetch requests that were answered with an error."""

    def add(self, other: TopicMeter) -> None:
        """Take over what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Meters:
    """All counters of this broker's data plane."""

    __slots__ = (
        "apis",
        "connections",
        "connections_closed_malformed",
        "connections_total",
        "deleted",
        "fetch_follower",
        "of_clients",
        "of_followers",
        "remote_errors",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicMeter] = {}
        self.deleted = TopicMeter()
        """The counts of deleted topics: the broker's totals never step back."""
        self.apis: dict[int, ApiMeter] = {}
        self.fetch_follower = ApiMeter()
        """Fetches of followers; those of consumers are `api(FETCH)`."""
        produce, fetch, share_fetch = self.api(PRODUCE), self.api(FETCH), self.api(SHARE_FETCH)
        self.of_clients = {PRODUCE: produce, FETCH: fetch, SHARE_FETCH: share_fetch}
        """The meters of the hot path, for a client's connection and for a follower's."""
        self.of_followers = {**self.of_clients, FETCH: self.fetch_follower}
        self.connections = 0
        self.connections_total = 0
        self.connections_closed_malformed = 0
        self.remote_errors = 0

    def topic(self, name: str) -> TopicMeter:
        """The meter of `name`, made at first use."""
        meter = self.topics.get(name)
        if meter is None:
            meter = self.topics[name] = TopicMeter()
        return meter

    def forget(self, name: str) -> None:
        """A topic is deleted: it is listed no more."""
        meter = self.topics.pop(name, None)
        if meter is not None:
            self.deleted.add(meter)

    def total(self) -> TopicMeter:
        """Of all topics since the start."""
        total = TopicMeter()
        for meter in (self.deleted, *self.topics.values()):
            total.add(meter)
        return total

    def api(self, key: int) -> ApiMeter:
        """The meter of an API key, made at first use."""
        meter = self.apis.get(key)
        if meter is None:
            meter = self.apis[key] = ApiMeter()
        return meter

    def all_apis(self) -> Iterator[tuple[int, bool, ApiMeter]]:
        """(API key, is it a follower's, meter) of every kind of request there was or may be."""
        for key, meter in sorted(self.apis.items()):
            yield key, False, meter
        yield FETCH, True, self.fetch_follower

    def rejected(self, topic: str, batch_bytes: int) -> None:
        """The partition of a topic that is hosted here did not append a producer's batch."""
        meter = self.topic(topic)
        meter.failed_produces += 1
        meter.bytes_rejected += batch_bytes

    def fetch_failed(self, topic: str | None, code: int, *, is_follower: bool) -> None:
        """A partition is answered with an error; `topic` is None when it is not hosted here: what
        clients make up has no meter."""
        (self.of_followers if is_follower else self.of_clients)[FETCH].failed(code)
        if topic is not None:
            self.topic(topic).failed_fetches += 1
