"""Two data folders with the same replica: which of them is it?

While a folder is offline its replicas are made anew in another one, and then it may come back. The
copy that was left behind may be the longer one, and still lack what was committed since. Raft's
rule of elections tells them apart: the later epoch of the last record, then the higher end, has
everything that the other could have promised to anybody.
"""

from __future__ import annotations

from headwater_broker.log.partition_log import PartitionLog


def knows_more(one: PartitionLog, other: PartitionLog) -> bool:
    """True when `one` is to be kept."""
    return _last_written(one) > _last_written(other)


def _last_written(log: PartitionLog) -> tuple[int, int]:
    """(leader epoch of the last record, log end offset)."""
    end = log.log_end_offset
    return log.epochs.epoch_for_offset(end - 1) if end > 0 else -1, end
