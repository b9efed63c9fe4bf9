"""Cases of leaders, readers and offsets of groups."""

from __future__ import annotations

from differential.coordinator_steps import (
    Add,
    AddOffsets,
    CommitOffset,
    End,
    Init,
    Offset,
    PlainCommit,
    Settle,
    State,
)
from differential.partition_steps import Mark, Producers, Read, Stable, Write
from differential.session import MISSING, UNKNOWN_ID, Case, Step, Who
from differential.transactions import END, NEXT, NOBODY, PRODUCE, STALE, STRANGER, begun, ended


def _producing() -> list[Case]:
    found: list[Case] = []
    for tv in (1, 2):
        v = {"version": PRODUCE[tv]}
        opened = begun(tv)
        found += [
            Case(
                f"write TV{tv} none", (Write(who=Who(producer_id=UNKNOWN_ID, exact_epoch=0), **v),)
            ),
            Case(
                f"write TV{tv} without an add", (Init(), Write(**v), State(), Read(committed=False))
            ),
            Case(f"write TV{tv} elsewhere", (*opened, Write(partition=1, **v), State())),
            Case(f"write TV{tv} stale", (Init(), Init(), Write(who=STALE, **v))),
            Case(f"write TV{tv} stale, known here", (*opened, Write(sequence=1, who=STALE, **v))),
            Case(f"write TV{tv} newer", (*opened, Write(who=NEXT, **v))),
            Case(
                f"write TV{tv} out of order",
                (*opened, Write(sequence=5, **v), Write(sequence=1, **v)),
            ),
            Case(f"write TV{tv} first out of order", (Init(), Add(), Write(sequence=5, **v))),
            Case(f"write TV{tv} again", (*opened, Write(**v), Write(sequence=1, **v), Write(**v))),
            Case(f"write TV{tv} after the end", (*ended(tv), Write(sequence=1, who=Who(), **v))),
            Case(
                f"write TV{tv} after the end by the old epoch",
                (
                    *opened,
                    End(version=END[tv], follows=False),
                    Settle(),
                    Write(sequence=1, **v),
                    Write(partition=1, **v),
                ),
            ),
            Case(
                f"write TV{tv} next transaction",
                (
                    *ended(tv),
                    *((Add(),) if tv == 1 else ()),
                    Write(sequence=1 if tv == 1 else 0, **v),
                    Read(),
                    Stable(),
                    End(version=END[tv], commit=False),
                    Settle(),
                    Read(),
                    Read(committed=False),
                    Stable(),
                ),
            ),
            Case(
                f"write TV{tv} another id",
                (*opened, Init(tid="u", slot="u"), Write(tid="u", sequence=1, **v)),
            ),
        ]
    return found


def _producing_without() -> list[Case]:
    """Without the transactional id, the flag, or a producer id."""
    found: list[Case] = []
    for tv in (1, 2):
        v = {"version": PRODUCE[tv]}
        opened = begun(tv)
        found += [
            Case(f"write TV{tv} without an id", (*opened, Write(tid=None, sequence=1, **v))),
            Case(
                f"write TV{tv} without the flag",
                (*opened, Write(transactional=False, sequence=1, **v)),
            ),
            Case(
                f"write TV{tv} without id and flag",
                (*opened, Write(tid=None, transactional=False, sequence=1, **v)),
            ),
            Case(f"write TV{tv} empty id", (*opened, Write(tid="", sequence=1, **v))),
            Case(f"write TV{tv} nobody", (Write(who=NOBODY, **v),)),
            Case(f"write TV{tv} bad partition", (Init(), Write(partition=MISSING, **v), State())),
        ]
    return found


def _producing_by_version() -> list[Case]:
    found = [
        Case(f"write v{version}", (Init(), Add(), Write(version=version)))
        for version in range(3, 12)
    ]
    found += [
        Case(f"write v{version} without an add", (Init(), Write(version=version)))
        for version in range(3, 12)
    ]
    found += [
        Case(
            f"write v{version} stale",
            (*begun(1), Init(), Settle(), Write(who=STALE, version=version)),
        )
        for version in range(3, 13)
    ]
    return found


