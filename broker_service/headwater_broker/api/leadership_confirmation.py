"""An out-of-order sequence is a final answer: the broker first makes sure that it still leads.

A broker that stood still (a stopped process, a frozen machine) may have been replaced without
knowing it yet: what a producer wrote to the successor looks to it like a gap. Clients take
OUT_OF_ORDER_SEQUENCE_NUMBER for lost records: they fail, or begin a new epoch and so write twice
what only this broker does not have. So the metadata store is asked, and a broker that no longer
leads, or cannot tell, answers NOT_LEADER_OR_FOLLOWER: the client looks for the leader and repeats.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headwater.errors import ErrorCode
from headwater_broker.api.context import Services
from headwater_broker.api.produce.responses import Row

_log = logging.getLogger(__name__)


def is_doubtful(row: Row) -> bool:
    """Whether this refusal is only true of the leader."""
    return row.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def confirm(services: Services, rows: Sequence[Row]) -> None:
    """Doubtful rows stay as they are where this broker leads, else they become retriable."""
    for row in rows:
        if not is_doubtful(row):
            continue
        if await services.leads(row.name, row.index, row.leader_epoch):
            _log.warning("%s", row.message)  # the client lost something, or is about to repeat it
        else:
            row.fail(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{row.name}-{row.index}: a gap in the producer's sequence, and this broker "
                f"cannot confirm that it leads with epoch {row.leader_epoch}",
            )
