"""The status of one tiered topic, as text in the metadata of a committed offset. Pure.

The service commits the tiered ends as offsets of the group `__headwater_tier`; the metadata of
partition 0 is this status in JSON. Whoever may describe the group can read it, after a crash too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from headwater.wire.tier_status import STATUS_FORMAT, status_fields

METADATA_BYTES_MAX = 4_000
"""Below the brokers' default of offset.metadata.max.bytes, 4096."""
ERROR_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DerivedStatus:
    """The status of a derived table (`typed`, `quarantine`, `latest`)."""

    rows: int | None
    """None: not known, as no turn has succeeded yet."""
    behind: int | None
    """Committed offsets that it does not have yet, tiered or not; None: not known."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic, as its service saw it at `reported_ms`. Times are wall time in ms."""

    topic: str
    state: str
    """`tiering`, `failed` (it is tried again), `opening`, or `damaged`: it goes on, but the table
    has lost files."""
    table: str
    """The URI of the log table."""
    rows: int
    size_bytes: int
    files: int
    version: int
    behind: int
    """Committed offsets that were not in the table."""
    behind_ms: int
    """The age of the oldest of them, at most."""
    asked_ms: int
    """`delta.interval.ms`."""
    achieved_ms: int | None
    """The mean time from a record to its commit, of the last commits at their worst record."""
    committed_ms: int | None
    """The last commit of this service."""
    error: str
    """Why it failed, or what is damaged; empty while all is well."""
    error_ms: int | None
    """The last error, also after it was overcome."""
    reported_ms: int
    service: str
    """HOST:PID of the process."""
    maintenance_error: str = ""
    """Why small files are not folded, retention does not move, or the catalog is not kept."""
    derived: Mapping[str, DerivedStatus] = field(default_factory=dict)

    def to_metadata(self) -> str:
        """The status as text that a broker takes; a long error is cut."""
        text = _encoded(self)
        if len(text) > METADATA_BYTES_MAX:
            short = {n: replace(d, error=d.error[:100]) for n, d in self.derived.items()}
            error, other = self.error[:ERROR_CHARS_MAX], self.maintenance_error[:ERROR_CHARS_MAX]
            text = _encoded(replace(self, error=error, maintenance_error=other, derived=short))
        return text


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A status and the tiered end of every partition."""

    status: TopicStatus
    ends: Mapping[int, int]


def _encoded(status: TopicStatus) -> str:
    document = {"format": STATUS_FORMAT, **asdict(status)}
    return json.dumps(document, separators=(",", ":"))


def from_metadata(text: str) -> TopicStatus | None:
    """The status in an offset's metadata; None for other text, also of a later format."""
    document = status_fields(text)
    if document is None:
        return None
    names = {f for f in TopicStatus.__dataclass_fields__ if f != "derived"}
    try:
        derived = {n: DerivedStatus(**row) for n, row in document.pop("derived", {}).items()}
        return TopicStatus(**{n: document[n] for n in names if n in document}, derived=derived)
    except (KeyError, TypeError):
        return None
