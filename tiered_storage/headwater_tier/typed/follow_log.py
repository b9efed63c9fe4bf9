"""Follows a topic's log table: decodes what is new in it into the typed table and the quarantine.

Each call is one bounded turn. A turn reads log rows from the typed table's own `end` on, so
switching typing on backfills the whole history, and a killed turn leaves nothing but a file that
vacuum removes: rows and ends are one commit.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater.system import SystemEntropy
from headwater_tier.delta import CommitUnknownError, TableAccessError
from headwater_tier.kernels import KERNELS
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import grown
from headwater_tier.typed.compaction import compact_derived
from headwater_tier.typed.declarations import Declaration, TopicTables, declared_tables
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.derived_files import write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedTable
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.latest_table import Latest, MergeResult
from headwater_tier.typed.log_rows import (
    BYTES_MAX,
    COLUMNS,
    ROWS_MAX,
    LogRows,
    pending_ranges,
    rows_above,
)
from headwater_tier.typed.names import Kind
from headwater_tier.typed.quarantine_table import CatchUp, Quarantine
from headwater_tier.typed.record_decoder import DecodedRecords, RecordDecoder
from headwater_tier.typed.typed_table import (
    create_typed,
    current_generation,
    declarations_of,
    declare,
    grow,
    incompatibility,
    superseded_by,
)

logger = logging.getLogger(__name__)

FILES_CHECK_S = 60.0
"""Between two looks at whether the typed table's files exist."""
UNCOMPILED_ROWS_MAX = 20_000
"""Of a turn while the kernels are being compiled: rows are read one at a time, some 30 us each."""
FOLLOWERS_MAX = 64
"""Topics whose tables and decoders stay open between turns."""


@dataclass(frozen=True, slots=True)
class FollowResult:
    """What a turn did, and where the derived tables are now."""

    topic: str
    generation: int = 0
    """Of the typed table; 0 for a topic that declares no format."""
    rows: int = 0
    """Rows that this turn committed to the typed table."""
    quarantined: int = 0
    """Records that this turn committed to the quarantine table."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """The typed table's next offset per partition."""
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """The log table's next offset per partition, as this turn saw it."""
    behind: int = 0
    """Offsets of the log table that are not in the typed table yet."""
    discarded: bool = False
    """Another writer committed first; the next turn reads again."""
    problem: str = ""
    """What needs an operator, as a declaration that needs `headwater tier retype`."""
    quarantine_problem: str = ""
    """Why the quarantine table lags behind the typed one."""
    quarantine_behind: int = 0
    """Offsets that the typed table has passed and the quarantine has not."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Rows in the tables `typed`, `quarantine`, `latest`."""
    latest: MergeResult | None = None
    """What the table of latest rows did; None for a topic without one."""
    latest_problem: str = ""
    """Why the table of latest rows lags behind the typed one."""

    @property
    def is_caught_up(self) -> bool:
        """True when another turn at once would find nothing that this one left for it."""
        merging = self.latest is not None and self.latest.read and self.latest.behind
        catching_up = self.quarantine_behind and not self.quarantine_problem
        return not (self.behind or merging or catching_up)


