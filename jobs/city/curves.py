"""Sends the monitors' curves and ranking to the statistics topic, where the pages read them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

from city.clock import BUCKET_MS, DAY_START_MS
from city.fields import STATISTICS
from city.flows import City, Site
from city.latency import Latency
from city.quality import Quality
from headwater import Producer
from headwater.errors import HeadwaterError

EVERY_S = 2.0
BUCKETS_PER_HOUR = 6
RANKED = 10
RETRY_S = 5.0
CLOSE_TIMEOUT_S = 10.0


class Curves:
    """A thread that sends what is new; to a site that takes over, everything again."""

    def __init__(self, latency: Latency, quality: Quality) -> None:
        self._latency = latency
        self._quality = quality
        self._stopping = threading.Event()
        self._told: dict[str, bytes] = {}
        self._site: Site | None = None

    def start(self, city: City) -> None:
        """Begin to send."""
        self._site = city.site
        self._places = city.world.deployment.places
        city.on_switch.append(self._move)
        self._thread = threading.Thread(target=self._run, name="city-curves", daemon=True)
        self._thread.start()

    def _move(self, site: Site) -> None:
        self._site = site

    def stop(self) -> None:
        """Send the rest, and end."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while (site := self._site) is not None:
            self._told = {}
            try:
                with Producer(site.servers, client_id="city-curves") as producer:
                    is_over = self._send_to(producer, site)
            except HeadwaterError:
                is_over = self._stopping.wait(RETRY_S)  # its site is lost, another one comes
            if is_over:
                return

    def _send_to(self, producer: Producer, site: Site) -> bool:
        """Send to a site until another one works (False) or the day is over (True)."""
        while True:
            is_over = self._stopping.wait(EVERY_S)
            if self._site is not site:
                producer.close(timeout=0)
                return False
            for key, value in self._values():
                if self._told.get(key) != value:
                    self._told[key] = value
                    producer.send(STATISTICS, value, key=key)
            if is_over:
                producer.flush(CLOSE_TIMEOUT_S)
                return True

    def _values(self) -> Iterator[tuple[str, bytes]]:
        """Every point of every curve, and the ranking: (key, value)."""
        for bucket, mean_s in sorted(self._latency.means.items()):
            told: dict[str, object] = {"kind": "latency", "hour": bucket / BUCKETS_PER_HOUR}
            yield f"latency-{bucket}", _json({**told, "mean_s": round(mean_s, 3)})
        for one in self._quality.buckets():
            at_ms = DAY_START_MS + one.number * BUCKET_MS
            told = {"kind": "quality", "bucket_ms": at_ms}
            yield (
                f"quality-{one.number}",
                _json({**told, "produced": one.produced, "consumed": one.consumed}),
            )
        yield "ranking", _json({"kind": "ranking", "rows": self._ranking()})

    def _ranking(self) -> list[dict[str, object]]:
        """The devices with most unreadable records: place, how many, of how many."""
        totals: dict[str, int] = {}
        for (_, device, _), count in list(self._quality.produced.items()):
            totals[device] = totals.get(device, 0) + count
        return [
            {"ip": ip, "place": self._places.get(ip, ip), "abnormal": n, "total": totals.get(ip, 0)}
            for (ip, _), n in self._quality.ranking().most_common(RANKED)
            if n > 0
        ]


def _json(told: dict[str, object]) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
