"""Planted bugs of epoch transactions, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.common.shard import Decision, Now
from headwater_broker.coordinator.transaction.epoch_coordinator import EpochCoordinator
from headwater_broker.coordinator.transaction.epoch_records import OWN_KIND, decision_record
from headwater_broker.coordinator.transaction.epoch_values import (
    EpochKey,
    EpochReply,
    EpochRequest,
    Sink,
)
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
    """A newer run aborts the epochs before its own, though one is committed."""
    abort = EpochCoordinator.abort_overtaken

    def committed_too(
        self: EpochCoordinator, sink: Sink, ticket: int, decision: Decision, now: Now
    ) -> None:
        abort(self, sink, ticket, decision, now)
        for key, epoch in self.table.of(sink.name).items():
            if epoch.decision is not None and epoch.state is EpochState.COMMITTING:
                changed = epoch.decision._replace(state=EpochState.ABORTING)
                decision.records.append(decision_record(sink.name, key, changed))

    patch.setattr(EpochCoordinator, "abort_overtaken", committed_too)


def ignore_the_order_of_tickets(patch: pytest.MonkeyPatch) -> None:
    """No run is fenced, and none is overtaken."""

    def forgetful(request: Callable[..., Decision]) -> Callable[..., Decision]:
        def served(self: EpochCoordinator, asked: Any, *place: Any) -> Decision:
            of: EpochRequest = getattr(asked, "of", asked)
            sink = self.table.sinks.get(of.sink)
            if sink is not None:
                forgotten = sink._replace(ticket=min(sink.ticket, of.ticket - 1), retired=())
                self.table.sinks[of.sink] = forgotten
            return request(self, asked, *place)

        return served

    for method in ("join", "decide", "resolve", "abort", "heartbeat"):
        patch.setattr(EpochCoordinator, method, forgetful(getattr(EpochCoordinator, method)))
    patch.setattr(EpochCoordinator, "abort_overtaken", lambda *_: None)


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
        queries=1,
        seen_by=ROWS | {"RewoundCheckpointsAreRefused"},
    ),
    replace(
        _QUERIES,
        name="commit participants that are not named",
        plant=commit_participants_that_are_not_named,
    ),
    replace(
        _QUERIES,
        name="bury a decision early",
        plant=bury_a_decision_early,
        seen_by=ROWS | ENDS,
        first_seed=2,
    ),
    replace(
        _QUERIES,
        name="say committed of an aborted epoch",
        plant=say_committed_of_an_aborted_epoch,
        # A driver that believes in the commit goes on; a rewound one finds its epoch free.
        seen_by=ROWS | {"RewoundCheckpointsAreRefused"},
        first_seed=49,
    ),
)
