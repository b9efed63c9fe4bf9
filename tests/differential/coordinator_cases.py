"""Cases of coordinators: InitProducerId, EndTxn, AddPartitions, descriptions."""

from __future__ import annotations

from differential.coordinator_steps import (
    Add,
    AddOffsets,
    CommitOffset,
    End,
    Init,
    Listed,
    Settle,
    State,
)
from differential.partition_steps import Producers, Read, Write
from differential.session import MISSING, Case, Step, Who
from differential.transactions import END, NEXT, STALE, STRANGER, begun, ended


def _initialisation() -> list[Case]:
    """InitProducerId in each state, alone and with an identity (KIP-360)."""
    before: dict[str, tuple[Step, ...]] = {
        "empty": (Init(),),
        "ongoing": begun(1),
        "ongoing TV2": begun(2),
        "committed": ended(1),
        "aborted": ended(1, commit=False),
        "committed TV2": ended(2),
        "aborted TV2": ended(2, commit=False),
    }
    saids: dict[str, Who | None] = {
        "alone": None,
        "current": Who(),
        "last": STALE,
        "older": Who(epoch=-2),
        "newer": NEXT,
        "unknown id": STRANGER,
        "no id but an epoch": Who(producer_id=-1),
        "id without an epoch": Who(exact_epoch=-1),
    }
    found = [
        Case(
            f"init {state} {how}",
            (*steps, Init(said=said, slot="q"), Settle(may_stay_open=True), State()),
        )
        for state, steps in before.items()
        for how, said in saids.items()
    ]
    found += [
        Case(f"init none {how}", (Init(said=said, slot="q"), State()))
        for how, said in saids.items()
        if how != "id without an epoch"
    ]
    return found


def _other_initialisation() -> list[Case]:
    versions = [
        Case(f"init v{version}", (Init(version=version), Init(version=version), State()))
        for version in range(6)
    ]
    timeouts = [
        Case(f"init timeout {ms}", (Init(timeout_ms=ms), State()))
        for ms in (-1, 0, 1, 900_000, 900_001, 2**31 - 1)
    ]
    return [
        *versions,
        *timeouts,
        Case("init empty id", (Init(tid=""),)),
        Case("init without a transactional id", (Init(tid=None), Init(tid=None, timeout_ms=0))),
        Case(
            "init without an id but with an identity", (Init(tid=None), Init(tid=None, said=Who()))
        ),
        Case("init another timeout", (Init(), Init(timeout_ms=5_000), State())),
        Case(
            "init retried",
            (Init(), Init(said=Who(), slot="q"), Init(said=Who(), slot="r"), State()),
        ),
        Case(
            "init retried after a newer one",
            (Init(), Init(said=Who(), slot="q"), Init(slot="r"), Init(said=Who(), slot="s")),
        ),
        Case(
            "fenced by a second instance",
            (
                *begun(1),
                Init(slot="q"),
                Settle(),
                Write(sequence=1),
                Add(partitions=(1,)),
                AddOffsets(),
                CommitOffset(),
                End(),
                Read(),
                Producers(),
            ),
        ),
        Case(
            "fenced by a second instance TV2",
            (
                *begun(2),
                Init(slot="q"),
                Settle(),
                Write(sequence=1, version=12),
                Write(partition=1, version=12),
                CommitOffset(version=5),
                End(version=5),
                Read(),
                Producers(),
            ),
        ),
    ]


def _endings() -> list[Case]:
    found: list[Case] = []
    for tv in (1, 2):
        for commit in (True, False):
            found += _ended_once(tv, commit=commit)
            found += _ended_again(tv, commit=commit)
    return found + _ended_by_version()


def _ended_once(tv: int, *, commit: bool) -> list[Case]:
    what = f"{'commit' if commit else 'abort'} TV{tv}"
    end = End(commit=commit, version=END[tv], follows=False)
    return [
        Case(f"end {what} none", (end,)),
        Case(f"end {what} empty", (Init(), end, Settle(), State(), Read())),
        Case(f"end {what} empty twice", (Init(), end, Settle(), end, Settle(), State())),
        Case(
            f"end {what} stale",
            (*begun(tv), End(commit=commit, version=END[tv], who=STALE)),
        ),
        Case(
            f"end {what} newer",
            (*begun(tv), End(commit=commit, version=END[tv], who=NEXT)),
        ),
        Case(
            f"end {what} stranger",
            (*begun(tv), End(commit=commit, version=END[tv], who=STRANGER), State()),
        ),
    ]


def _ended_again(tv: int, *, commit: bool) -> list[Case]:
    what = f"{'commit' if commit else 'abort'} TV{tv}"
    end = End(commit=commit, version=END[tv], follows=False)
    return [
        Case(
            f"end {what} retried",
            (*begun(tv), end, Settle(), end, Settle(), State(), Read(), Producers()),
        ),
        Case(
            f"end {what} contradicted",
            (
                *begun(tv),
                end,
                Settle(),
                End(commit=not commit, version=END[tv]),
                Settle(),
                State(),
            ),
        ),
        Case(
            f"end {what} again by the next epoch",
            (
                *begun(tv),
                End(commit=commit, version=END[tv]),
                Settle(),
                End(commit=commit, version=END[tv], follows=False),
                Settle(),
                State(),
                Read(),
            ),
        ),
        Case(
            f"end {what} late, in the next transaction",
            (
                *begun(tv),
                end,
                Settle(),
                *(
                    (Add(partitions=(1,)),)
                    if tv == 1
                    else (Write(partition=1, who=NEXT, version=12),)
                ),
                State(),
            ),
        ),
    ]


