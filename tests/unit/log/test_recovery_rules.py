"""Every input of both recovery tables has its letter."""

from __future__ import annotations

from itertools import product

from headwater_broker.log.recovery_rules import (
    BatchCase,
    BatchFacts,
    SegmentCase,
    SegmentFacts,
    judge_batch,
    judge_segment,
)


def test_a_batch_is_judged_by_its_first_false_fact() -> None:
    letters = "ABCDEFG"
    for facts in product((False, True), repeat=7):
        case = judge_batch(BatchFacts(*facts))
        wanted = letters[facts.index(False)] if False in facts else "H"
        assert case.value.startswith(wanted + ":"), facts
        assert case.keeps == (wanted == "H")
        assert case.cuts == (wanted not in "AH")
    assert len(BatchCase) == 8


def test_a_segment_is_judged_over_all_inputs() -> None:
    for facts in product((False, True), repeat=5):
        after_cut, missing, clean, below, sane = facts
        case = judge_segment(SegmentFacts(*facts))
        if after_cut:
            assert case is SegmentCase.P_DROP
        elif missing:
            assert case is SegmentCase.O_GAP
        elif not (clean or below):
            assert case is SegmentCase.S_SCAN
        else:
            assert case is (SegmentCase.Q_TRUST if sane else SegmentCase.R_REINDEX)
