"""What recovery decides, as two lettered tables over all inputs. Pure; the shell is `loader`.

Table 1 judges one batch met while scanning a segment. Table 2 says how much of a segment's files
to trust at start. Neither ever guesses: what a crash may leave is a cut-off tail; what it cannot
leave (damage below the recovery point) is not silently skipped either, it is cut and told.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class BatchFacts(NamedTuple):
    """What the scanner saw at one position. A later fact means nothing when an earlier is False."""

    any_bytes: bool
    """At least one byte is left in the file."""
    whole_header: bool
    """All 61 header bytes are there."""
    sane_length: bool
    """batch_length can hold the rest of a header, and is positive."""
    whole_body: bool
    """The file reaches to the end of the batch."""
    known_magic: bool
    """Magic is 2."""
    crc_matches: bool
    rising_offset: bool
    """Base offset is at least the next expected one, and the last offset not below the base."""


class BatchCase(Enum):
    """The lettered cases of a batch, with what to do."""

    A_END = "A: nothing left; the segment is whole"
    B_TORN_HEADER = "B: the header is cut off; cut here"
    C_BAD_LENGTH = "C: the length is nonsense; cut here"
    D_TORN_BODY = "D: the body is cut off; cut here"
    E_FOREIGN_MAGIC = "E: not a batch of version 2; cut here"
    F_BAD_CRC = "F: the CRC does not match; cut here"
    G_OFFSET_BACK = "G: the offset goes backwards; cut here"
    H_KEEP = "H: a good batch; keep it and go on"

    @property
    def keeps(self) -> bool:
        """True when the batch stays and the scan goes on."""
        return self is BatchCase.H_KEEP

    @property
    def cuts(self) -> bool:
        """True when the segment ends here and everything after goes."""
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
    """What is known of one segment before it is opened for use."""

    after_cut: bool
    """An earlier segment of this log was cut: offsets here no longer follow."""
    offsets_missing: bool
    """The segment before was read, it ends below this one's base, and the log is known to be one
    whose offsets have no gaps: the end of that segment never reached the disk."""
    clean_stop: bool
    """The broker wrote its clean-shutdown mark."""
    below_recovery_point: bool
    """All of it was fsynced: its end is at or below the recovery point."""
    sane_indexes: bool
    """Both indexes exist, are whole, rising, and inside the log."""


class SegmentCase(Enum):
    """The lettered cases of a segment, with what to do."""

    O_GAP = "O: offsets before it are lost, of a log without gaps; set it aside"
    P_DROP = "P: it follows a cut; set it aside"
    Q_TRUST = "Q: stopped cleanly or fsynced, indexes sane; use as it is"
    R_REINDEX = "R: as Q, but an index is missing or bad; rebuild indexes, no CRC check needed"
    S_SCAN = "S: may be torn; check every batch, cut at the first bad one, rebuild indexes"


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

    Kafka has no O: it would serve the log with the hole. Cut there, a follower fetches what it
    lost from the leader, and so does a leader that lost its power and its place (KIP-966).
    """
    if facts.after_cut:
        return SegmentCase.P_DROP
    if facts.offsets_missing:
        return SegmentCase.O_GAP
    if not facts.clean_stop and not facts.below_recovery_point:
        return SegmentCase.S_SCAN
    return SegmentCase.Q_TRUST if facts.sane_indexes else SegmentCase.R_REINDEX
