"""Deletes files of derived tables that no recent version needs, and those of killed turns."""

from __future__ import annotations

from headwater_tier.delta import table_exists
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.typed_table import current_generation


def vacuum_derived(location: TableLocation, *, age_hours: int) -> list[str]:
    """Vacuum the derived tables of a log table, of the generation in place; the files' paths.

    Tables of earlier generations are their readers' own. Raises TableAccessError.
    """
    typed = current_generation(location, checked=False)
    if typed is None:
        return []
    gone = []
    for kind in Kind:
        place = derived(location, kind, typed.derived.generation)
        if table_exists(place.place):
            table = DerivedTable(place, checked=False)
            gone += [f"{table.uri}/{path}" for path in table.vacuum(age_hours)]
    return gone