def _offsets() -> list[Case]:
    found: list[Case] = []
    for version in range(6):
        commit = {"version": version}
        enlist: tuple[Step, ...] = (AddOffsets(),) if version < 5 else ()
        end = END[1] if version < 5 else END[2]
        found += [
            Case(
                f"offsets v{version} committed",
                (
                    Init(),
                    *enlist,
                    CommitOffset(**commit),
                    Offset(),
                    Offset(stable=True),
                    End(version=end),
                    Settle(),
                    Offset(stable=True),
                ),
            ),
            Case(
                f"offsets v{version} aborted",
                (
                    PlainCommit(),
                    Init(),
                    *enlist,
                    CommitOffset(**commit),
                    Offset(stable=True),
                    End(version=end, commit=False),
                    Settle(),
                    Offset(stable=True),
                ),
            ),
            Case(f"offsets v{version} without an add", (Init(), CommitOffset(**commit), State())),
        ]
    return found


def _offsets_refused() -> list[Case]:
    found: list[Case] = []
    for version in range(6):
        commit = {"version": version}
        enlist: tuple[Step, ...] = (AddOffsets(),) if version < 5 else ()
        found += [
            Case(
                f"offsets v{version} stale",
                (Init(), *enlist, CommitOffset(**commit), CommitOffset(who=STALE, **commit)),
            ),
            Case(f"offsets v{version} newer", (Init(), *enlist, CommitOffset(who=NEXT, **commit))),
            Case(
                f"offsets v{version} stranger",
                (Init(), *enlist, CommitOffset(who=STRANGER, **commit)),
            ),
            Case(
                f"offsets v{version} nobody", (Init(), *enlist, CommitOffset(who=NOBODY, **commit))
            ),
            Case(f"offsets v{version} empty id", (Init(), *enlist, CommitOffset(tid="", **commit))),
            Case(
                f"offsets v{version} empty group",
                (Init(), *enlist, CommitOffset(group="", **commit)),
            ),
            Case(
                f"offsets v{version} unknown topic",
                (Init(), *enlist, CommitOffset(topic="there-is-no-such-topic", **commit)),
            ),
            Case(
                f"offsets v{version} bad partition",
                (Init(), *enlist, CommitOffset(partition=MISSING, **commit)),
            ),
        ]
    return found


def _offsets_of_members() -> list[Case]:
    found: list[Case] = []
    for version in (3, 5):
        enlist = (AddOffsets(),) if version < 5 else ()
        found += [
            Case(
                f"offsets v{version} {what}",
                (
                    Init(),
                    *enlist,
                    CommitOffset(
                        version=version, generation=generation, member=member, instance=instance
                    ),
                ),
            )
            for what, generation, member, instance in (
                ("generation of no group", 3, "m", None),
                ("generation without a member", 3, "", None),
                ("member without a generation", -1, "m", None),
                ("instance without a member", -1, "", "i"),
                ("instance and member", 1, "m", "i"),
            )
        ]
    return found


def _offsets_of_transactions() -> list[Case]:
    return [
        Case(
            "offsets plain after pending",
            (
                Init(),
                AddOffsets(),
                CommitOffset(offset=5),
                PlainCommit(offset=9),
                Offset(),
                End(),
                Settle(),
                Offset(stable=True),
            ),
        ),
        Case(
            "offsets pending of two producers",
            (
                Init(),
                AddOffsets(),
                CommitOffset(offset=5),
                Init(tid="u", slot="u"),
                AddOffsets(tid="u", who=Who("u")),
                CommitOffset(tid="u", who=Who("u"), offset=7),
                End(),
                Settle(),
                Offset(),
                Offset(stable=True),
                End(tid="u", who=Who("u"), commit=False),
                Settle(tid="u"),
                Offset(stable=True),
            ),
        ),
        Case(
            "offsets v5 after the end",
            (
                Init(),
                CommitOffset(version=5),
                End(version=5, follows=False),
                Settle(),
                CommitOffset(version=5, offset=8),
                Offset(stable=True),
            ),
        ),
    ]


