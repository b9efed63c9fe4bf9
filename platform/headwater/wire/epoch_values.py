"""Epoch transactions on the wire and in records: statuses, states, kinds of sinks."""

from __future__ import annotations

from enum import IntEnum

KEEP_LAST_EPOCH = -2
"""TakeOverSink leaves the last committed epoch as it is when the request is decided."""


class EpochStatus(IntEnum):
    """What a sink's coordinator answers about an epoch, beside Kafka's errors."""

    OPEN = 0
    """Joined, or the heartbeat counts: go on."""
    COMMITTED = 1
    """The epoch is committed: whoever asks has nothing left to write."""
    PREPARED = 2
    """The epoch is prepared: it waits for CommitEpoch or AbortEpoch, without a timeout."""
    ABORTED = 3
    """The epoch, as this run wrote it, is aborted: write it again."""
    FENCED = 4
    """A newer run writes this sink: stop."""
    CHECKPOINT_MISMATCH = 5
    """The epoch is older than the sink's last one: the query's checkpoint was rewound."""
    SINK_OWNED = 6
    """Another query owns the sink."""
    BUSY = 7
    """Earlier epochs are still being completed: ask again in a moment."""


class EpochState(IntEnum):
    """The states of an epoch at its coordinator, as its decision record stores them."""

    OPEN = 0
    """Tasks join and write. No record: an epoch without a decision is aborted."""
    PREPARED = 1
    COMMITTING = 2
    """Committed; markers are on their way."""
    ABORTING = 3
    """Aborted; markers are on their way."""

    @property
    def label(self) -> str:
        """As operators see it."""
        return self.name.title()


class SinkKind(IntEnum):
    """How long a sink's state is kept."""

    QUERY = 0
    """Of a streaming query: until it is deleted."""
    BATCH = 1
    """Of one batch write: it is forgotten some days after its only epoch."""
