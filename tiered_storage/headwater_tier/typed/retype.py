"""`headwater tier retype`: builds the next generation of a typed table, then puts it in place.

The new table is filled from the log table while the old one is followed as before. The swap is one
commit to the old table, a property that names the new generation. An interrupted retype goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater_tier.delta import CommitUnknownError, table_exists
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.declarations import TopicTables, declared_tables
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.derived_files import read_derived
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.follow_log import FollowResult, TopicFollower
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.replay import ATTEMPTS_MAX, rewrite
from headwater_tier.typed.typed_table import (
    SUPERSEDED,
    create_typed,
    current_generation,
    declarations_of,
    superseded_by,
)


@dataclass(frozen=True, slots=True)
class Retyped:
    """The generation that is in place now."""

    generation: int
    uri: str
    rows: int
    quarantined: int


def retype(
    location: TableLocation,
    declared: Mapping[str, str],
    schemas: SchemaSource,
    clock: Clock,
    *,
    decoder_for: DecoderFor,
    entropy: Entropy,
    report: Callable[[FollowResult], None] = lambda _: None,
) -> Retyped:
    """Build the topic's typed table anew by its configs of today, and swap.

    Raises UsageError for a topic without a declaration or without a typed table.
    """
    wanted = declared_tables(location.topic, declared)
    if wanted is None:
        raise UsageError(
            f"topic {location.topic} declares no format: set its config headwater.value.format"
        )
    old = current_generation(location, checked=False)  # retype mends a foreign change
    if old is None:
        raise UsageError(f"topic {location.topic} has no typed table yet: nothing is to be rebuilt")
    new = _building(location, wanted, old, schemas, decoder_for)
    follower = TopicFollower(
        location, schemas, clock, entropy=entropy, decoder_for=decoder_for, building=new
    )
    rows = quarantined = 0
    while True:
        turn = follower.turn(wanted)
        rows, quarantined = rows + turn.rows, quarantined + turn.quarantined
        report(turn)
        if not turn.behind and not turn.discarded:
            break
    _swap(old, new)
    _forget(location, new.derived.generation, clock, entropy)
    return Retyped(new.derived.generation, new.uri, rows, quarantined)


def _building(
    location: TableLocation,
    wanted: TopicTables,
    old: DerivedTable,
    schemas: SchemaSource,
    decoder_for: DecoderFor,
) -> DerivedTable:
    """The table to build: a new one, or one of this declaration that was left half built."""
    generation = old.derived.generation + 1
    while table_exists(derived(location, Kind.TYPED, generation).place):
        found = DerivedTable(derived(location, Kind.TYPED, generation), checked=False)
        if declarations_of(found)[0].declaration == wanted.declaration and not superseded_by(found):
            return found
        generation += 1
    return create_typed(location, wanted.declaration, schemas, decoder_for, generation=generation)


def _swap(old: DerivedTable, new: DerivedTable) -> None:
    """Name the new generation in the old table. Raises the last CommitUnknownError."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            old.set_properties({SUPERSEDED: str(new.derived.generation)})
            return
        except CommitUnknownError:
            if attempt == ATTEMPTS_MAX - 1:
                raise
            old.refresh()
            if superseded_by(old) is not None:
                return


def _forget(location: TableLocation, generation: int, clock: Clock, entropy: Entropy) -> None:
    """Delete the quarantined records of earlier generations: this one has judged them anew."""
    place = derived(location, Kind.QUARANTINE)
    if not table_exists(place.place):
        return
    table = DerivedTable(place)
    table.require_whole_files()
    left = {}
    for live in table.files():
        rows = read_derived(place.place, live.path)
        mine = rows.filter(pc.equal(rows.column("generation"), generation))
        if mine.num_rows < rows.num_rows:
            left[live.path] = mine
    if left:
        rewrite(table, left, clock, entropy)