def _ended_by_version() -> list[Case]:
    found = [
        Case(f"end v{version}", (*begun(1), End(version=version, follows=False), Settle(), State()))
        for version in range(6)
    ]
    found += [
        Case(f"end v{version} fenced", (*begun(1), End(version=version, who=STALE)))
        for version in range(6)
    ]
    found += [
        Case(
            "end TV2 of a transaction of TV1",
            (*begun(1), End(version=5), Settle(), State(), Read()),
        ),
        Case(
            "end TV1 of a transaction of TV2",
            (*begun(2), End(version=4), Settle(), State(), Read()),
        ),
        Case("end with an empty id", (Init(), End(tid=""))),
    ]
    return found


def _enlisting() -> list[Case]:
    found: list[Case] = []
    for version in range(4):
        add = {"version": version}
        found += [
            Case(f"add v{version}", (Init(), Add(partitions=(0, 1), **add), State())),
            Case(f"add v{version} stale", (Init(), Add(who=STALE, **add))),
            Case(f"add v{version} newer", (Init(), Add(who=NEXT, **add))),
            Case(f"add v{version} stranger", (Init(), Add(who=STRANGER, **add))),
            Case(f"add v{version} none", (Add(who=STRANGER, **add),)),
            Case(
                f"add v{version} bad partition",
                (Init(), Add(partitions=(0, MISSING), **add), State()),
            ),
            Case(f"add offsets v{version}", (Init(), AddOffsets(version=version), State())),
            Case(f"add offsets v{version} stale", (Init(), AddOffsets(version=version, who=STALE))),
            Case(
                f"add offsets v{version} stranger",
                (Init(), AddOffsets(version=version, who=STRANGER)),
            ),
        ]
    found += [
        Case("add offsets v4", (Init(), AddOffsets(version=4))),
        Case("add offsets none", (AddOffsets(who=STRANGER),)),
        Case("add offsets empty group", (Init(), AddOffsets(group=""))),
        Case("add empty id", (Init(), Add(tid=""))),
        Case("add nothing", (Init(), Add(partitions=()), State())),
        Case("add unknown topic", (Init(), Add(topic="there-is-no-such-topic"), State())),
        Case("add twice", (Init(), Add(), Add(), State())),
        Case("add after a commit", (*ended(1), Add(partitions=(1,)), State())),
        Case("add an internal topic", (Init(), AddOffsets(), Add(topic="__consumer_offsets"))),
    ]
    for version in (4, 5):
        for verify in (False, True):
            what = f"{'verify' if verify else 'add'} v{version}"
            add = {"version": version, "verify_only": verify}
            found += [
                Case(
                    f"{what} open",
                    (Init(), Add(), Add(**add), Add(partitions=(1,), **add), State()),
                ),
                Case(f"{what} empty", (Init(), Add(**add), State())),
                Case(f"{what} committed", (*ended(1), Add(**add))),
                Case(f"{what} committed TV2", (*ended(2), Add(**add))),
                Case(f"{what} stale", (Init(), Add(), Add(who=STALE, **add))),
                Case(f"{what} newer", (Init(), Add(), Add(who=NEXT, **add))),
                Case(f"{what} stranger", (Init(), Add(), Add(who=STRANGER, **add))),
                Case(f"{what} none", (Add(who=STRANGER, **add),)),
                Case(f"{what} bad partition", (Init(), Add(partitions=(0, MISSING), **add))),
            ]
    return found


def _describing() -> list[Case]:
    found: list[Case] = []
    for tv in (1, 2):
        opened = begun(tv, partitions=(0, 1))
        found += [
            Case(f"describe TV{tv} ongoing", (*opened, State(), Producers(), Listed())),
            Case(f"describe TV{tv} committed", (*ended(tv), State(), Producers(), Listed())),
            Case(
                f"describe TV{tv} aborted",
                (*ended(tv, commit=False), State(), Producers(), Listed()),
            ),
        ]
    found += [
        Case("describe none", (State(), Listed())),
        Case("describe empty id", (State(tid=""),)),
        Case("describe empty", (Init(), State(), Producers(), Listed())),
        Case("describe producers bad partition", (Producers(partition=MISSING),)),
        *(
            Case(
                f"list v{version}",
                (
                    *begun(1),
                    Init(tid="u", slot="u"),
                    Listed(version=version),
                    Listed(version=version, states=("Ongoing",)),
                    Listed(version=version, states=("Ongoing", "Nonsense")),
                    Listed(version=version, states=("ongoing",)),
                    Listed(version=version, of=(Who("u"),)),
                    Listed(version=version, of=(STRANGER,)),
                ),
            )
            for version in range(3)
        ),
        Case(
            "list by duration",
            (*begun(1), Listed(longer_than_ms=600_000), Listed(longer_than_ms=0)),
        ),
        Case(
            "list by pattern",
            (
                Init(),
                Init(tid="u", slot="u"),
                Listed(version=2, pattern="@\\.u"),
                Listed(version=2, pattern="@"),
                Listed(version=2, pattern="@.*"),
                Listed(version=2, pattern=""),
                Listed(version=2, pattern="("),
            ),
        ),
    ]
    return found


COORDINATOR_CASES: tuple[Case, ...] = (
    *_initialisation(),
    *_other_initialisation(),
    *_endings(),
    *_enlisting(),
    *_describing(),
)
