"""Planted bugs of offsets that transactions commit, each with the script that detects it."""

from __future__ import annotations

import pytest

from headwater_broker.coordinator.common.shard import Decision
from headwater_broker.coordinator.group.pending_offsets import PendingOffsets
from headwater_broker.coordinator.group.transaction_verification import Verifications
from sim.group_anomalies import (
    late_offsets,
    marker_before_offsets,
    plain_commit_after_pending,
    stale_coordinator_answers,
)
from sim.planted import Planted
from sim.scripted import scripted

SCRIPT = frozenset({"TheScriptHolds", "NoTransactionStaysOpen"})
CALM = {"slow": 1.0}


def verify_no_offset(patch: pytest.MonkeyPatch) -> None:
    """A group coordinator takes every transaction for one that is open."""
    patch.setattr(PendingOffsets, "is_open", lambda self, producer: True)


def take_late_offsets(patch: pytest.MonkeyPatch) -> None:
    """An offset on an older connection is taken."""
    patch.setattr(Verifications, "committed", lambda self, verification: None)


def answer_without_a_proof(patch: pytest.MonkeyPatch) -> None:
    """A coordinator answers stable offsets without knowing that it still leads."""
    patch.setattr(Decision, "reply_as_leader", Decision.reply)


def let_the_last_marker_win(patch: pytest.MonkeyPatch) -> None:
    """A transaction's offset replaces one that was committed after it."""
    patch.setattr(PendingOffsets, "committed", lambda self, key, log_offset: None)


PLANTED_OFFSETS = (
    Planted(
        "verify no offset",
        verify_no_offset,
        SCRIPT,
        CALM,
        kind=scripted(marker_before_offsets, 1),
    ),
    Planted("take late offsets", take_late_offsets, SCRIPT, CALM, kind=scripted(late_offsets, 2)),
    Planted(
        "answer without a proof",
        answer_without_a_proof,
        SCRIPT,
        CALM,
        kind=scripted(stale_coordinator_answers, 2),
    ),
    Planted(
        "let the last marker win",
        let_the_last_marker_win,
        SCRIPT,
        CALM,
        kind=scripted(plain_commit_after_pending, 2),
    ),
)
