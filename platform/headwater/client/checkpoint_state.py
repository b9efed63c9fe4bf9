"""The part of a `CheckpointedProducer` in a checkpoint: the transactions that it has to commit."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headwater.client.errors import OptionError
from headwater.client.prepared_transaction import FORMAT, PreparedTransaction, check_format
from headwater.errors import UsageError


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """One worker's part of a checkpoint. It can be pickled, and written as JSON."""

    worker: int
    checkpoint_id: int
    slots: int
    """How many transactional ids the worker has used so far."""
    prepared: tuple[PreparedTransaction, ...] = ()
    """To be committed once the checkpoint is complete."""

    def to_json(self) -> str:
        """The state as a JSON object, for `from_json`."""
        return json.dumps(
            {
                "format": FORMAT,
                "worker": self.worker,
                "checkpoint_id": self.checkpoint_id,
                "slots": self.slots,
                "prepared": [handle.to_row() for handle in self.prepared],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> CheckpointState:
        """The state that `to_json` wrote. Raises UsageError for anything else."""
        try:
            row = json.loads(text)
            worker, checkpoint_id, slots = row["worker"], row["checkpoint_id"], row["slots"]
            rows = row["prepared"]
        except (TypeError, ValueError, KeyError) as e:
            raise UsageError(f"no state of a checkpoint: {text!r:.80}: {e!r}") from e
        numbers = (worker, checkpoint_id, slots)
        if not all(type(n) is int for n in numbers) or not isinstance(rows, list):
            raise UsageError(f"no state of a checkpoint: {text!r:.80}")
        check_format(row, "state of a checkpoint")
        handles = tuple(PreparedTransaction.from_row(row) for row in rows)
        return cls(worker, checkpoint_id, slots, handles)


def checkpoint_states(states: object) -> list[CheckpointState]:
    """States as callers give them: one or several, each a CheckpointState or its JSON.

    Raises OptionError, UsageError.
    """
    if states is None:
        return []
    rows = [states] if isinstance(states, CheckpointState | str | bytes) else states
    if not isinstance(rows, list | tuple):
        raise OptionError(f"recover from {states!r:.80}: give CheckpointStates, or their JSON")
    found = []
    for row in rows:
        if isinstance(row, str | bytes):
            found.append(CheckpointState.from_json(row))
        elif isinstance(row, CheckpointState):
            found.append(row)
        else:
            raise OptionError(f"recover from {row!r:.80}: give a CheckpointState, or its JSON")
    return found
