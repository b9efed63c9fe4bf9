"""The service's state of one topic: its table's ends with those planned, errors, counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater_tier.offset_ranges import PartitionBounds, TierRange, plan_ranges
from headwater_tier.service.table_facts import TableFacts
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation

IN_FLIGHT_MAX = 2
"""Commits of one topic that wait for the table thread: the next turn is written meanwhile."""


@dataclass(slots=True)
class TopicState:
    """One topic. The main loop alone reads and changes it."""

    settings: TieredTopic
    location: TableLocation
    planned: dict[int, int] | None = None
    """The table's ends after every commit in flight; None until the table is open."""
    ends: dict[int, int] = field(default_factory=dict)
    """The table's ends as of its version that was seen last."""
    is_opening: bool = False
    opened_at: float = float("-inf")
    """When the table was read last."""
    in_flight: int = 0
    log_starts: dict[int, int] = field(default_factory=dict)
    """The leaders' log starts, of partitions that needed or met them."""
    starts_at: float = float("-inf")
    """When the log starts were asked for; minus infinity: they are needed again."""
    stable: dict[int, int] = field(default_factory=dict)
    """The leaders' last stable offsets."""
    facts: TableFacts | None = None
    error: str = ""
    error_ms: int | None = None
    committed_ms: int | None = None
    rows: int = 0
    """Rows that this process has committed."""
    fetched_bytes: int = 0
    commits: int = 0
    failures: int = 0

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.settings.topic.name

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Its partitions, as ListOffsets takes them."""
        return [(self.name, p) for p in range(self.settings.topic.partitions)]

    @property
    def needs_starts(self) -> bool:
        """True while the start of a partition that the table does not have is not known."""
        known = (self.planned or {}).keys() | self.log_starts.keys()
        return self.starts_at == float("-inf") or any(p not in known for _, p in self.partitions)

    @property
    def behind(self) -> int:
        """Committed offsets that no turn has taken yet: all that brokers have, until the table is
        open."""
        ranges = plan_ranges(self.planned or {}, self.bounds())
        return sum(r.end_offset - r.start_offset for r in ranges)

    @property
    def is_busy(self) -> bool:
        """True while neither a turn nor an opening of the table may begin."""
        if self.planned is None:
            return self.is_opening or self.in_flight > 0
        return self.in_flight >= IN_FLIGHT_MAX

    def bounds(self) -> dict[int, PartitionBounds]:
        """The leaders' bounds of each partition whose log end is known."""
        planned = self.planned or {}
        return {
            p: PartitionBounds(self.log_starts.get(p, planned.get(p, 0)), end)
            for p, end in self.stable.items()
            if p in planned or p in self.log_starts
        }

    def plan(self, offsets_max: int) -> tuple[tuple[TierRange, ...], bool]:
        """The ranges of the next turn, with `offsets_max` offsets in all; True if some are left.

        Partitions share the turn evenly; what one does not need goes to the others.
        """
        planned, bounds = self.planned or {}, self.bounds()
        whole = plan_ranges(planned, bounds)
        sizes = sorted(r.end_offset - r.start_offset for r in whole)
        share, room = 0, offsets_max
        for at, size in enumerate(sizes):
            share = max(1, room // (len(sizes) - at))
            if size > share:
                break
            share, room = size, room - size
        ranges = plan_ranges(planned, bounds, offsets_max=max(1, share))
        taken = sum(r.end_offset - r.start_offset for r in ranges)
        return ranges, taken < sum(sizes)

    def took(self, ranges: tuple[TierRange, ...]) -> None:
        """A turn with these ranges is on its way to the table."""
        assert self.planned is not None
        self.planned.update({r.partition: r.end_offset for r in ranges})
        self.in_flight += 1

    def failed(self, error: Exception, now_ms: int) -> None:
        """Forget what was planned: the table is read again before the next turn."""
        self.planned = None
        self.is_opening = False
        self.starts_at = float("-inf")
        self.error, self.error_ms = " ".join(str(error).split()), now_ms
        self.failures += 1

    def recovered(self) -> None:
        """A commit or a look succeeded: the error is history, and its time stays."""
        self.error = ""
