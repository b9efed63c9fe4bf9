"""An offset beyond the end is a final answer: the broker first makes sure that it still leads.

A leader that was cut off and replaced without knowing it yet lacks what was written since. A
consumer that goes on there (with what another member of its group committed, say) would take
OFFSET_OUT_OF_RANGE for lost records: it begins at the start or the end, and so reads all again or
skips what there is. As for a gap in a producer's sequence (`api.out_of_order`) the metadata store
is asked; who cannot confirm that he leads answers NOT_LEADER_OR_FOLLOWER, and the client looks for
the leader. In Kafka only leader epochs spare a consumer this (KIP-320), which not all clients heed.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import ErrorCode
from headwater_broker.api.context import Services
from headwater_broker.api.fetch.read import PartitionRead


def is_doubtful(read: PartitionRead) -> bool:
    """Whether this refusal of a consumer is only true of the leader."""
    partition = read.partition
    return (
        read.code == ErrorCode.OFFSET_OUT_OF_RANGE
        and partition is not None
        and partition.is_leader
        and read.item.fetch_offset > partition.log.log_end_offset
    )


async def confirm(services: Services, reads: Sequence[PartitionRead]) -> None:
    """These doubtful reads stay as they are where this broker leads, else become retriable."""
    # The epochs of now: who leads anew by the time of the answer has not looked at its log again.
    asked = [
        (read, read.partition, read.partition.leader_epoch)
        for read in reads
        if read.partition is not None
    ]
    for read, partition, epoch in asked:
        if not await services.leads(partition.topic, partition.partition, epoch):
            read.fail(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition!r}: offset {read.item.fetch_offset} lies beyond the end, and this "
                f"broker cannot confirm that it leads with epoch {epoch}",
            )
