"""Commits or aborts an epoch from the messages of its tasks, in Spark's driver.

The messages carry the epoch's identity, because the commit side of a streaming sink learns it
nowhere else. A commit that fails raises, and Spark stops the query: its next run writes the batch
again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.epoch_task import EpochTaskResult

logger = logging.getLogger(__name__)


class CommitMessagesError(HeadwaterError):
    """The commit messages do not describe one epoch: nothing is committed."""


def agreed_writer(
    results: Sequence[EpochTaskResult | None], batch_id: int | None = None
) -> EpochWriter:
    """The epoch that all messages name. Raises CommitMessagesError if they differ or one lacks."""
    writers = {result.writer for result in results if result is not None}
    if None in results or not results:
        raise CommitMessagesError(
            f"{results.count(None)} of {len(results)} tasks have no commit message: the epoch is"
            " not committed; run the query again"
        )
    if len(writers) > 1:
        raise CommitMessagesError(
            f"the tasks of one write name {len(writers)} epochs: {sorted(map(str, writers))};"
            " the epoch is not committed; run the query again"
        )
    (writer,) = writers
    if batch_id is not None and writer.epoch != batch_id:
        raise CommitMessagesError(
            f"the tasks wrote epoch {writer.epoch}, Spark commits batch {batch_id}: the epoch is"
            " not committed; run the query again"
        )
    return writer


def named_participants(results: Sequence[EpochTaskResult | None]) -> list[Participant]:
    """The participants of the attempts that Spark accepted, one per task at most."""
    found = [r.participant for r in results if r is not None and r.participant is not None]
    doubled = [task for task, count in Counter(p.task for p in found).items() if count > 1]
    if doubled:
        raise CommitMessagesError(
            f"task {doubled[0]} has more than one commit message: the epoch is not committed; run"
            " the query again"
        )
    return found


def commit_epoch(
    client: EpochClient, results: Sequence[EpochTaskResult | None], batch_id: int | None = None
) -> None:
    """Commit the epoch that the messages name. Raises only when it is not committed."""
    writer = agreed_writer(results, batch_id)
    is_complete = client.commit(writer, named_participants(results))
    if not is_complete:
        logger.info(
            "epoch %d of sink %s is committed; some partitions have no marker yet",
            writer.epoch, writer.sink,
        )  # fmt: skip


def abort_epoch(
    client: EpochClient, results: Sequence[EpochTaskResult | None], known: EpochWriter | None = None
) -> None:
    """Abort the epoch, if any message names it. Best effort: without it the deadline does.

    Spark calls it while tasks still run, and without any message, when a query is stopped; and also
    after a commit that failed, where the coordinator keeps a committed epoch.
    """
    writers = {result.writer for result in results if result is not None}
    if known is not None:
        writers.add(known)
    for writer in sorted(writers, key=lambda w: w.ticket):
        try:
            status = client.abort(writer)
        except (OSError, HeadwaterError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.RESOURCE_NOT_FOUND:
                logger.info("nothing of sink %s is open: %s", writer.sink, error)
                continue
            logger.warning(
                "epoch %d of sink %s is not aborted yet (%s): the brokers abort it at its deadline",
                writer.epoch, writer.sink, error,
            )  # fmt: skip
            continue
        if status == EpochStatus.COMMITTED:
            logger.info("epoch %d of sink %s stays: it is committed", writer.epoch, writer.sink)
