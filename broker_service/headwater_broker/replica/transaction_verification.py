"""Verifies that a producer's transaction includes a partition before the leader appends (KIP-890).

A batch of a transaction that is open on the partition, in the batch's epoch, is appended at once.
For any other one the leader asks the transaction coordinator, which either adds the partition to
the transaction (transaction version 2, Produce version 12) or only confirms that the producer has
added it (version 1). Without the question a late batch could open a transaction that no marker ever
ends, and hold read_committed consumers for ever.

`AppendService.append_guarded` keeps the batches of a producer in order while one of them waits, and
drops them when a marker or the end of the leadership comes first (in Kafka: VerificationStateEntry,
VerificationGuard, AddPartitionsToTxnManager).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ordered import OrderedSet
from headwater.records.batch import BatchHeader, read_header
from headwater_broker.log.producer_state_manager import ProducerEntry
from headwater_broker.replica.append_service import ProducerKey
from headwater_broker.replica.marker_writer import TopicPartition
from headwater_broker.replica.partition import Partition

ADDS_SINCE = 12
"""Since this Produce version the leader adds partitions, not the client (transaction version 2)."""
ABORTABLE_SINCE = 11
"""Older clients do not know TRANSACTION_ABORTABLE."""
LOWEST_SEQUENCES_MAX = 10_000
"""Producers without state whose lowest sequence is remembered; the oldest is forgotten first."""

_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors of the coordinator that end by themselves."""

logger = logging.getLogger(__name__)


class Producer(Protocol):
    """A producer id with its epoch."""

    @property
    def producer_id(self) -> int:
        """The producer id."""
        ...

    @property
    def producer_epoch(self) -> int:
        """The epoch of its transaction."""
        ...


class Enlistment(Protocol):
    """The transaction coordinators of the cluster, as the leaders of partitions need them."""

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[TopicPartition, UUID],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions, given with their topic ids, to the producer's transaction; with
        `verify_only` confirm that they are part of it. One code per partition.

        Ends within a time limit of its own. Raises KafkaError when no coordinator answers.
        """
        ...


class _Transaction(NamedTuple):
    """What one question is about."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool


class _Question:
    """The partitions of one transaction that one turn of the loop asks for."""

    __slots__ = ("answers", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, UUID] = {}
        self.answers: dict[TopicPartition, asyncio.Future[ErrorCode]] = {}


