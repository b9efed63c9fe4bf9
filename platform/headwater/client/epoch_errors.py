"""The errors of epoch transactions (docs/epochs.md): each one says the remedy.

`EpochClient` raises them, in Spark's tasks and driver; they can be pickled on their way between.
"""

from __future__ import annotations

from headwater.errors import HeadwaterError
from headwater.wire.epoch_values import EpochStatus


class EpochError(HeadwaterError):
    """A call about an epoch of a sink failed."""

    explanation = "the coordinator gave an answer that this client does not know"
    """With {sink}, {owner} and {last}, the last committed epoch."""

    def __init__(self, sink: str, epoch: int, text: str, *, last_epoch: int = -1) -> None:
        super().__init__(text)
        self.sink = sink
        self.epoch = epoch
        self.last_epoch = last_epoch
        """The last committed epoch of the sink, as far as the coordinator said it; -1: none."""

    def __reduce__(self) -> tuple[object, ...]:
        state = {"last_epoch": self.last_epoch}
        return type(self), (self.sink, self.epoch, str(self)), state


class EpochAbortedError(EpochError):
    """The epoch is aborted, and nobody reads its rows: write the epoch again."""

    explanation = (
        "it is aborted, and nobody reads its rows. Write the epoch again: Spark does so when the "
        "query is started again"
    )


class SinkFencedError(EpochError):
    """A newer run writes the sink: this one stops."""

    explanation = (
        "a newer run writes this sink, so this run stops and its rows are not read. If both are "
        "meant to run, give each one a sink of its own"
    )


class CheckpointMismatchError(EpochError):
    """The sink has committed a later epoch: the query's checkpoint was rewound or copied."""

    explanation = (
        "the sink's last committed epoch is {last}, so the query's checkpoint was rewound or "
        "copied. Start the query with the checkpoint that wrote epoch {last}; or, where the rows "
        "are to be written once more, let this checkpoint take the sink over: headwater sinks "
        "takeover {sink} --owner {owner} --last-epoch {before} --execute"
    )


class SinkOwnedError(EpochError):
    """Another query owns the sink."""

    explanation = (
        "another query owns the sink, and this one is {owner}. Use another sink id, or hand the "
        "sink over: headwater sinks takeover {sink} --owner {owner} --last-epoch {before} "
        "--execute"
    )


class EpochPreparedError(EpochError):
    """A prepared epoch waits for its decision, and holds the sink until then."""

    explanation = (
        "a prepared epoch of the sink waits for its decision. Start the query that prepared it "
        "again, or decide it: headwater sinks commit {sink} N --execute, or headwater sinks abort "
        "{sink} N --execute (headwater sinks show {sink} shows N)"
    )


class EpochOutcomeUnknownError(EpochError):
    """The brokers did not say, in time or at all, whether the epoch is committed."""

    explanation = (
        "it may be committed or not, the brokers did not say. Nothing is lost, and nothing has to "
        "be undone: once they answer, start the query again with the same checkpoint. It asks for "
        "the outcome first, and writes nothing that is committed. headwater.retry.timeout.ms in "
        "the options sits out longer outages; headwater sinks show {sink} shows the last committed "
        "epoch"
    )


class WriteOutcomeUnknownError(EpochOutcomeUnknownError):
    """The brokers refused to say whether a batch write, which no query repeats, is committed."""

    explanation = (
        "the write may be committed or not, the brokers did not say, and writing its rows again "
        "could double them. headwater sinks show {sink} tells: a last committed epoch is this "
        "write. Where the sink is not known any more, look for the rows in the topics"
    )


class EpochsUnsupportedError(HeadwaterError):
    """The brokers have no epoch transactions: Apache Kafka, or an older Headwater."""


_BY_STATUS: dict[EpochStatus, type[EpochError]] = {
    EpochStatus.ABORTED: EpochAbortedError,
    EpochStatus.FENCED: SinkFencedError,
    EpochStatus.CHECKPOINT_MISMATCH: CheckpointMismatchError,
    EpochStatus.SINK_OWNED: SinkOwnedError,
    EpochStatus.PREPARED: EpochPreparedError,
}


def refusal(
    status: EpochStatus, *, sink: str, epoch: int, owner: str, last_epoch: int, detail: str
) -> EpochError:
    """The error of a status that refuses a request."""
    kind = _BY_STATUS.get(status, EpochError)
    detail = detail or (f"status {status.name}" if kind is EpochError else "")
    return epoch_error(
        kind, sink=sink, epoch=epoch, owner=owner, last_epoch=last_epoch, detail=detail
    )


def epoch_error(
    kind: type[EpochError], *, sink: str, epoch: int, owner: str, last_epoch: int, detail: str
) -> EpochError:
    """An error of this kind with its explanation."""
    explanation = kind.explanation.format(
        sink=sink,
        owner=owner or "OWNER",
        last=last_epoch if last_epoch >= 0 else "none",
        before=epoch - 1,
    )
    shown = f" ({detail})" if detail else ""
    return kind(
        sink, epoch, f"epoch {epoch} of sink {sink!r}: {explanation}{shown}", last_epoch=last_epoch
    )
