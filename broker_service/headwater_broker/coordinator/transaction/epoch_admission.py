"""Whether a request about an epoch may go on, and what it makes of its sink. Pure functions.

The order of the checks is the protocol: the owner; the outcome that is decided already, before any
fence (a lost reply is asked for again, perhaps by a newer run); the fence; a rewound checkpoint; an
aborted attempt; a prepared epoch that waits for its decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.epoch_values import EpochState, EpochStatus, SinkKind
from headwater_broker.coordinator.transaction.epoch_values import (
    MARKERS_MAX,
    NO_RUN,
    RETIRED_MAX,
    SLOTS_MAX,
    EpochKey,
    EpochRequest,
    NamedParticipant,
    Sink,
)
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch
from headwater_broker.coordinator.transaction.transaction import Partition, Transaction

Epochs = Mapping[EpochKey, OpenEpoch]


def is_fenced(sink: Sink, request: EpochRequest) -> bool:
    """True for a run that a newer one has replaced."""
    if request.ticket > sink.ticket:
        return request.run in sink.retired
    return request.ticket < sink.ticket or request.run != sink.run


def is_newer_run(sink: Sink, request: EpochRequest) -> bool:
    """True for a run that the sink has not seen, and that none has replaced."""
    return sink.run != request.run and not is_fenced(sink, request)


def is_foreign(sink: Sink, request: EpochRequest) -> bool:
    """True when another query owns the sink."""
    return bool(sink.owner) and sink.owner != request.owner


def refusal(sink: Sink | None, epochs: Epochs, request: EpochRequest) -> EpochStatus | None:
    """The status that answers a request without changing anything; None: it may go on."""
    if sink is None:
        return None
    if is_foreign(sink, request):
        return EpochStatus.SINK_OWNED
    if request.epoch == sink.last_epoch:
        return EpochStatus.COMMITTED
    if is_fenced(sink, request):
        return EpochStatus.FENCED
    if request.epoch < sink.last_epoch:
        return EpochStatus.CHECKPOINT_MISMATCH
    own = epochs.get(request.key)
    if request.ticket <= sink.aborted_ticket or (own and own.state is EpochState.ABORTING):
        return EpochStatus.ABORTED
    if any(epoch.state is EpochState.PREPARED for epoch in epochs.values()):
        return EpochStatus.PREPARED
    return None


def unknown_sink(request: EpochRequest) -> KafkaError:
    """The answer to a request that takes a sink for granted which is not known.

    Never "aborted": its participants joined it, so the sink was deleted or forgotten since, and the
    epoch was committed or aborted by then.
    """
    return KafkaError(
        ErrorCode.RESOURCE_NOT_FOUND,
        f"sink {request.sink!r} is not known: it was deleted, or forgotten long after its last "
        f"epoch, and with it whether epoch {request.epoch} was committed; only the rows in its "
        "topics tell",
    )


def with_run(sink: Sink | None, request: EpochRequest, now_ms: int) -> Sink:
    """The sink once this request is admitted: a newer run retires the one before.

    The very same object when nothing changes.
    """
    if sink is None:
        return Sink(
            name=request.sink,
            owner=request.owner,
            kind=SinkKind(request.kind),
            run=request.run,
            ticket=request.ticket,
            last_update_ms=now_ms,
        )
    if request.ticket == sink.ticket and sink.owner == request.owner:
        return sink
    retired = sink.retired
    if sink.run not in (request.run, NO_RUN):
        retired = (*retired, sink.run)[-RETIRED_MAX:]
    return sink._replace(
        owner=request.owner,
        run=request.run,
        ticket=request.ticket,
        retired=retired,
        last_update_ms=now_ms,
    )


def overtaken(epochs: Epochs, ticket: int) -> list[OpenEpoch]:
    """Undecided epochs of earlier tickets: their driver has given them up, or is fenced."""
    return [
        epoch
        for key, epoch in epochs.items()
        if epoch.state is EpochState.OPEN and key.ticket < ticket
    ]


def prepared(epochs: Epochs, epoch: int) -> OpenEpoch | None:
    """The prepared attempt at an epoch; there is one at most."""
    for key, found in epochs.items():
        if key.epoch == epoch and found.state is EpochState.PREPARED:
            return found
    return None


def commit_fault(
    own: OpenEpoch | None,
    named: Sequence[NamedParticipant],
    participants: Mapping[str, Transaction],
) -> str:
    """Why an epoch cannot commit with these participants; empty: it can."""
    if len({participant.task for participant in named}) < len(named):
        return "a task is named twice"
    if len({participant.slot for participant in named}) < len(named):
        return "a slot is named twice"
    members = {} if own is None else own.members
    for asked in named:
        known = participants.get(members.get(asked.slot, ""))
        if known is None or known.membership is None:
            return f"slot {asked.slot} of task {asked.task} is not open in this epoch"
        if known.membership.task != asked.task:
            return f"slot {asked.slot} belongs to task {known.membership.task}, not {asked.task}"
        if known.identity != (asked.producer_id, asked.producer_epoch):
            return f"slot {asked.slot} of task {asked.task} has another producer"
    return ""


def check_capacity(
    own: OpenEpoch | None, known: Transaction | None, partitions: Collection[Partition]
) -> None:
    """Raises INVALID_REQUEST when a participant (`known`, or a new one) with these partitions would
    make its epoch too large."""
    if known is None and own is not None and len(own.slots) >= SLOTS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"epoch {own.key.epoch} of sink {own.sink!r} has {SLOTS_MAX} participants already: "
            "write it with fewer tasks (coalesce)",
        )
    held = {} if known is None else known.partitions
    markers = sum(partition not in held for partition in partitions)
    if markers + (0 if own is None else own.partitions) > MARKERS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the participants of an epoch may write to {MARKERS_MAX} partitions together: write "
            "it with fewer tasks (coalesce)",
        )


def check_prepared(own: OpenEpoch | None, request: EpochRequest) -> None:
    """Raises INVALID_REQUEST when another epoch is prepared than the one of a PrepareEpoch."""
    if own is None or own.state is not EpochState.PREPARED:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"another epoch of sink {request.sink!r} is prepared: commit or abort it first",
        )
