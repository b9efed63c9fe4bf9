"""The versions of a topic's log table: what each added, and the jumps to offsets and back.

Versions whose log was cleaned up cannot be opened: the nearest one answers, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import UsageError
from headwater_tier.delta import TableAccessError, table_exists
from headwater_tier.delta_readers import LogHistory
from headwater_tier.table_names import TableLocation
from headwater_tier.versions import LOG_RETENTION, version_of

VERSIONS_SHOWN = 25


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. `ends` is empty where the log no longer can open it."""

    version: int
    committed_ms: int
    kind: str
    ends: Mapping[int, int]
    added: Mapping[int, tuple[int, int]]
    """Offsets [start, end) by partition that the version before did not have."""

    @property
    def offsets(self) -> int:
        """How many offsets it added."""
        return sum(end - start for start, end in self.added.values())


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some versions, the newest first. `older`: where the next page begins; None at the end."""

    rows: Sequence[VersionRow]
    newest: int
    oldest: int
    older: int | None


@dataclass(frozen=True, slots=True)
class Jump:
    """Where a jump leads. `text` says it in words, with what is not exact about it."""

    version: int
    text: str
    is_exact: bool = True


def history_page(
    location: TableLocation, partitions: Sequence[int], before: int | None = None
) -> HistoryPage:
    """The newest versions, or those below `before`. Raises UsageError, TableAccessError."""
    history = _opened(location)
    versions = sorted(history.committed_ms, reverse=True)
    wanted = [v for v in versions if before is None or v < before]
    shown = wanted[:VERSIONS_SHOWN]
    ends = {v: _ends(history, v, partitions) for v in wanted[: VERSIONS_SHOWN + 1]}
    rows = [
        VersionRow(
            version,
            history.committed_ms[version],
            history.kinds[version],
            ends[version] or {},
            _added(ends[version], _before(ends, version)),
        )
        for version in shown
    ]
    older = shown[-1] if len(wanted) > len(shown) and shown else None
    return HistoryPage(rows, versions[0], versions[-1], older)


def jump_to_version(location: TableLocation, wanted: int, partitions: Sequence[int]) -> Jump:
    """The version of this number, or the nearest one that can be opened."""
    history = _opened(location)
    versions = sorted(history.committed_ms)
    nearest = min(versions, key=lambda v: abs(v - wanted))
    if nearest > wanted or _ends(history, nearest, partitions) is None:
        readable = [v for v in versions if v >= nearest]
        nearest = next((v for v in readable if _ends(history, v, partitions) is not None), nearest)
    if nearest == wanted:
        return Jump(wanted, f"version {wanted}")
    if wanted > versions[-1]:
        return Jump(nearest, f"there is no version {wanted} yet: {nearest} is the newest", False)
    return Jump(
        nearest,
        f"version {wanted} is cleaned up (the log keeps versions for {LOG_RETENTION}): {nearest} is"
        " the nearest",
        False,
    )


def jump_to_offset(location: TableLocation, partition: int, offset: int) -> Jump:
    """The first version that holds an offset. Raises UsageError where none does."""
    found = version_of(location, partition, offset)
    where = f"{location.topic}-{partition} offset {offset}"
    if found.is_oldest:
        text = (
            f"{where} is in version {found.version} or an earlier one, which is cleaned up: the log"
            f" keeps versions for {LOG_RETENTION}"
        )
        return Jump(found.version, text, is_exact=False)
    return Jump(found.version, f"{where} is in the table since version {found.version}")


def ends_after(location: TableLocation, version: int, partitions: Sequence[int]) -> dict[int, int]:
    """The first offsets after a version, by partition; the nearest one's if it is cleaned up."""
    jump = jump_to_version(location, version, partitions)
    history = LogHistory(location)
    found = _ends(history, jump.version, partitions) or {}
    return {partition: found.get(partition, 0) for partition in partitions}


def _opened(location: TableLocation) -> LogHistory:
    if not table_exists(location):
        raise UsageError(f"topic {location.topic} has no table at {location.uri} yet")
    return LogHistory(location)


def _ends(history: LogHistory, version: int, partitions: Sequence[int]) -> Mapping[int, int] | None:
    try:
        return history.ends_at(version, partitions)
    except TableAccessError:
        return None


def _before(ends: Mapping[int, Mapping[int, int] | None], version: int) -> Mapping[int, int] | None:
    """The ends of the version before; those of the empty table before the first one."""
    return {} if version == 0 else ends.get(version - 1)


def _added(
    after: Mapping[int, int] | None, before: Mapping[int, int] | None
) -> dict[int, tuple[int, int]]:
    if after is None or before is None:
        return {}
    spans = {p: (before.get(p, 0), end) for p, end in after.items()}
    return {p: span for p, span in spans.items() if span[1] > span[0]}
