"""`Consumer.typed`: the records of typed topics, decoded; dead letters before the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from headwater.client.consumer_engine import ConsumerEngine
from headwater.client.errors import ClosedError
from headwater.client.producer import Producer
from headwater.client.typed_records import Letter, SentLetters, Turn, TypedDecoding, TypedRecord
from headwater.client.values import ConsumerRecord, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
Poll = Callable[[float, int | None], dict[TopicPartition, list[ConsumerRecord]]]
ITERATE_POLL_MS = 500.0


class DeadLetters:
    """Sends dead letters with a producer of its own, or with a given one."""

    def __init__(self, make: Callable[[], Producer], given: Producer | None) -> None:
        self._make = make
        self._producer = given
        self._is_own = given is None

    def deliver(self, letters: list[Letter]) -> None:
        """Send them and wait until all are acknowledged. Raises the first error."""
        if self._producer is None:
            self._producer = self._make()
        send = self._producer.send
        for future in [send(to, row.value, row.key, headers) for to, row, headers in letters]:
            future.result()

    def close(self) -> None:
        """Close the own producer."""
        if self._is_own and self._producer is not None:
            self._producer.close()


class TypedReader(Generic[K, V]):
    """Reads typed records through a consumer, which goes on to commit, seek and pause."""

    def __init__(
        self,
        engine: ConsumerEngine,
        poll: Poll,
        decoding: TypedDecoding[K, V],
        letters: DeadLetters,
    ) -> None:
        self._engine = engine
        self._state = engine.state
        self._poll = poll
        self._decoding = decoding
        self._letters = letters
        self._sent = SentLetters()

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[TypedRecord[K, V]]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`, and when those that came were skipped.

        Raises RecordDeserializationError where `on_undecodable` says so, once the records before
        are returned; SerializerUnavailableError; and what `Consumer.poll` raises.
        """
        rows, turn = self._turn(timeout_ms, max_records)
        self._state.drop(rows[: turn.taken])
        if turn.error is not None and not turn.records:
            raise turn.error
        return turn.records

    def __iter__(self) -> Iterator[TypedRecord[K, V]]:
        """Records without end, or until none came for `consumer_timeout_ms`, or until the consumer
        is closed. What a `break` leaves behind is neither lost nor committed."""
        clock, guard = self._engine.clock, self._engine.guard
        timeout_ms = self._engine.options.consumer_timeout_ms
        last = clock.monotonic()
        while not guard.is_closed:
            try:
                rows, turn = self._turn(
                    ITERATE_POLL_MS if timeout_ms is None else min(timeout_ms, ITERATE_POLL_MS),
                    None,
                )
            except ClosedError:
                return
            for at, (record, end) in enumerate(zip(turn.records, turn.ends, strict=True)):
                before = turn.ends[at - 1] if at else 0
                if guard.is_closed or not self._state.drop(rows[before:end]):
                    break  # a seek or a rebalance: the rows are not this consumer's next ones
                yield record
                last = clock.monotonic()
            else:
                rest = rows[turn.ends[-1] if turn.ends else 0 : turn.taken]
                if self._state.drop(rest) and turn.error is not None:
                    raise turn.error
            waited_ms = (clock.monotonic() - last) * 1000
            if timeout_ms is not None and not rows and waited_ms >= timeout_ms:
                return

    def _turn(
        self, timeout_ms: float, max_records: int | None
    ) -> tuple[list[ConsumerRecord], Turn[K, V]]:
        """The next rows, still pending, and what they are; dead letters are acknowledged."""
        limit = self._engine.options.max_poll_records if max_records is None else max_records
        if not self._state.pending:
            for rows in self._poll(timeout_ms, max_records).values():
                self._state.pending.extend(rows)
        first = self._state.peek(limit)
        turn = self._decoding.decode(first)
        if letters := self._sent.new(turn.letters):
            self._letters.deliver(letters)
        self._sent.sent(turn.letters)
        return first, turn
