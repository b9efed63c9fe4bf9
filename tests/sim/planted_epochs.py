"""Planted bugs of epoch transactions, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.common.shard import Decision
from headwater_broker.coordinator.transaction import epoch_admission, epoch_coordinator
from headwater_broker.coordinator.transaction.epoch_admission import Epochs
from headwater_broker.coordinator.transaction.epoch_coordinator import EpochCoordinator
from headwater_broker.coordinator.transaction.epoch_records import OWN_KIND
from headwater_broker.coordinator.transaction.epoch_values import EpochKey, EpochReply, Sink
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch, SlotPool
from sim.epoch_anomalies import OPEN_FOR_EVER, commit_reply_lost
from sim.planted import Planted
from sim.scripted import scripted


def commit_before_the_record_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A commit is answered, and its markers are sent, without its record."""
    decide = EpochCoordinator.decide

    def in_memory(self: EpochCoordinator, *place: Any) -> Decision:
        decision = decide(self, *place)
        if place[2] is EpochState.COMMITTING and all(
            record.key[:1] == OWN_KIND for record in decision.records
        ):
            for record in decision.records:
                self.replay(0, record.key, record.value)
            decision.replies += decision.confirmations
            decision.records, decision.confirmations = [], []
        return decision

    patch.setattr(EpochCoordinator, "decide", in_memory)


def hand_a_slot_out_twice(patch: pytest.MonkeyPatch) -> None:
    """The coordinator forgets that a slot is in use."""
    patch.setattr(SlotPool, "use", lambda *_: None)


def abort_a_committed_epoch(patch: pytest.MonkeyPatch) -> None:
    """AbortEpoch and a newer run abort an epoch, though it is committed."""
    overtaken = epoch_coordinator.overtaken

    def committed_too(epochs: Epochs, ticket: int) -> list[OpenEpoch]:
        committing = [e for e in epochs.values() if e.state is EpochState.COMMITTING]
        return overtaken(epochs, ticket) + committing

    patch.setattr(epoch_coordinator, "overtaken", committed_too)


def ignore_the_order_of_tickets(patch: pytest.MonkeyPatch) -> None:
    """No run is fenced, and none is overtaken."""
    for module in (epoch_admission, epoch_coordinator):
        patch.setattr(module, "is_fenced", lambda *_: False)
    patch.setattr(epoch_coordinator, "overtaken", lambda *_: [])


def commit_participants_that_are_not_named(patch: pytest.MonkeyPatch) -> None:
    """Every participant that has joined is committed."""
    write = EpochCoordinator._write

    def all_of_them(
        self: EpochCoordinator,
        own: OpenEpoch | None,
        key: EpochKey,
        sink: Sink,
        state: EpochState,
        slots: Mapping[int, int],
        *rest: Any,
    ) -> None:
        if own is not None and state is EpochState.COMMITTING:
            slots = {s: self.participants[m].producer_epoch for s, m in own.members.items()}
        write(self, own, key, sink, state, slots, *rest)

    patch.setattr(EpochCoordinator, "_write", all_of_them)


def bury_a_decision_early(patch: pytest.MonkeyPatch) -> None:
    """COMPLETE is written with the first participant's markers, not with the last one's."""
    patch.setattr(OpenEpoch, "is_written", property(lambda self: self.is_decided))


def say_committed_of_an_aborted_epoch(patch: pytest.MonkeyPatch) -> None:
    """CommitEpoch of an attempt that was aborted is answered COMMITTED."""
    decide = EpochCoordinator.decide

    def always(self: EpochCoordinator, *place: Any) -> Decision:
        found = decide(self, *place)
        for rows in (found.replies, found.confirmations, found.leader_replies):
            for at, (token, reply) in enumerate(rows):
                if isinstance(reply, EpochReply) and reply.status is EpochStatus.ABORTED:
                    rows[at] = (token, reply._replace(status=EpochStatus.COMMITTED))
        return found

    patch.setattr(EpochCoordinator, "decide", always)


CALM = {"slow": 1.0}
ROWS = frozenset({"EpochsAreWholeAndOnce", "NoEpochIsReadEarly", "DecisionsStay", "TablesAgree"})
ENDS = frozenset({"NoTransactionStaysOpen", "TransactionsAreWhole", "NothingUnforeseen"})
_QUERIES = Planted("", hand_a_slot_out_twice, ROWS, CALM, queries=2)

PLANTED_EPOCHS = (
    replace(
        _QUERIES,
        name="commit an epoch in memory",
        plant=commit_before_the_record_is_durable,
    ),
    replace(
        _QUERIES,
        name="hand a slot out twice",
        plant=hand_a_slot_out_twice,
        seen_by=frozenset({"SlotsAreNotShared"}),
    ),
    replace(
        _QUERIES,
        name="abort a committed epoch",
        plant=abort_a_committed_epoch,
        seen_by=ROWS | {"TheScriptHolds"},
        queries=0,
        kind=scripted(commit_reply_lost, 2),
        properties=OPEN_FOR_EVER,
    ),
    replace(
        _QUERIES,
        name="ignore the order of tickets",
        plant=ignore_the_order_of_tickets,
        seen_by=ROWS | {"RewoundCheckpointsAreRefused"},
    ),
    replace(
        _QUERIES,
        name="commit participants that are not named",
        plant=commit_participants_that_are_not_named,
    ),
    replace(
        _QUERIES, name="bury a decision early", plant=bury_a_decision_early, seen_by=ROWS | ENDS
    ),
    replace(
        _QUERIES,
        name="say committed of an aborted epoch",
        plant=say_committed_of_an_aborted_epoch,
    ),
)
