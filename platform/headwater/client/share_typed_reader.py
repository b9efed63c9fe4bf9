"""`ShareConsumer.typed`: the records of typed topics, decoded; what cannot be read is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from headwater.client.core.share_consumer import ShareConsumerState
from headwater.client.errors import ClosedError, IllegalStateError
from headwater.client.share_engine import ShareEngine
from headwater.client.share_values import AcknowledgeType, ShareRecord
from headwater.client.steps import ThreadSteps
from headwater.client.typed_reader import DeadLetters
from headwater.client.typed_records import Turn, TypedDecoding, TypedRecord
from headwater.client.values import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
ITERATE_POLL_MS = 500.0


class ShareTypedReader(Generic[K, V]):
    """Takes typed records through a share consumer, which goes on to acknowledge and commit."""

    def __init__(
        self,
        engine: ShareEngine,
        steps: ThreadSteps,
        decoding: TypedDecoding[K, V],
        letters: DeadLetters,
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._decoding = decoding
        self._letters = letters

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[TypedRecord[K, V]]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`, and when those that came were skipped.

        Raises RecordDeserializationError where `on_undecodable` says so, once the records before
        are returned; SerializerUnavailableError; and what `ShareConsumer.poll` raises.
        """
        with self._engine.guard:
            return self._poll(timeout_ms, self._engine.limit(max_records), flush=True)

    def _poll(self, timeout_ms: float, limit: int, *, flush: bool) -> list[TypedRecord[K, V]]:
        engine = self._engine
        self._steps.run(engine.wait(timeout_ms, limit, flush=flush))
        with engine.changes.condition:
            rows = engine.state.peek(limit, engine.clock.monotonic())
        turn = self._decoding.decode(rows)
        if turn.letters:
            self._letters.deliver(turn.letters)
        with engine.changes.condition:
            return settled(engine.state, rows, turn)

    def __iter__(self) -> Iterator[TypedRecord[K, V]]:
        """Records without end, or until none came for `consumer_timeout_ms`, or until the consumer
        is closed; see `ShareConsumer.__iter__`."""
        return one_by_one(self._engine, lambda wait_ms: self._poll(wait_ms, 1, flush=False))


def one_by_one(engine: ShareEngine, take: Callable[[float], Sequence[T]]) -> Iterator[T]:
    """What `take` finds within so many ms, one at a time; until none came for
    `consumer_timeout_ms`, or until the consumer is closed."""
    clock, guard, timeout_ms = engine.clock, engine.guard, engine.options.consumer_timeout_ms
    wait_ms = ITERATE_POLL_MS if timeout_ms is None else min(timeout_ms, ITERATE_POLL_MS)
    last = clock.monotonic()
    while not guard.is_closed:
        try:
            with guard:
                found = take(wait_ms)
        except ClosedError:  # in this moment, by another thread
            return
        if found:
            yield found[0]
            last = clock.monotonic()
        elif timeout_ms is not None and (clock.monotonic() - last) * 1000 >= timeout_ms:
            return


def settled(
    state: ShareConsumerState, rows: list[ShareRecord], turn: Turn[K, V]
) -> list[TypedRecord[K, V]]:
    """The rows of a turn are held, and those without a record settled: skipped ones are rejected,
    an undecodable one is released. Raises its error if there is nothing to return."""
    is_raised = turn.error is not None and not turn.records
    if not state.hold(rows[: turn.taken + is_raised]):
        raise IllegalStateError("another caller took records from this share consumer meanwhile")
    returned = {end - 1 for end in turn.ends}
    for index, row in enumerate(rows[: turn.taken]):
        if index not in returned:
            _settle(state, row, AcknowledgeType.REJECT)
    if turn.error is not None and is_raised:
        _settle(state, rows[turn.taken], AcknowledgeType.RELEASE)
        raise turn.error
    return turn.records


def _settle(state: ShareConsumerState, row: ShareRecord, kind: AcknowledgeType) -> None:
    state.acknowledge(TopicPartition(row.topic, row.partition), row.offset, kind)
