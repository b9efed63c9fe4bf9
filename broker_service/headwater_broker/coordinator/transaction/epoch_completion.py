"""The end of an epoch: its sink's outcome, its participants, its decision's tombstone. Pure.

In this order, so that any prefix of the records is safe: until the tombstone the decision stands,
and a load goes on with what is left. The records may be in several batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.wire.epoch_values import EpochState
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.transaction.end_transaction import complete
from headwater_broker.coordinator.transaction.epoch_records import (
    decision_tombstone,
    sink_record,
)
from headwater_broker.coordinator.transaction.epoch_values import EpochKey, Sink
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch
from headwater_broker.coordinator.transaction.transaction import Transaction


def with_outcome(sink: Sink, key: EpochKey, state: EpochState, now_ms: int) -> Sink:
    """The sink once an epoch is committed or aborted.

    An aborted attempt is remembered: a CommitEpoch of it that comes late must not commit it empty.
    """
    if state is EpochState.COMMITTING:
        return sink._replace(last_epoch=key.epoch, last_update_ms=now_ms)
    aborted = max(sink.aborted_ticket, key.ticket)
    return sink._replace(aborted_ticket=aborted, last_update_ms=now_ms)


def completion(
    own: OpenEpoch | None,
    sink: Sink,
    participants: Mapping[str, Transaction],
    store: Callable[[Transaction], StoredRecord],
    now_ms: int,
) -> list[StoredRecord]:
    """The records of COMPLETE. `own`: None where nobody has joined. `sink`: with the outcome."""
    records = [sink_record(sink)]
    if own is None:
        return records
    for name in own.members.values():
        records.append(store(complete(participants[name], now_ms)))
    if own.decision is not None:
        records.append(decision_tombstone(own.sink, own.key))
    return records
