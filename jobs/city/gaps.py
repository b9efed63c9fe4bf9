"""The quality monitor's rules, on plain numbers: when a gap is an alarm, and whom to suspect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

GAP_RECORDS = 5
GAP_SHARE = 0.03
LASTING_BUCKETS = 4
WIDENING = 1.1
"""A gap widens when the later half of its last buckets is this much larger, as a share."""
SERVER_SHARE = 0.6
"""A server is suspected when so many of the abnormal records came through it."""
BASELINE = 3.0
"""A device stands out when it has so many times the abnormal records of the median device."""


@dataclass(frozen=True)
class Bucket:
    """Records of ten minutes: produced, and consumed as normal ones."""

    number: int
    produced: int
    consumed: int

    @property
    def share(self) -> float:
        """The part of the records that was not consumed."""
        return (self.produced - self.consumed) / self.produced if self.produced else 0.0

    @property
    def has_gap(self) -> bool:
        """True when more is missing than a blurred picture here and there."""
        return self.produced - self.consumed > GAP_RECORDS and self.share > GAP_SHARE


@dataclass(frozen=True)
class ShortGap:
    """A gap that closed again without an alarm."""

    first: int
    last: int


class GapRule:
    """Sees bucket after bucket; opens on a gap that lasts and widens, closes when it is gone."""

    def __init__(self) -> None:
        self.is_open = False
        self.short_gaps: list[ShortGap] = []
        self._run: list[Bucket] = []

    @property
    def run(self) -> list[Bucket]:
        """The buckets of the gap that is there now."""
        return list(self._run)

    def see(self, bucket: Bucket) -> bool | None:
        """True when the alarm opens now, False when it closes now, None otherwise."""
        if not bucket.has_gap:
            was_open, self.is_open = self.is_open, False
            if self._run and not was_open:
                self.short_gaps.append(ShortGap(self._run[0].number, self._run[-1].number))
            self._run = []
            return False if was_open else None
        self._run.append(bucket)
        if self.is_open or not self._widens():
            return None
        self.is_open = True
        return True

    def _widens(self) -> bool:
        if len(self._run) < LASTING_BUCKETS:
            return False
        shares = [bucket.share for bucket in self._run[-LASTING_BUCKETS:]]
        half = LASTING_BUCKETS // 2
        return sum(shares[half:]) > WIDENING * sum(shares[:half])


@dataclass(frozen=True)
class Suspects:
    """The devices with the most abnormal records, the first the worst, and perhaps a server."""

    devices: tuple[str, ...]
    server: str | None


def suspects(abnormal: Mapping[tuple[str, str], int]) -> Suspects:
    """Whom abnormal records point to. `abnormal`: (device, what recognises for it) -> records."""
    ranking = Counter(dict(abnormal))
    counts = sorted(ranking.values())
    median = counts[len(counts) // 2] if counts else 0
    outstanding = [
        (place, count)
        for place, count in sorted(ranking.items(), key=lambda item: (-item[1], item[0]))
        if count > max(BASELINE * median, GAP_RECORDS)
    ]
    by_server: Counter[str] = Counter()
    for (device, recognition), count in outstanding:
        if recognition != device:
            by_server[recognition] += count
    total = sum(count for _, count in outstanding)
    server = next((ip for ip, n in by_server.most_common(1) if n >= SERVER_SHARE * total), None)
    return Suspects(tuple(device for (device, _), _ in outstanding), server)
