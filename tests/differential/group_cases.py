"""Sequences of requests about groups while transactions commit their offsets."""

from __future__ import annotations

from differential.coordinator_steps import (
    AddOffsets,
    CommitOffset,
    End,
    Init,
    Offset,
    PlainCommit,
    Settle,
    State,
)
from differential.group_steps import (
    DeleteGroup,
    DeleteOffset,
    Groups,
    Join,
    MemberCommit,
    Offsets,
)
from differential.session import Case, Step, Who
from differential.transactions import END

STABLE = Offset(stable=True)
COMMIT = {1: 4, 2: 5}
"""Version of TxnOffsetCommit, by transaction version."""
OTHER = Who("q")


def _pending(tv: int, tid: str = "t", slot: str = "p", offset: int = 5) -> tuple[Step, ...]:
    """A transaction with one offset."""
    adds = (AddOffsets(tid=tid, who=Who(slot)),) if tv == 1 else ()
    commit = CommitOffset(tid=tid, who=Who(slot), version=COMMIT[tv], offset=offset)
    return Init(tid=tid, slot=slot), *adds, commit


def _ended(tv: int, *, commit: bool, tid: str = "t", slot: str = "p") -> tuple[Step, ...]:
    return End(commit=commit, version=END[tv], tid=tid, who=Who(slot)), Settle(tid=tid)


def _offsets(tv: int, *, commit: bool) -> list[Case]:
    what = f"{'commit' if commit else 'abort'} TV{tv}"
    end = _ended(tv, commit=commit)
    late = CommitOffset(version=COMMIT[tv], offset=8)
    both = (*_pending(tv), *_pending(tv, "u", "q", 6))
    return [
        Case(f"group made by {what}", (*_pending(tv), Groups(), Offsets(), *end, Offsets())),
        Case(
            f"plain offset after pending {what}",
            (*_pending(tv), PlainCommit(), Offset(), STABLE, *end, STABLE),
        ),
        Case(
            f"plain offset before pending {what}",
            (PlainCommit(), *_pending(tv), Offset(), STABLE, *end, STABLE),
        ),
        Case(
            f"all offsets {what}",
            (
                PlainCommit(),
                *_pending(tv),
                CommitOffset(version=COMMIT[tv], partition=1),
                *(Offsets(stable=stable, version=v) for stable in (False, True) for v in (7, 8)),
                *end,
                Offsets(stable=True),
            ),
        ),
        Case(
            f"deleted group {what}",
            (*_pending(tv), DeleteGroup(), STABLE, Groups(), *end, STABLE, Groups()),
        ),
        Case(
            f"deleted group with an offset {what}",
            (PlainCommit(), *_pending(tv), DeleteGroup(), STABLE, *end, STABLE, Groups()),
        ),
        Case(
            f"deleted group, then an offset again {what}",
            (*_pending(tv), DeleteGroup(), late, STABLE, *end, STABLE),
        ),
        Case(f"deleted offset {what}", (*_pending(tv), DeleteOffset(), STABLE, *end, STABLE)),
        Case(
            f"deleted offset, then again {what}",
            (*_pending(tv), DeleteOffset(), late, STABLE, *end, STABLE),
        ),
        Case(
            f"deleted offset of another partition {what}",
            (*_pending(tv), DeleteOffset(partition=1), STABLE, *end, STABLE),
        ),
        Case(
            f"two offsets {what}",
            (*_pending(tv), late, Offset(), STABLE, *end, STABLE),
        ),
        Case(
            f"two transactions, the later ends first {what}",
            (*both, *_ended(tv, commit=True, tid="u", slot="q"), Offset(), STABLE, *end, STABLE),
        ),
        Case(
            f"two transactions, the earlier ends first {what}",
            (*both, *end, Offset(), STABLE, *_ended(tv, commit=True, tid="u", slot="q"), STABLE),
        ),
    ]


def _members(tv: int) -> list[Case]:
    version = COMMIT[tv]
    adds = (AddOffsets(),) if tv == 1 else ()
    begun = (Join(), Init(), *adds)
    end = _ended(tv, commit=True)
    return [
        Case(f"member commits v{version}", (*begun, MemberCommit(version=version), *end, STABLE)),
        Case(
            f"member of an older generation commits v{version}",
            (*begun, MemberCommit(version=version, generation=-1), STABLE),
        ),
        Case(
            f"member of a newer generation commits v{version}",
            (*begun, MemberCommit(version=version, generation=1), STABLE),
        ),
        Case(
            f"member of no generation commits v{version}",
            (*begun, MemberCommit(version=version, generation=-2), STABLE),
        ),
        Case(
            f"unknown member commits v{version}",
            (*begun, MemberCommit(version=version, is_other=True), STABLE),
        ),
        Case(
            f"nobody commits in a stable group v{version}",
            (*begun, CommitOffset(version=version), STABLE, *end, STABLE),
        ),
        Case(
            f"generation alone commits in a stable group v{version}",
            (*begun, CommitOffset(version=version, generation=1), STABLE),
        ),
        Case(
            f"static member commits v{version}",
            (
                Join(instance="i"),
                Init(),
                *adds,
                MemberCommit(version=version, instance="i"),
                MemberCommit(version=version, instance="j"),
                MemberCommit(version=version, instance="i", is_other=True),
                CommitOffset(version=version, instance="i"),
                *end,
                STABLE,
            ),
        ),
        Case(
            f"delete a stable group with a pending offset v{version}",
            (*begun, MemberCommit(version=version), DeleteGroup(), DeleteOffset(), STABLE),
        ),
    ]


def _versions() -> list[Case]:
    return [
        Case(
            "offsets v5 in a transaction of AddOffsetsToTxn",
            (Init(), AddOffsets(), CommitOffset(version=5), End(), Settle(), STABLE, State()),
        ),
        Case(
            "offsets v4 in a transaction of v5",
            (Init(), CommitOffset(version=5), CommitOffset(version=4, offset=6), STABLE),
        ),
        Case(
            "offsets v5 after a fencing instance",
            (*_pending(2), Init(slot="q"), Settle(), CommitOffset(version=5), STABLE),
        ),
        Case(
            "offsets v4 after a fencing instance",
            (*_pending(1), Init(slot="q"), Settle(), CommitOffset(version=4), STABLE),
        ),
        Case(
            "offsets v5 in the next transaction",
            (
                *_pending(2),
                End(version=5),
                CommitOffset(version=5, offset=6),
                Offset(),
                STABLE,
                End(version=5, commit=False),
                Settle(),
                STABLE,
            ),
        ),
        Case(
            "offsets v4 in the next transaction",
            (
                *_pending(1),
                *_ended(1, commit=True),
                CommitOffset(version=4, offset=6),
                AddOffsets(),
                CommitOffset(version=4, offset=7),
                *_ended(1, commit=False),
                STABLE,
            ),
        ),
        Case(
            "a negative offset",
            (Init(), CommitOffset(version=5, offset=-1), End(version=5), Settle(), Offset()),
        ),
    ]


GROUP_CASES: tuple[Case, ...] = (
    *(case for tv in (1, 2) for commit in (True, False) for case in _offsets(tv, commit=commit)),
    *_members(1),
    *_members(2),
    *_versions(),
)
