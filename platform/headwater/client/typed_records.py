"""Typed records of a poll, and what becomes of those that cannot be read. Pure.

A consumer's rows stay pending until they are decoded and its dead letters are acknowledged: a
commit never passes a record that is neither returned nor kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from headwater.client.errors import RecordDeserializationError, SerializerUnavailableError
from headwater.client.serializers.values import Context, Serializer, Topic
from headwater.client.share_values import ShareRecord
from headwater.client.values import ConsumerRecord, Headers
from headwater.errors import UsageError

K = TypeVar("K")
V = TypeVar("V")
ERROR_PREFIX = "__connect.errors."
"""Of the headers that tell of a dead letter (KIP-298)."""
MESSAGE_CHARS_MAX = 2_000
"""Of an error in a header: some quote the whole value, and the letter would be too large."""


class TypedRecord(NamedTuple, Generic[K, V]):
    """One record as consumed, its key and value decoded. `timestamp` in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: Headers
    delivery_count: int | None = None
    """How often a share group has delivered it, from 1; None for other consumers."""


@dataclass(frozen=True, slots=True)
class Raise:
    """An undecodable record ends the poll with RecordDeserializationError."""


@dataclass(frozen=True, slots=True)
class Skip:
    """An undecodable record is left out."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An undecodable record goes to this topic, as it is, with headers that say where it was and
    why; the poll goes on once it is acknowledged."""

    topic: str


Decision = Raise | Skip | DeadLetter
OnUndecodable = Decision | Callable[[ConsumerRecord, Exception], Decision]
"""What becomes of a record that cannot be read: for all, or by record and error."""


class Letter(NamedTuple):
    """A record for a dead-letter topic."""

    topic: str
    row: ConsumerRecord
    headers: Headers


class SentLetters:
    """The dead letters of the last turn. An iteration that is left early leaves its rows pending:
    they are decoded again, and their letters must not be sent twice."""

    def __init__(self) -> None:
        self._rows: dict[int, ConsumerRecord] = {}
        """By identity, as pending rows keep it."""

    def new(self, letters: Iterable[Letter]) -> list[Letter]:
        """Those that were not sent yet."""
        return [letter for letter in letters if id(letter.row) not in self._rows]

    def sent(self, letters: Iterable[Letter]) -> None:
        """All letters of a turn are acknowledged."""
        self._rows = {id(letter.row): letter.row for letter in letters}


class Turn(NamedTuple, Generic[K, V]):
    """What came of the rows of one poll, up to the first that ends it."""

    records: list[TypedRecord[K, V]]
    ends: list[int]
    """Of each record: how many rows are dealt with once it is returned."""
    letters: list[Letter]
    taken: int
    """Rows that are dealt with once the letters are acknowledged."""
    error: RecordDeserializationError | None


class TypedDecoding(Generic[K, V]):
    """Decodes the rows of typed topics."""

    def __init__(self, topics: Iterable[Topic[K, V]], on_undecodable: OnUndecodable) -> None:
        """Raises UsageError."""
        self.topics = list(topics)
        self._by_name = {topic.name: topic for topic in self.topics}
        self._decide = on_undecodable
        if not self.topics:
            raise UsageError("typed() needs a Topic at least")
        if not isinstance(on_undecodable, Raise | Skip | DeadLetter) and not callable(
            on_undecodable
        ):
            raise UsageError(
                f"on_undecodable is {on_undecodable!r}: give Raise(), Skip(), DeadLetter(topic), "
                "or a function of record and error that returns one of them"
            )

    @property
    def may_block(self) -> bool:
        """True when decoding may ask another machine."""
        return any(topic.may_block for topic in self.topics)

    def decode(self, rows: Sequence[ConsumerRecord]) -> Turn[K, V]:
        """The typed records, in order. Raises what the caller's own function raises."""
        records: list[TypedRecord[K, V]] = []
        ends: list[int] = []
        letters: list[Letter] = []
        for index, row in enumerate(rows):
            topic = self._by_name.get(row.topic)
            if topic is None:
                raise UsageError(
                    f"the consumer reads {row.topic}, which typed() does not name: it names "
                    f"{', '.join(self._by_name)}"
                )
            try:
                records.append(_typed(topic, row))
                ends.append(index + 1)
            except RecordDeserializationError as error:
                decision = self._decision(row, error)
                if isinstance(decision, Raise):
                    return Turn(records, ends, letters, index, error)
                if isinstance(decision, DeadLetter):
                    letters.append(Letter(decision.topic, row, _letter_headers(row, error)))
        return Turn(records, ends, letters, len(rows), None)

    def _decision(self, row: ConsumerRecord, error: RecordDeserializationError) -> Decision:
        if not callable(self._decide):
            return self._decide
        cause = error.__cause__
        decision = self._decide(row, cause if isinstance(cause, Exception) else error)
        if not isinstance(decision, Raise | Skip | DeadLetter):
            raise UsageError(
                f"on_undecodable returned {decision!r}: return Raise(), Skip() or DeadLetter(topic)"
            )
        return decision


def _typed(topic: Topic[K, V], row: ConsumerRecord) -> TypedRecord[K, V]:
    key: K = _loaded(topic.key, row.key, Context(row.topic, "key", row.headers), row)
    value: V = _loaded(topic.value, row.value, Context(row.topic, "value", row.headers), row)
    count = row.delivery_count if isinstance(row, ShareRecord) else None
    return TypedRecord(
        row.topic, row.partition, row.offset, row.timestamp, key, value, row.headers, count
    )


def _loaded(
    serializer: Serializer[Any], data: bytes | None, at: Context, row: ConsumerRecord
) -> Any:
    try:
        return serializer.loads(data, at)
    except SerializerUnavailableError:
        raise
    except Exception as error:
        raise RecordDeserializationError(
            row.topic, row.partition, row.offset, f"its {at.field} cannot be read: {error}"
        ) from error


def _letter_headers(row: ConsumerRecord, error: RecordDeserializationError) -> Headers:
    cause = error.__cause__ or error
    headers = {
        "topic": row.topic,
        "partition": str(row.partition),
        "offset": str(row.offset),
        "exception.class.name": type(cause).__name__,
        "exception.message": str(error)[:MESSAGE_CHARS_MAX],
    }
    told = ((ERROR_PREFIX + n, t.encode(errors="backslashreplace")) for n, t in headers.items())
    return [*row.headers, *told]
