"""Why a group lags behind in a partition: the first verdict that matches. Pure.

Samples are 5 s apart and reach back 5 minutes. What nobody has left to read has no lag to explain:
such a partition is FINE whatever else is true of it.

| verdict | when |
|---|---|
| GONE | no member of the group owns the partition |
| LOST | the committed offset is below the log's start: records were deleted unread |
| BLOCKED | the group stands at the last stable offset, below the high watermark |
| REBALANCING | the group's generation rose by 3 or more |
| STARVED | the partition has no leader, or a quota throttles the reader |
| STUCK | its owner is alive, but committed nothing for 30 s or three commit intervals |
| SLOW | it reads less than 0.95 of what is written, and is more than a sample behind |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

SAMPLE_S = 5.0
WINDOW_S = 300.0
REBALANCES_MIN = 3
STUCK_S = 30.0
STUCK_INTERVALS = 3
SLOW_SHARE = 0.95
BLOCKED_S = 5.0
"""A shorter transaction holds nobody."""


class Verdict(IntEnum):
    """Why a group lags, in the order of the rules: the lowest is the worst."""

    GONE = 0
    LOST = 1
    BLOCKED = 2
    REBALANCING = 3
    STARVED = 4
    STUCK = 5
    SLOW = 6
    FINE = 7


class Sample(NamedTuple):
    """A partition of a group at a moment."""

    at_s: float
    committed: int | None
    """None: the group has committed nothing there."""
    log_start: int
    last_stable: int
    high_watermark: int
    owner: str | None
    """The member that has the partition."""
    generation: int
    has_leader: bool = True
    is_throttled: bool = False

    @property
    def position(self) -> int:
        """Where the group reads on; from the log's start without a commit."""
        return self.log_start if self.committed is None else self.committed

    @property
    def lag(self) -> int:
        """Records from the position to the high watermark."""
        return max(0, self.high_watermark - self.position)


class Finding(NamedTuple):
    """A verdict and what led to it."""

    verdict: Verdict
    reason: str
    offset: int | None = None
    """The record that a STUCK reader is at, or the first that a BLOCKED one waits for."""
    time_to_loss_s: float | None = None
    """Until retention passes the group's position, at the present rates."""


def judge(samples: Sequence[Sample]) -> Finding:
    """The verdict on a partition; the oldest sample first, at least one."""
    now = samples[-1]
    if now.lag == 0 and now.position >= now.log_start:
        return Finding(Verdict.FINE, "has read everything")
    rules = (_gone, _lost, _blocked, _rebalancing, _starved, _stuck, _slow)
    found = (rule(samples) for rule in rules)
    return next((finding for finding in found if finding is not None), _fine(samples))


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The finding of the first rule that any partition matches."""
    return min(findings, key=lambda f: f.verdict, default=None)


def _gone(samples: Sequence[Sample]) -> Finding | None:
    now = samples[-1]
    if now.owner is not None:
        return None
    return Finding(Verdict.GONE, f"no member owns the partition, {now.lag} records wait")


def _lost(samples: Sequence[Sample]) -> Finding | None:
    now = samples[-1]
    if now.committed is None or now.committed >= now.log_start:
        return None
    lost = now.log_start - now.committed
    reason = f"{lost} records were deleted unread: committed {now.committed}, log start"
    return Finding(Verdict.LOST, f"{reason} {now.log_start}")


def _blocked(samples: Sequence[Sample]) -> Finding | None:
    now = samples[-1]
    if now.position != now.last_stable or now.last_stable >= now.high_watermark:
        return None
    held = [s for s in samples if s.last_stable == now.last_stable < s.high_watermark]
    if len(samples) > 1 and now.at_s - held[0].at_s < BLOCKED_S:
        return None
    behind = now.high_watermark - now.last_stable
    reason = f"an open transaction holds {behind} records from offset {now.last_stable} on"
    return Finding(Verdict.BLOCKED, reason, now.last_stable)


def _rebalancing(samples: Sequence[Sample]) -> Finding | None:
    rebalances = samples[-1].generation - samples[0].generation
    if rebalances < REBALANCES_MIN:
        return None
    minutes = max(1, round((samples[-1].at_s - samples[0].at_s) / 60))
    return Finding(Verdict.REBALANCING, f"{rebalances} rebalances in {minutes} min")


def _starved(samples: Sequence[Sample]) -> Finding | None:
    now = samples[-1]
    if not now.has_leader:
        return Finding(Verdict.STARVED, "the partition has no leader")
    if now.is_throttled:
        return Finding(Verdict.STARVED, "a quota throttles its reader")
    return None


def _stuck(samples: Sequence[Sample]) -> Finding | None:
    now = samples[-1]
    since_s = now.at_s
    for sample in reversed(samples):
        if sample.committed != now.committed or sample.lag == 0:
            break
        since_s = sample.at_s
    limit_s = max(STUCK_S, STUCK_INTERVALS * _commit_interval_s(samples))
    if now.at_s - since_s < limit_s:
        return None
    reason = f"its owner is alive but has committed nothing for {now.at_s - since_s:.0f} s"
    return Finding(Verdict.STUCK, reason, now.position)


def _commit_interval_s(samples: Sequence[Sample]) -> float:
    """The median time between commits that were seen; 0 with fewer than two."""
    pairs = pairwise(samples)
    moves = [later.at_s for former, later in pairs if later.committed != former.committed]
    gaps = [later - former for former, later in pairwise(moves)]
    return median(gaps) if gaps else 0.0


class Rates(NamedTuple):
    """Records a second over the samples."""

    read: float
    written: float
    deleted: float


def rates(samples: Sequence[Sample]) -> Rates | None:
    """How fast the group reads, producers write and retention deletes; None for one sample."""
    first, last = samples[0], samples[-1]
    span_s = last.at_s - first.at_s
    if span_s <= 0:
        return None
    return Rates(
        max(0, last.position - first.position) / span_s,
        max(0, last.high_watermark - first.high_watermark) / span_s,
        max(0, last.log_start - first.log_start) / span_s,
    )


def _slow(samples: Sequence[Sample]) -> Finding | None:
    speed = rates(samples)
    if speed is None or speed.written == 0 or speed.read >= SLOW_SHARE * speed.written:
        return None
    if samples[-1].lag <= speed.written * SAMPLE_S:
        return None  # what is written between two samples is no lag that grows
    loss_s = _time_to_loss_s(samples[-1], speed)
    reason = f"reads {speed.read:.1f} of {speed.written:.1f} records/s written"
    if loss_s is not None:
        reason += f"; loses records in {loss_s:.0f} s at these rates"
    return Finding(Verdict.SLOW, reason, time_to_loss_s=loss_s)


def _time_to_loss_s(now: Sample, speed: Rates) -> float | None:
    if speed.deleted <= speed.read:
        return None
    return max(0, now.position - now.log_start) / (speed.deleted - speed.read)


def _fine(samples: Sequence[Sample]) -> Finding:
    now, speed = samples[-1], rates(samples)
    if speed is None or speed.read <= speed.written:
        return Finding(Verdict.FINE, "keeps up")
    left_s = now.lag / (speed.read - speed.written)
    return Finding(Verdict.FINE, f"catches up: done in about {left_s:.0f} s")