def _markers() -> list[Case]:
    found: list[Case] = []
    for tv in (1, 2):
        opened = begun(tv)
        found += [
            Case(
                f"marker TV{tv} higher epoch, nothing open",
                (*ended(tv), Mark(who=Who(epoch=3)), Read(), Producers()),
            ),
            Case(
                f"marker TV{tv} same epoch, nothing open",
                (*ended(tv), Mark(), Read(), Producers()),
            ),
            Case(f"marker TV{tv} lower epoch", (*opened, Mark(who=STALE), Read(), Producers())),
            Case(
                f"marker TV{tv} old coordinator",
                (*ended(tv), Mark(coordinator_epoch=-5), Producers()),
            ),
            Case(
                f"marker TV{tv} commit of nothing",
                (*ended(tv), Mark(commit=True, who=Who(epoch=2)), Read()),
            ),
        ]
    found += [
        Case(
            "marker unknown producer",
            (Mark(who=Who(producer_id=UNKNOWN_ID, exact_epoch=3)), Read()),
        ),
        Case("marker bad partition", (Init(), Mark(partition=MISSING))),
        Case("marker v2 TV2", (Init(), Mark(version=2, transaction_version=2, who=NEXT), Read())),
        Case(
            "marker v2 TV2 same epoch, nothing open",
            (*ended(2), Mark(version=2, transaction_version=2), Read()),
        ),
        Case("marker ends an open transaction", (*begun(1), Mark(), Read(), State(), Producers())),
    ]
    return found


def _reading() -> list[Case]:
    reads: tuple[Step, ...] = (
        *(Read(version=version) for version in (4, 7, 11, 12)),
        Read(version=4, committed=False),
        Read(committed=False),
        Read(offset=1),
        Read(offset=2),
    )
    found: list[Case] = []
    for tv in (1, 2):
        found += [
            Case(f"read TV{tv} open", (*begun(tv), *reads, Stable(), Stable(timestamp=0))),
            Case(f"read TV{tv} committed", (*ended(tv), *reads, Stable())),
            Case(f"read TV{tv} aborted", (*ended(tv, commit=False), *reads, Stable())),
        ]
    found.append(
        Case(
            "read two producers",
            (
                Init(),
                Init(tid="u", slot="u"),
                Write(version=12, value="p"),
                Write(version=12, tid="u", who=Who("u"), value="u"),
                Write(version=12, sequence=1, value="p"),
                End(version=5, tid="u", who=Who("u"), commit=False),
                Settle(tid="u"),
                Read(),
                Stable(),
                End(version=5),
                Settle(),
                Read(),
                Read(offset=1),
                Read(offset=4),
                Stable(),
            ),
        )
    )
    return found


def _timeouts() -> list[Case]:
    found: list[Case] = []
    for tv in (1, 2):
        v = {"version": PRODUCE[tv]}
        found.append(
            Case(
                f"timed out TV{tv}",
                (
                    Init(timeout_ms=300),
                    *((Add(),) if tv == 1 else ()),
                    Write(**v),
                    Settle(),
                    State(),
                    Write(sequence=1, **v),
                    Write(partition=1, **v),
                    *((Add(partitions=(1,)),) if tv == 1 else ()),
                    End(version=END[tv]),
                    End(version=END[tv], commit=False),
                    CommitOffset(version=4 if tv == 1 else 5),
                    Read(),
                    Init(said=Who(), slot="q"),
                    Init(slot="r"),
                ),
            )
        )
    return found


PARTITION_CASES: tuple[Case, ...] = (
    *_producing(),
    *_producing_without(),
    *_producing_by_version(),
    *_offsets(),
    *_offsets_refused(),
    *_offsets_of_members(),
    *_offsets_of_transactions(),
    *_markers(),
    *_reading(),
    *_timeouts(),
)
