"""Test double of the schema registry (Confluent's MockSchemaRegistryClient), with faults."""

from __future__ import annotations

from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError


class MemorySchemas:
    """Schemas that a test registers (`headwater_tier.typed.decoding.SchemaSource`)."""

    def __init__(self) -> None:
        self._by_id: dict[int, RegisteredSchema] = {}
        self._subjects: dict[str, int] = {}
        self.fault: str | None = None
        """When set, every call raises SchemaUnavailableError with this text."""

    def register(
        self,
        subject: str,
        schema_type: str,
        text: str,
        references: tuple[tuple[str, str], ...] = (),
    ) -> int:
        """Make it the subject's latest schema; its id."""
        schema_id = len(self._by_id) + 1
        self._by_id[schema_id] = RegisteredSchema(schema_id, schema_type, text, references)
        self._subjects[subject] = schema_id
        return schema_id

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """See the port."""
        self._fail()
        return self._by_id.get(schema_id)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """See the port."""
        self._fail()
        return self._by_id.get(self._subjects.get(subject, 0))

    def _fail(self) -> None:
        if self.fault is not None:
            raise SchemaUnavailableError(self.fault)
