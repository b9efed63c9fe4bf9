"""The queue of a share source's driver, by `headwater.delivery`: with holds or with locks alone."""

from __future__ import annotations

from uuid import UUID

from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.blocking.share_holds import ShareHolds
from headwater.client.epoch_errors import EpochsUnsupportedError
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemEntropy
from headwater_spark.blocking_clients import record_client
from headwater_spark.source.batch_planner import Planner
from headwater_spark.source.held_queue import HeldQueue, HoldParts
from headwater_spark.source.share_offsets import ShareBatch
from headwater_spark.source.share_options import (
    AT_LEAST_ONCE,
    DELIVERY,
    EXACTLY_ONCE,
    ShareOptions,
)
from headwater_spark.source.share_polls import CLIENT_ID, share_consumer
from headwater_spark.source.share_queue import ShareQueue


def open_queue(options: ShareOptions, clock: Clock, planner: Planner) -> ShareQueue | HeldQueue:
    """Join the group. Raises KafkaError."""
    if options.delivery == AT_LEAST_ONCE:
        return ShareQueue(options, clock, planner.topic_ids)
    source = options.source
    name = source.client_id or CLIENT_ID
    client = record_client(source.bootstrap_servers, name, source.timeouts, source.security)

    def topics() -> dict[str, tuple[UUID, str, int]]:
        found = planner.topics()
        return {t.name: (t.uuid, t.topic_id, t.partitions) for t in found.values()}

    parts = HoldParts(
        consumer=share_consumer(options),
        holds=ShareHolds(client, options.group, clock, retry_timeout_s=source.timeouts.retry_s),
        ticket=lambda: _ticket(options),
        topics=topics,
        new_owner=lambda: str(SystemEntropy().uuid()),
        clock=clock,
        close=client.close,
    )
    return HeldQueue(options, parts)


def _ticket(options: ShareOptions) -> int:
    source = options.source
    with EpochClient(
        source.bootstrap_servers,
        client_id=source.client_id or CLIENT_ID,
        request_timeout_s=source.timeouts.request_s,
        retry_timeout_s=source.timeouts.retry_s,
        credentials=source.security.credentials(),
    ) as client:
        try:
            return client.allocate_ticket()
        except EpochsUnsupportedError as error:
            raise UsageError(
                f"option 'shareGroup' holds records until their batch is complete, which only "
                f"Headwater's brokers can: give option {DELIVERY!r} as {AT_LEAST_ONCE!r} ({error})"
            ) from error


def checked_delivery(batch: ShareBatch, options: ShareOptions) -> ShareBatch:
    """The batch. Raises UsageError for one of a query with another `headwater.delivery`."""
    holds = options.delivery == EXACTLY_ONCE
    if batch.number and bool(batch.owner) != holds:
        other = EXACTLY_ONCE if batch.owner else AT_LEAST_ONCE
        raise UsageError(
            f"the checkpoint is of a query with {DELIVERY}={other}, this one has "
            f"{options.delivery!r}: give the option as it was, or a new checkpoint"
        )
    return batch
