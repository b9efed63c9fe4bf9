"""A `RegistryStore` without Kafka: records go through their JSON and are replayed at once."""

from __future__ import annotations

from threading import Lock
from typing import Any

from headwater_gateway.registry.records import decode_record, encode_record
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.store import Command


class MemoryStore:
    """Keeps the records of one process, as the topic would."""

    def __init__(self, records: list[tuple[bytes, bytes | None]] | None = None) -> None:
        """`records`: those of an earlier store."""
        self.records: list[tuple[bytes, bytes | None]] = []
        self._state = RegistryState()
        self._lock = Lock()
        self._append(records or [])

    def state(self) -> RegistryState:
        """The state by now."""
        return self._state

    def execute(self, command: Command) -> Any:
        """Decide, keep the records, return the reply."""
        with self._lock:
            decision = command(self._state)
            self._append([encode_record(r) for r in decision.records])
            return decision.reply

    def _append(self, records: list[tuple[bytes, bytes | None]]) -> None:
        state = self._state.copy()
        for key, value in records:
            self.records.append((key, value))
            record = decode_record(key, value)
            if record is not None:
                state.replay(record)
        self._state = state
