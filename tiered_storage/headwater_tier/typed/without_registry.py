"""The source of schemas where no registry is named."""

from __future__ import annotations

from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError


class WithoutRegistry:
    """Says what to give when a topic needs a registry."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Raises SchemaUnavailableError."""
        raise SchemaUnavailableError(
            f"schema id {schema_id} is asked for, and no schema registry is named: give "
            "--schema-registry URL"
        )

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Raises SchemaUnavailableError."""
        raise SchemaUnavailableError(
            f"the schema of subject {subject} is asked for, and no schema registry is named: give "
            "--schema-registry URL"
        )