def follow_topic(
    location: TableLocation,
    declared: Mapping[str, str],
    schemas: SchemaSource,
    clock: Clock,
    *,
    decoder_for: DecoderFor = decoder_for,
    entropy: Entropy | None = None,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> FollowResult:
    """One turn for a topic: `location` is its log table, `declared` are its configs.

    Raises TableAccessError, TableStateError, DeclarationError, SchemaUnavailableError. Call again
    while the result says `behind`.
    """
    wanted = declared_tables(location.topic, declared)
    if wanted is None:
        _followers.pop(location.uri, None)
        return FollowResult(location.topic)
    follower = _followers.pop(location.uri, None)
    if follower is None:
        follower = TopicFollower(
            location,
            schemas,
            clock,
            entropy=entropy or SystemEntropy(),
            decoder_for=decoder_for,
        )
    if not KERNELS.are_ready:
        rows_max = min(rows_max, UNCOMPILED_ROWS_MAX)
    result = follower.turn(wanted, rows_max=rows_max, bytes_max=bytes_max)
    if result.rows and not result.behind:
        pa.default_memory_pool().release_unused()  # a backfill's buffers, until the next one
    _followers[location.uri] = follower  # only after success: an error opens all again
    while len(_followers) > FOLLOWERS_MAX:
        _followers.popitem(last=False)
    return result


class TopicFollower:
    """One topic's open tables and decoders. Not thread-safe."""

    def __init__(
        self,
        location: TableLocation,
        schemas: SchemaSource,
        clock: Clock,
        *,
        entropy: Entropy,
        decoder_for: DecoderFor,
        building: DerivedTable | None = None,
    ) -> None:
        """Opens the log table. Raises TableAccessError, TableStateError.

        `building` is filled in place of the current generation, which `retype` does.
        """
        self._location = location
        self._schemas = schemas
        self._clock = clock
        self._entropy = entropy
        self._decoder_for = decoder_for
        self._log = TableReader(location, COLUMNS)
        self._typed = building
        self._is_building = building is not None
        self._quarantine: Quarantine | None = None
        self._latest = Latest(location, clock, entropy)
        self._decoder: RecordDecoder | None = None
        self._looked_at = float("-inf")
        self._refused: tuple[tuple[int, Declaration, Declaration], str] | None = None
        self._decodes: tuple[Declaration, bool, pa.Schema] | None = None

    def turn(
        self, wanted: TopicTables, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
    ) -> FollowResult:
        """Read, decode and commit a bounded share of what is new. See `follow_topic`."""
        self._log.refresh()
        typed, quarantine = self._tables(wanted)
        partitions = self._log.snapshot.partitions
        problem = self._redeclared(typed, wanted, typed.ends(partitions))
        # Only now: another writer's rows may have come in while the declaration was taken up.
        ends, version = typed.ends(partitions), typed.version
        problem = problem or self._passed_over(ends)
        found = rows_above(self._log, ends, rows_max=rows_max, bytes_max=bytes_max)
        rows, decoded, discarded = 0, None, False
        if found is not None:
            try:
                decoded = self._decoded(typed, wanted, found)
                found = found.first(decoded.rows.num_rows)
                rows = self._commit(typed, quarantine, decoded, found)
            except CommitUnknownError as error:
                decoded, discarded = None, True
                rows = self._resolved(typed, version, error)
        quarantined, trouble = self._quarantined(typed, quarantine, wanted, found, decoded)
        result = self._result(rows, quarantined, discarded, problem, trouble)
        return self._compacted(self._with_latest(result, typed, wanted), typed, wanted)

    def _compacted(
        self, result: FollowResult, typed: DerivedTable, wanted: TopicTables
    ) -> FollowResult:
        """Rewrite small files if that is due; a failure is logged and tried again."""
        held = {Kind.TYPED: typed.rows, Kind.QUARANTINE: self._held_in_quarantine()}
        if wanted.latest:
            held[Kind.LATEST] = self._latest.rows or 0
        result = replace(result, held={kind.value: rows for kind, rows in held.items()})
        if result.discarded:
            return result
        try:
            self._look_after(typed)
            compact_derived(typed, wanted.cluster, clock=self._clock, entropy=self._entropy)
        except CommitUnknownError:
            typed.refresh()  # another commit came first
        except HeadwaterError as error:
            return replace(result, problem=result.problem or str(error))
        return result

    def _with_latest(
        self, result: FollowResult, typed: DerivedTable, wanted: TopicTables
    ) -> FollowResult:
        """Merge into the table of latest rows, if the topic has one and it is due."""
        if not wanted.latest:
            return result
        try:
            merged = self._latest.turn(
                typed,
                self._log.snapshot.partitions,
                wanted.latest_interval_ms,
                first_row=self._log.next_offset,
            )
        except HeadwaterError as error:
            return replace(result, latest_problem=str(error))
        return replace(result, latest=merged)

    def _tables(self, wanted: TopicTables) -> tuple[DerivedTable, Quarantine]:
        """The current generation at its newest version; creates the first one."""
        typed = self._typed
        if typed is not None:
            typed.refresh()
        if typed is None or (superseded_by(typed) is not None and not self._is_building):
            typed = current_generation(self._location) or create_typed(
                self._location, wanted.declaration, self._schemas, self._decoder_for
            )
            self._quarantine = None
        if self._quarantine is None:
            self._quarantine = Quarantine(self._location, typed.derived.generation)
        self._typed = typed
        return typed, self._quarantine

    def _passed_over(self, ends: Mapping[int, int]) -> str:
        """Names offsets that retention removed from the log table before they were typed."""
        starts = self._log.snapshot.starts
        lost = {p: (end, starts[p]) for p, end in ends.items() if end < starts.get(p, 0)}
        if not lost:
            return ""
        text = ", ".join(f"{p}: [{end}, {start})" for p, (end, start) in sorted(lost.items()))
        problem = f"retention removed offsets of {self._location.topic} that were not typed: {text}"
        logger.warning(problem)
        return problem

    def _redeclared(self, typed: DerivedTable, wanted: TopicTables, ends: Mapping[int, int]) -> str:
        """Take up a changed declaration that only adds columns; else say what it needs."""
        old = declarations_of(typed)[-1].declaration
        if old == wanted.declaration:
            return ""
        judged = (typed.derived.generation, old, wanted.declaration)
        if self._refused is None or self._refused[0] != judged:
            reason = incompatibility(
                old, wanted.declaration, typed.schema, self._schemas, self._decoder_for
            )
            if reason is None:
                declare(typed, wanted.declaration, ends)
                return ""
            self._refused = (judged, reason)
        reason = self._refused[1]
        return (
            f"topic {self._location.topic} declares another format than its typed table "
            f"{typed.uri} has ({reason}): records are decoded as before, and those that do not fit "
            f"are quarantined, until `headwater tier retype {self._location.topic}` has built the "
            "table anew"
        )

    def _decoded(self, typed: DerivedTable, wanted: TopicTables, found: LogRows) -> DecodedRecords:
        """The decoded rows; the typed table has their columns when this returns."""
        declaration = declarations_of(typed)[-1].declaration
        wants = (declaration, wanted.latest, typed.schema)
        if self._decoder is None or self._decodes != wants:
            self._decoder = RecordDecoder(
                declaration,
                typed.schema,
                self._schemas,
                self._decoder_for,
                needs_key=wanted.latest,
            )
        decoded = self._decoder.decode_some(found.rows)
        schema = grown(typed.schema, self._decoder.keys, self._decoder.values)
        if schema != typed.schema:
            ends = typed.ends(self._log.snapshot.partitions)
            grow(typed, schema)
            if typed.ends(self._log.snapshot.partitions) != ends or superseded_by(typed):
                raise CommitUnknownError(f"{typed.uri}: another writer committed first")
        self._decodes = (declaration, wanted.latest, typed.schema)
        self._decoder.table_has(typed.schema)
        return decoded

    def _commit(
        self,
        typed: DerivedTable,
        quarantine: Quarantine,
        decoded: DecodedRecords,
        found: LogRows,
    ) -> int:
        """Commit rows and ends; the number of rows. Raises CommitUnknownError."""
        place = typed.derived
        rows = decoded.typed(typed.schema)
        adds = [write_derived(place.place, rows, self._entropy.uuid())] if rows.num_rows else []
        versions = {place.end_txn(p): end for p, (_, end) in found.ranges.items()}
        for partition, end in self._clean(typed, quarantine, decoded, found).items():
            versions[place.clean_txn(partition)] = end
        typed.commit(DerivedChange("type", self._clock.now_ms(), adds, versions=versions))
        typed.refresh()
        return int(rows.num_rows)

    def _clean(
        self,
        typed: DerivedTable,
        quarantine: Quarantine,
        decoded: DecodedRecords,
        found: LogRows,
    ) -> dict[int, int]:
        """Ends of partitions without a misfit here whose quarantine is complete up to here."""
        bad = [misfit.row for misfit in (*decoded.misfits, *decoded.without_key)]
        partitions = set(decoded.rows.column("partition").take(bad).to_pylist()) if bad else set()
        try:
            done = quarantine.ends(typed, self._log.snapshot.partitions)
        except HeadwaterError:
            return {}  # reported when the quarantine catches up, in this turn
        return {
            p: end
            for p, (start, end) in found.ranges.items()
            if p not in partitions and done.get(p, self._log.snapshot.starts.get(p, 0)) >= start
        }

    def _resolved(self, typed: DerivedTable, version: int, error: CommitUnknownError) -> int:
        """After a failed commit: 0 if another commit came first. Raises TableAccessError."""
        typed.refresh()
        if typed.version == version:
            raise TableAccessError(str(error)) from error
        self._decoder = None
        return 0

    def _quarantined(
        self,
        typed: DerivedTable,
        quarantine: Quarantine,
        wanted: TopicTables,
        found: LogRows | None,
        decoded: DecodedRecords | None,
    ) -> tuple[int, str]:
        """Bring the quarantine up to the typed end; (records added, problem). Never raises ours."""
        try:
            return self._catch_up(typed, quarantine, wanted, found, decoded), ""
        except HeadwaterError as error:
            return 0, str(error)

    def _catch_up(
        self,
        typed: DerivedTable,
        quarantine: Quarantine,
        wanted: TopicTables,
        found: LogRows | None,
        decoded: DecodedRecords | None,
    ) -> int:
        partitions = self._log.snapshot.partitions
        lag = self._quarantine_lag(typed, quarantine, partitions)
        if not lag:
            return 0
        if found is not None and decoded is not None and lag.items() <= found.ranges.items():
            rows = decoded.quarantined(typed.derived.generation)
        else:
            again = CatchUp(
                self._log, typed, self._schemas, self._decoder_for, needs_key=wanted.latest
            )
            first = self._log.next_offset  # a gap of any size is passed at once
            lag = {p: (at, min(end, first(p, at) + ROWS_MAX)) for p, (at, end) in lag.items()}
            parts = [(p, start, again.rows(p, start, end)) for p, (start, end) in lag.items()]
            lag = {p: (start, end) for p, start, (_, end) in parts}
            rows = pa.concat_tables([part for _, _, (part, _) in sorted(parts, key=_partition)])
        quarantine.append(rows, lag, clock=self._clock, entropy=self._entropy)
        return int(rows.num_rows)

    def _look_after(self, typed: DerivedTable) -> None:
        """Raise TableStateError for what stops readers of the table, not its typing."""
        typed.require_whole_files()
        now = self._clock.monotonic()
        if now - self._looked_at >= FILES_CHECK_S:
            typed.require_present_files()
            self._looked_at = now

    def _held_in_quarantine(self) -> int:
        return 0 if self._quarantine is None else self._quarantine.rows

    def _quarantine_lag(
        self, typed: DerivedTable, quarantine: Quarantine, partitions: int
    ) -> dict[int, tuple[int, int]]:
        return self._lag(quarantine.ends(typed, partitions), typed.ends(partitions))

    def _lag(self, done: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Per partition, the offsets that the typed table has passed and the quarantine has not."""
        starts = self._log.snapshot.starts
        spans = {p: (max(done.get(p, 0), starts.get(p, 0)), end) for p, end in ends.items()}
        return {p: (start, end) for p, (start, end) in spans.items() if start < end}

    def _result(
        self, rows: int, quarantined: int, discarded: bool, problem: str, trouble: str
    ) -> FollowResult:
        typed, quarantine = self._typed, self._quarantine
        assert typed is not None and quarantine is not None
        partitions = self._log.snapshot.partitions
        ends = typed.ends(partitions)
        behind = sum(end - start for start, end in pending_ranges(self._log, ends).values())
        try:
            done = quarantine.ends(typed, partitions)
        except HeadwaterError:  # reported as the quarantine's problem; it may be further than this
            done = typed.clean(partitions)
        spans = self._lag(done, ends).values()
        return FollowResult(
            topic=self._location.topic,
            generation=typed.derived.generation,
            rows=rows,
            quarantined=quarantined,
            ends=ends,
            log_ends=dict(self._log.snapshot.ends),
            behind=behind,
            discarded=discarded,
            problem=problem,
            quarantine_problem=trouble,
            quarantine_behind=sum(end - start for start, end in spans),
        )


def _partition(part: tuple[int, int, object]) -> int:
    return part[0]


_followers: OrderedDict[str, TopicFollower] = OrderedDict()
