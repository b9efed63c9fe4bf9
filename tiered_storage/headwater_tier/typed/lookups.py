"""A registry that is asked for a bounded number of unknown schema ids per call.

Each unknown id costs a request, and a stranger's frames may name as many as there are records.
"""

from __future__ import annotations

from headwater_tier.typed.decoding import RegisteredSchema, SchemaSource
from headwater_tier.typed.quarantine_reasons import LookupsSpentError

UNKNOWN_MAX = 100
"""Ids without a schema per call, of values and of keys each."""


class Lookups:
    """A `SchemaSource` with a budget; its answers hold until `begin`."""

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        self._unknown: set[int] = set()
        self._is_bounded = False

    def begin(self, *, is_bounded: bool) -> None:
        """A new call: ask again for what was unknown."""
        self._unknown.clear()
        self._is_bounded = is_bounded

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """See the port. Raises LookupsSpentError beyond the budget."""
        if schema_id in self._unknown:
            return None
        if self._is_bounded and len(self._unknown) >= UNKNOWN_MAX:
            raise LookupsSpentError(schema_id)
        found = self._schemas.by_id(schema_id)
        if found is None:
            self._unknown.add(schema_id)
        return found

    def latest(self, subject: str) -> RegisteredSchema | None:
        """See the port."""
        return self._schemas.latest(subject)