class TransactionVerifier:
    """Asks the coordinators, once per transaction and turn of the loop."""

    def __init__(self, enlistment: Enlistment) -> None:
        self.enlistment = enlistment
        self.lowest = LowestSequences()
        self.verifications_total = 0
        """Partitions that coordinators were asked about."""
        self.failures_total: Counter[str] = Counter()
        """Of these, the ones with an error, by its name."""
        self._questions: dict[_Transaction, _Question] = {}
        self._tasks = OrderedSet[asyncio.Task[None]]()

    def guard(self, transactional_id: str, produce_version: int) -> TransactionGuard:
        """The guard of one Produce request."""
        return TransactionGuard(self, transactional_id, produce_version)

    def ask(self, transaction: _Transaction, partition: Partition) -> asyncio.Future[ErrorCode]:
        """The coordinator's code for one partition."""
        loop = asyncio.get_running_loop()
        question = self._questions.get(transaction)
        if question is None:
            question = self._questions[transaction] = _Question()
            loop.call_soon(self._send, transaction)
        key = (partition.topic, partition.partition)
        answer = question.answers.get(key)
        if answer is None:
            question.partitions[key] = partition.topic_id
            answer = question.answers[key] = loop.create_future()
        return answer

    def _send(self, transaction: _Transaction) -> None:
        question = self._questions.pop(transaction)
        task = asyncio.get_running_loop().create_task(self._await(transaction, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await(self, transaction: _Transaction, question: _Question) -> None:
        codes: Mapping[TopicPartition, ErrorCode] = {}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            codes = await self.enlistment.enlist(
                transaction.transactional_id,
                ProducerOfTransaction(transaction.producer_id, transaction.producer_epoch),
                question.partitions,
                verify_only=transaction.verify_only,
            )
        except KafkaError as error:
            missing = error.code
        except Exception:
            logger.exception("transaction %r could not be verified", transaction.transactional_id)
        for key, answer in question.answers.items():
            code = codes.get(key, missing)
            self.verifications_total += 1
            if code is not ErrorCode.NONE:
                self.failures_total[code.name] += 1
            if not answer.done():
                answer.set_result(code)

    async def close(self) -> None:
        """End the questions that are under way; they get no answer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ProducerOfTransaction(NamedTuple):
    """Implements `Producer`."""

    producer_id: int
    producer_epoch: int


class LowestSequences:
    """The lowest sequence seen of producers that have no state on a partition yet.

    Of a producer without state the log takes any sequence. When its first batch is refused for a
    while and a later one is not, the later one must be refused too, or the first one never fits.
    """

    def __init__(self, limit: int = LOWEST_SEQUENCES_MAX) -> None:
        self._limit = limit
        self._sequences: dict[ProducerKey, int] = {}

    def note(self, key: ProducerKey, sequence: int) -> None:
        """A batch came."""
        known = self._sequences.get(key)
        if known is None or sequence < known:
            if known is None and len(self._sequences) >= self._limit:
                del self._sequences[next(iter(self._sequences))]
            self._sequences[key] = sequence

    def get(self, key: ProducerKey, sequence: int) -> int:
        """The lowest one so far; `sequence` when none is known."""
        return self._sequences.get(key, sequence)

    def forget(self, key: ProducerKey) -> None:
        """The log has the producer's state now."""
        self._sequences.pop(key, None)


class TransactionGuard:
    """Verifies the transactional batches of one Produce request. Implements `AppendGuard`."""

    __slots__ = ("_transactional_id", "_verifier", "_version")

    def __init__(
        self, verifier: TransactionVerifier, transactional_id: str, produce_version: int
    ) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._version = produce_version

    @property
    def _adds(self) -> bool:
        return self._version >= ADDS_SINCE

    def verify(self, partition: Partition, batch: memoryview) -> Awaitable[None] | None:
        """See `AppendGuard`. Refuses at once what no answer of the coordinator could allow."""
        header = read_header(batch)
        entry = self._arrived(partition, header)
        if is_open(entry, header.producer_epoch):
            return None
        if self._adds:
            check_first_sequence(partition, entry, header)
        transaction = _Transaction(
            self._transactional_id, header.producer_id, header.producer_epoch, not self._adds
        )
        return self._verified(partition, header, self._verifier.ask(transaction, partition))

    def queued(self, partition: Partition, batch: memoryview) -> None:
        """See `AppendGuard`."""
        self._arrived(partition, read_header(batch))

    def recheck(self, partition: Partition, batch: memoryview) -> None:
        """See `AppendGuard`. Raises OUT_OF_ORDER_SEQUENCE_NUMBER for a producer without state whose
        first batch is missing."""
        header = read_header(batch)
        entry = partition.log.producers.entries.get(header.producer_id)
        if self._adds:
            check_first_sequence(partition, entry, header)
        elif entry is None:
            sequence = header.base_sequence
            lowest = self._verifier.lowest.get(_key(partition, header), sequence)
            if sequence > lowest:
                raise _gap(partition, header, lowest)

    def _arrived(self, partition: Partition, header: BatchHeader) -> ProducerEntry | None:
        """The epoch counts before the state of the transaction (KAFKA-19690)."""
        entry = partition.log.producers.entries.get(header.producer_id)
        if entry is not None:
            check_epoch(partition, entry, header)
            self._verifier.lowest.forget(_key(partition, header))
        elif not self._adds:
            self._verifier.lowest.note(_key(partition, header), header.base_sequence)
        return entry

    async def _verified(
        self, partition: Partition, header: BatchHeader, answer: Awaitable[ErrorCode]
    ) -> None:
        code = await answer
        if code is ErrorCode.NONE:
            return
        entry = partition.log.producers.entries.get(header.producer_id)
        if entry is not None:
            check_epoch(partition, entry, header)
        raise KafkaError(
            produce_error(code, self._version),
            f"{partition.topic}-{partition.partition}: the coordinator of "
            f"{self._transactional_id!r} answers {code.name} for producer {header.producer_id}, "
            f"epoch {header.producer_epoch}",
        )


def is_open(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """True when the producer has a transaction open here, in this epoch."""
    return (
        entry is not None
        and entry.transaction_first_offset is not None
        and entry.epoch == producer_epoch
    )


def check_epoch(partition: Partition, entry: ProducerEntry, header: BatchHeader) -> None:
    """Raises INVALID_PRODUCER_EPOCH when a later epoch is known."""
    if header.producer_epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition.topic}-{partition.partition}: producer {header.producer_id} writes with "
            f"epoch {header.producer_epoch}, but epoch {entry.epoch} is known; its transaction has "
            "ended, or a newer instance took over",
        )


def check_first_sequence(
    partition: Partition, entry: ProducerEntry | None, header: BatchHeader
) -> None:
    """With an epoch per transaction the first batch has sequence 0. Raises
    OUT_OF_ORDER_SEQUENCE_NUMBER."""
    if entry is None and header.base_sequence > 0:
        raise _gap(partition, header, 0)


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """The coordinator's error as a Produce response of this version carries it, as in Kafka.

    NOT_ENOUGH_REPLICAS is what every client repeats without a look at its metadata.
    CONCURRENT_TRANSACTIONS, the usual answer while markers are on their way, lets newer clients
    come back sooner.
    """
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _key(partition: Partition, header: BatchHeader) -> ProducerKey:
    return ProducerKey(partition, header.producer_id, header.producer_epoch)


def _gap(partition: Partition, header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{partition.topic}-{partition.partition}: producer {header.producer_id} epoch "
        f"{header.producer_epoch} is not known here and sends sequence {header.base_sequence}, "
        f"expected {expected}",
    )
