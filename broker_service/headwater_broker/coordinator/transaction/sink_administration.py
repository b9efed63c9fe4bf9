"""Operators' requests to a sink's coordinator: describe, delete, take over. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10006_describe_sinks import (
    DescribedEpoch,
    DescribedParticipant,
    DescribedSink,
)
from headwater.wire.epoch_values import KEEP_LAST_EPOCH, EpochState
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.transaction.epoch_coordinator import EpochCoordinator
from headwater_broker.coordinator.transaction.epoch_records import sink_record
from headwater_broker.coordinator.transaction.epoch_values import (
    NO_RUN,
    RETIRED_MAX,
    Sink,
    TakenOver,
)
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch
from headwater_broker.coordinator.transaction.transaction import Transaction

logger = logging.getLogger(__name__)


def described(epochs: EpochCoordinator, names: Iterable[str] | None) -> list[DescribedSink]:
    """The sinks of a shard by name; None: all of them. Names that are not known are left out."""
    table = epochs.table
    wanted = sorted(table.sinks) if names is None else names
    return [
        _described(epochs, table.sinks[name], table.of(name).values())
        for name in wanted
        if name in table.sinks
    ]


def _described(
    epochs: EpochCoordinator, sink: Sink, open_epochs: Iterable[OpenEpoch]
) -> DescribedSink:
    return DescribedSink(
        error_code=ErrorCode.NONE,
        sink=sink.name,
        owner=sink.owner,
        kind=sink.kind,
        run=sink.run,
        ticket=sink.ticket,
        last_epoch=sink.last_epoch,
        last_update_ms=sink.last_update_ms,
        retired_runs=len(sink.retired),
        slots=len(epochs.table.pool(sink.name).known),
        epochs=tuple(
            DescribedEpoch(
                epoch=epoch.key.epoch,
                run=sink.run if epoch.decision is None else epoch.decision.run,
                ticket=epoch.key.ticket,
                state=epoch.state.label,
                start_ms=epoch.start_ms,
                deadline_ms=epochs.deadline_ms(epoch) if epoch.state is EpochState.OPEN else -1,
                participants=tuple(
                    _participant(slot, epochs.participants[name], slot in epoch.written)
                    for slot, name in sorted(epoch.members.items())
                ),
            )
            for epoch in open_epochs
        ),
    )


def _participant(slot: int, known: Transaction, is_written: bool) -> DescribedParticipant:
    membership = known.membership
    assert membership is not None
    left = () if is_written else sorted(known.partitions)
    return DescribedParticipant(
        slot=slot,
        task=membership.task,
        attempt=membership.attempt,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        state=known.state.label,
        partitions=tuple(f"{topic}-{index}" for topic, index in left),
    )


def delete(epochs: EpochCoordinator, name: str, now: Now, token: Token) -> list[Decision]:
    """Forget a sink and its participants. Raises RESOURCE_NOT_FOUND; INVALID_REQUEST while an epoch
    is not complete."""
    table = epochs.table
    if name not in table.sinks:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"sink {name!r} is not known")
    if epoch := next(iter(table.of(name).values()), None):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"epoch {epoch.key.epoch} of sink {name!r} is {epoch.state.label}: stop its query and "
            "wait until the epoch is complete; `headwater sinks commit` or `abort` ends a "
            "prepared one",
        )
    logger.info("sink %r is deleted", name)
    decision = epochs.forgotten(name, now)
    decision.confirm(token, None)
    return decision.split()


def take_over(
    epochs: EpochCoordinator, name: str, owner: str, last_epoch: int, now: Now, token: Token
) -> Decision:
    """Give a sink to another query, or another checkpoint; replies the state before (TakenOver).

    The present run is retired, and its open epoch aborted. `last_epoch`: KEEP_LAST_EPOCH leaves it.
    Raises RESOURCE_NOT_FOUND; INVALID_REQUEST while an epoch is prepared.
    """
    sink = epochs.table.sinks.get(name)
    if sink is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"sink {name!r} is not known")
    for epoch in epochs.table.of(name).values():
        if epoch.state is EpochState.PREPARED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"epoch {epoch.key.epoch} of sink {name!r} is prepared: end it first with "
                "`headwater sinks commit` or `headwater sinks abort`",
            )
    retired = sink.retired if sink.run == NO_RUN else (*sink.retired, sink.run)[-RETIRED_MAX:]
    after = sink._replace(
        owner=owner,
        run=NO_RUN,
        last_epoch=sink.last_epoch if last_epoch == KEEP_LAST_EPOCH else last_epoch,
        retired=retired,
        last_update_ms=now.wall_ms,
    )
    logger.info(
        "sink %r is taken over: owner %r, last epoch %d; before: owner %r, last epoch %d",
        name, owner, after.last_epoch, sink.owner, sink.last_epoch,
    )  # fmt: skip
    decision = Decision()
    decision.records.append(sink_record(after))
    epochs.abort_overtaken(sink, sink.ticket + 1, decision, now)
    return decision.confirm(token, TakenOver(sink.owner, sink.last_epoch))
