"""Beginnings that many cases share.

TV1 cases use EndTxn v4 and Produce v11, TV2 cases EndTxn v5 and Produce v12 (KIP-890).
"""

from __future__ import annotations

from differential.coordinator_steps import Add, End, Init, Settle
from differential.partition_steps import Write
from differential.session import UNKNOWN_ID, Step, Who

STALE, NEXT = Who(epoch=-1), Who(epoch=1)
STRANGER = Who(producer_id=UNKNOWN_ID)
NOBODY = Who(slot="nobody")
END = {1: 4, 2: 5}
PRODUCE = {1: 11, 2: 12}


def begun(tv: int, *, partitions: tuple[int, ...] = (0,)) -> tuple[Step, ...]:
    """An open transaction with one record in its first partition."""
    if tv == 1:
        return Init(), Add(partitions=partitions), Write()
    return Init(), *(Write(partition=p, version=12) for p in partitions)


def ended(tv: int, *, commit: bool = True) -> tuple[Step, ...]:
    """A transaction that has ended."""
    return *begun(tv), End(commit=commit, version=END[tv]), Settle()
