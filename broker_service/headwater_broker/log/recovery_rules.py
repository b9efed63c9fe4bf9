"""The decisions of log recovery as two lettered tables over all inputs. Pure; `log_loader` acts.

Table 1 judges one batch during the scan of a segment. Table 2 decides how far to trust the files of
a segment at start. A crash may leave a cut-off tail. Damage below the recovery point, which a crash
cannot leave, is not skipped silently either: the log is cut there, and that is logged.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class BatchFacts(NamedTuple):
    """The scan's findings at one position. A fact after a False one means nothing."""

    any_bytes: bool
    """The file has at least one more byte."""
    whole_header: bool
    """All 61 header bytes are there."""
    sane_length: bool
    """batch_length is not smaller than the rest of a header."""
    whole_body: bool
    """The file reaches to the end of the batch."""
    known_magic: bool
    """Magic is 2."""
    crc_matches: bool
    rising_offset: bool
    """The base offset is at least the expected one, and the last offset at least the base."""


class BatchCase(Enum):
    """The lettered cases of a batch, with the action."""

    A_END = "A: nothing left; the segment is whole"
    B_TORN_HEADER = "B: the header is cut off; cut here"
    C_BAD_LENGTH = "C: the length is invalid; cut here"
    D_TORN_BODY = "D: the body is cut off; cut here"
    E_FOREIGN_MAGIC = "E: not a batch of version 2; cut here"
    F_BAD_CRC = "F: the CRC does not match; cut here"
    G_OFFSET_BACK = "G: the offset goes backwards; cut here"
    H_KEEP = "H: a valid batch; keep it and go on"

    @property
    def keeps(self) -> bool:
        """True when the batch stays and the scan goes on."""
        return self is BatchCase.H_KEEP

    @property
    def cuts(self) -> bool:
        """True when the segment ends here and everything after it is removed."""
        return self not in (BatchCase.A_END, BatchCase.H_KEEP)


_ORDER = (
    BatchCase.A_END,
    BatchCase.B_TORN_HEADER,
    BatchCase.C_BAD_LENGTH,
    BatchCase.D_TORN_BODY,
    BatchCase.E_FOREIGN_MAGIC,
    BatchCase.F_BAD_CRC,
    BatchCase.G_OFFSET_BACK,
)


def judge_batch(facts: BatchFacts) -> BatchCase:
    """The first False fact, in order, names the case; none: H.

    | any | header | length | body | magic | crc | rising | case |
    |  0  |   -    |   -    |  -   |   -   |  -  |   -    |  A   |
    |  1  |   0    |   -    |  -   |   -   |  -  |   -    |  B   |
    |  1  |   1    |   0    |  -   |   -   |  -  |   -    |  C   |
    |  1  |   1    |   1    |  0   |   -   |  -  |   -    |  D   |
    |  1  |   1    |   1    |  1   |   0   |  -  |   -    |  E   |
    |  1  |   1    |   1    |  1   |   1   |  0  |   -    |  F   |
    |  1  |   1    |   1    |  1   |   1   |  1  |   0    |  G   |
    |  1  |   1    |   1    |  1   |   1   |  1  |   1    |  H   |
    """
    for fact, case in zip(facts, _ORDER, strict=True):
        if not fact:
            return case
    return BatchCase.H_KEEP


class SegmentFacts(NamedTuple):
    """The facts about a segment before it is used."""

    after_cut: bool
    """An earlier segment of this log was cut: offsets here no longer follow."""
    offsets_missing: bool
    """The segment before was scanned and ends below this one's base, in a log without gaps: the end
    of that segment never reached the disk."""
    clean_stop: bool
    """The broker wrote its clean-shutdown mark."""
    below_recovery_point: bool
    """All of it was fsynced: its end is at or below the recovery point."""
    sane_indexes: bool
    """Both indexes exist, are whole, rising, and inside the log."""


class SegmentCase(Enum):
    """The lettered cases of a segment, with the action."""

    O_GAP = "O: offsets before it are lost, in a log without gaps; set it aside"
    P_DROP = "P: it follows a cut; set it aside"
    Q_TRUST = "Q: closed cleanly or fsynced, indexes sane; use as it is"
    R_REINDEX = "R: as Q, but an index is missing or bad; rebuild indexes without CRC checks"
    S_SCAN = "S: may be cut off; check every batch, cut at the first bad one, rebuild indexes"


def judge_segment(facts: SegmentFacts) -> SegmentCase:
    """
    | after cut | offsets missing | clean | below recovery point | indexes | case |
    |     1     |        -        |   -   |          -           |    -    |  P   |
    |     0     |        1        |   -   |          -           |    -    |  O   |
    |     0     |        0        |   1   |          -           |    1    |  Q   |
    |     0     |        0        |   0   |          1           |    1    |  Q   |
    |     0     |        0        |   1   |          -           |    0    |  R   |
    |     0     |        0        |   0   |          1           |    0    |  R   |
    |     0     |        0        |   0   |          0           |    -    |  S   |

    Kafka has no case O: it serves the log with the hole. A log that is cut there fetches the lost
    records from the leader, even when this replica was the leader before the power loss (KIP-966).
    """
    if facts.after_cut:
        return SegmentCase.P_DROP
    if facts.offsets_missing:
        return SegmentCase.O_GAP
    if not facts.clean_stop and not facts.below_recovery_point:
        return SegmentCase.S_SCAN
    return SegmentCase.Q_TRUST if facts.sane_indexes else SegmentCase.R_REINDEX
