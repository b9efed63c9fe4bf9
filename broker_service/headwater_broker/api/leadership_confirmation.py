"""Errors that only the leader may answer: the metadata store confirms that this broker leads.

A broker that was paused (a stopped process, a frozen machine, a lost network) may be a deposed
leader that does not know it yet. Its log lacks the records of its successor, so two of its errors
may be wrong, and clients treat both as fatal:

- OUT_OF_ORDER_SEQUENCE_NUMBER: to a deposed leader the batches that a producer sent to the
  successor look like a gap. The producer takes them for lost: it fails, or bumps its epoch and
  writes them twice.
- OFFSET_OUT_OF_RANGE beyond the end: a consumer that continues from an offset committed by another
  member of its group takes the records for lost. It resets to the earliest or latest offset, and so
  reads all records again or skips some. In Kafka only leader epochs prevent this (KIP-320), which
  not all clients send.

A broker that does not lead, or cannot confirm it, answers NOT_LEADER_OR_FOLLOWER instead: the
client looks for the leader and repeats its request there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from headwater.errors import ErrorCode
from headwater_broker.api.context import Services

_log = logging.getLogger(__name__)


class Failable(Protocol):
    """One partition of a response."""

    def fail(self, code: ErrorCode, message: str) -> None:
        """Replace the error of the partition."""
        ...


class UnconfirmedError(NamedTuple):
    """An error of one partition that is true only if this broker leads it with `leader_epoch`."""

    answer: Failable
    topic: str
    partition: int
    leader_epoch: int
    cause: str
    warning: str = ""
    """Logged when the error stands."""


async def confirm(services: Services, errors: Iterable[UnconfirmedError]) -> None:
    """Leave the errors as they are where this broker leads; make the others retriable."""
    for answer, topic, partition, epoch, cause, warning in errors:
        if not await services.leads(topic, partition, epoch):
            answer.fail(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{topic}-{partition}: {cause}, and this broker cannot confirm that it leads with "
                f"epoch {epoch}",
            )
        elif warning:
            _log.warning("%s", warning)
