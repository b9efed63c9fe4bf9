"""Planted bugs of transactions, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from headwater.records import pairs
from headwater.records.control import ControlType
from headwater_broker.coordinator.common.shard import Decision, Now
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity
from headwater_broker.log.producer_state_manager import Producers
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.transaction_verification import TransactionGuard
from sim.anomalies import late_batch_unheeded, late_marker
from sim.planted import Planted
from sim.scripted import scripted

TORN = frozenset(
    {
        "TransactionsAreWhole",
        "ReadersSeeCommittedOnly",
        "CommittedRecordsAreInOrder",
        "CopiesAgreeWithOffsets",
        "ZombiesAreFenced",
        "NobodyIsFencedWithoutReason",
        "NothingUnforeseen",
    }
)


def verify_nothing(patch: pytest.MonkeyPatch) -> None:
    """A leader appends a batch without asking whether its transaction is open."""

    def verify(
        self: TransactionGuard, partition: Partition, batch: memoryview
    ) -> Awaitable[None] | None:
        return None

    patch.setattr(TransactionGuard, "verify", verify)


def take_a_marker_of_the_known_epoch(patch: pytest.MonkeyPatch) -> None:
    """A marker of transaction version 2 is appended again when its epoch is known."""
    check = Producers.check_marker

    def as_version_1(self: Producers, *place: Any, **named: Any) -> bool:
        return check(self, *place, **{**named, "transaction_version": 1})

    patch.setattr(Producers, "check_marker", as_version_1)


def take_a_late_end(patch: pytest.MonkeyPatch) -> None:
    """EndTxn ends the open transaction, whatever epoch it names."""
    end = TransactionShard.end_transaction

    def of_anybody(
        self: TransactionShard, transactional_id: str, producer: ProducerIdentity, **named: Any
    ) -> Decision:
        known = self.transactions.get(transactional_id)
        current = producer if known is None else known.identity
        return end(self, transactional_id, current, **named)

    patch.setattr(TransactionShard, "end_transaction", of_anybody)


def read_past_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(Producers, "first_unstable_offset", property(lambda self: None))


def load_aborted_offsets(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that loads takes each marker for a commit."""
    patch.setattr(pairs, "control_type", lambda key: ControlType.COMMIT)


def prepare_in_memory(patch: pytest.MonkeyPatch) -> None:
    """EndTxn is answered, and its markers are sent, without a record of the outcome."""
    end = TransactionShard.end_transaction

    def without_a_record(self: TransactionShard, *place: Any, **named: Any) -> Decision:
        decision = end(self, *place, **named)
        for record in decision.records:
            self.replay(0, -1, -1, record.key, record.value)
        decision.replies += decision.confirmations
        decision.records, decision.confirmations = [], []
        return decision

    patch.setattr(TransactionShard, "end_transaction", without_a_record)


def forget_outcomes_at_a_load(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that loads takes a transaction for complete whose outcome is the last record:
    so it is where the completion is recorded late, but for the markers that a crash has prevented.
    """
    loaded = TransactionShard.loaded

    def and_forget(self: TransactionShard, now: Now) -> None:
        loaded(self, now)
        self.take_markers_due(LOG_END)

    patch.setattr(TransactionShard, "loaded", and_forget)


LOG_END = 2**62
"""An offset behind every record."""
CALM = {"slow": 1.0}
_TRANSACTED = Planted("", verify_nothing, TORN, {"kill": 1.0}, transactional_producers=3)
_LONE = replace(
    _TRANSACTED, supervised=1.0, down_s=(0.03, 0.5), fault_pause_s=0.3, is_lone=True,
    faults={"kill": 1.0, "kill_at_event": 1.0, "kill_at_access": 1.0},
)  # fmt: skip

PLANTED_TRANSACTIONS = (
    Planted(
        "verify nothing",
        verify_nothing,
        frozenset({"NoTransactionStaysOpen"}),
        CALM,
        kind=scripted(late_batch_unheeded, 1),
    ),
    Planted(
        "take a marker of the known epoch",
        take_a_marker_of_the_known_epoch,
        TORN,
        CALM,
        kind=scripted(late_marker, 2),
    ),
    replace(_TRANSACTED, name="take a late end", plant=take_a_late_end),
    replace(
        _TRANSACTED,
        name="read past open transactions",
        plant=read_past_open_transactions,
        seen_by=frozenset({"ReadersSeeCommittedOnly"}),
        faults=CALM,
    ),
    replace(
        _TRANSACTED,
        name="load aborted offsets",
        plant=load_aborted_offsets,
        seen_by=frozenset({"CopiesAgreeWithOffsets"}),
        supervised=1.0,
        down_s=(0.03, 0.5),
        first_seed=29,
    ),
    replace(
        _TRANSACTED,
        name="prepare in memory",
        plant=prepare_in_memory,
        supervised=1.0,
        down_s=(0.03, 0.5),
        fault_pause_s=0.3,
    ),
    replace(_LONE, name="prepare in memory, without followers", plant=prepare_in_memory),
    replace(_LONE, name="take a late end, without followers", plant=take_a_late_end, is_long=True),
    replace(
        _LONE,
        name="load aborted offsets, without followers",
        plant=load_aborted_offsets,
        seen_by=frozenset({"CopiesAgreeWithOffsets"}),
        is_long=True,
    ),
    replace(
        _LONE,
        name="forget outcomes at a load",
        plant=forget_outcomes_at_a_load,
        seen_by=frozenset({"MetadataConverges", "NoTransactionStaysOpen"}),
    ),
)
