"""The write pauses after kills, compared with the bar of each kind of fault."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from statistics import quantiles

from soak.faults import KINDS
from soak.producers import Acks

KILLS_FOR_BAR = 30


def longest_gap_s(acks: Acks, partitions: tuple[int, ...], since: float, until: float) -> float:
    """The longest time without an acknowledgement in any of these partitions."""
    gaps = [0.0]
    for partition in partitions:
        times = [since, *(at for at in acks.since(partition, since) if at < until), until]
        gaps += [b - a for a, b in pairwise(times)]
    return max(gaps)


class Pauses:
    """Pauses in seconds, by kind of fault."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def lines(self) -> list[str]:
        """One line per kind that has a bar."""
        lines = []
        for kind in KINDS:
            bar_s = kind.pause_bar_s
            found = self.seconds[kind.name]
            if bar_s is None:
                continue
            if not found:
                lines.append(f"  {kind.name:24} none measured")
                continue
            p50, p95 = percentile(found, 50), percentile(found, 95)
            verdict = "met" if p95 <= bar_s else "NOT met"
            few = "" if len(found) >= KILLS_FOR_BAR else f", {len(found)} of {KILLS_FOR_BAR} kills"
            lines.append(
                f"  {kind.name:24} p50 {p50:.2f} s  p95 {p95:.2f} s  max {max(found):.2f} s"
                f"  over {len(found)} kills; bar p95 <= {bar_s:.0f} s: {verdict}{few}"
            )
        return lines


def percentile(values: list[float], percent: int) -> float:
    """The percentile of any number of values."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]
