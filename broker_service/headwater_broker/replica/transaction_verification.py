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
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ordered import OrderedSet
from headwater.records.batch import AT_PRODUCER_ID
from headwater_broker.log.producer_state_manager import NO_EPOCH, ProducerEntry
from headwater_broker.replica.append_service import Verdict
from headwater_broker.replica.lowest_sequences import LowestSequences
from headwater_broker.replica.marker_writer import TopicPartition
from headwater_broker.replica.partition import Partition
from headwater_broker.runtime.first_step import Finished, first_step

ADDS_SINCE = 12
"""Since this Produce version the leader adds partitions, not the client (transaction version 2)."""
ABORTABLE_SINCE = 11
"""Older clients do not know TRANSACTION_ABORTABLE."""

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

_unpack_producer = struct.Struct(">qhi").unpack_from
"""Producer id, epoch and base sequence of a batch."""

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
        coordinator_epoch: int = NO_EPOCH,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions, given with their topic ids, to the producer's transaction; with
        `verify_only` confirm that they are part of it. One code per partition.

        `coordinator_epoch`: the latest one in the producer's markers on these partitions. A
        coordinator of an older epoch does not know what its successor has ended, and must not
        confirm. Ends within a time limit of its own. Raises KafkaError when no coordinator answers.
        """
        ...


class _Transaction(NamedTuple):
    """The subject of one question."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    produce_version: int


class _Answer:
    """The answer for one partition. Implements `Verdict`.

    A future would call back a turn of the loop later: with ten partitions that are ten handles.
    """

    __slots__ = ("_callbacks", "_error")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Verdict], object]] = []
        self._error: KafkaError | None = None

    def add_done_callback(self, callback: Callable[[Verdict], object], /) -> None:
        """See `Verdict`. The question is open: there is no answer yet."""
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """See `Verdict`. A question that is given up calls nobody back."""
        return False

    def exception(self) -> KafkaError | None:
        """See `Verdict`."""
        return self._error

    def give(self, error: KafkaError | None) -> None:
        """Call back; None: the partition is part of the transaction."""
        self._error = error
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:  # the other partitions of the question get their answers
                logger.exception("a verified batch could not be appended")


class _Question:
    """The partitions of one transaction that one turn of the loop asks for."""

    __slots__ = ("answers", "coordinator_epoch", "failed", "handle", "of_request", "partitions")

    def __init__(self, handle: asyncio.Handle | None) -> None:
        self.handle = handle
        """Puts the question at the end of the turn; None: it is put."""
        self.failed = 0
        """Partitions that the answer does not allow."""
        self.partitions: dict[TopicPartition, UUID] = {}
        self.answers: dict[TopicPartition, tuple[Partition, _Answer | None]] = {}
        """None: nobody has asked for this partition by itself."""
        self.of_request: Mapping[TopicPartition, Partition] = {}
        """The partitions of `TransactionVerifier.allows_now`, while `answers` has none of them."""
        self.coordinator_epoch = NO_EPOCH
        """The latest one that a marker of the producer has shown."""


class TransactionVerifier:
    """Asks the coordinators, once per transaction and turn of the loop."""

    def __init__(self, enlistment: Enlistment, lowest: LowestSequences) -> None:
        """`lowest`: of the append service, which forgets what it has appended."""
        self.enlistment = enlistment
        self.lowest = lowest
        self.verifications_total = 0
        """Partitions that coordinators were asked about."""
        self.failures_total: Counter[str] = Counter()
        """Of these, the ones with an error, by its name."""
        self._questions: dict[_Transaction, _Question] = {}
        self._tasks = OrderedSet[asyncio.Future[None]]()

    def guard(self, transactional_id: str, produce_version: int) -> TransactionGuard:
        """The guard of one Produce request."""
        return TransactionGuard(self, transactional_id, produce_version)

    def ask(
        self, transaction: _Transaction, partition: Partition, coordinator_epoch: int
    ) -> Verdict:
        """The answer for one partition: a result, or the KafkaError of a Produce response."""
        question = self._questions.get(transaction)
        if question is None:
            handle = asyncio.get_running_loop().call_soon(self.put, transaction)
            question = self._questions[transaction] = _Question(handle)
        key = (partition.topic, partition.partition)
        known = question.answers.get(key)
        if known is not None and known[1] is not None:
            return known[1]
        if coordinator_epoch > question.coordinator_epoch:
            question.coordinator_epoch = coordinator_epoch
        question.partitions[key] = partition.topic_id
        answer = _Answer()
        question.answers[key] = (partition, answer)
        return answer

    def put(self, transaction: _Transaction) -> None:
        """Ask the coordinator, if there is a question: the Produce request, or the turn of the
        loop, that began it is over."""
        question = self._questions.pop(transaction, None)
        if question is None:
            return
        if question.handle is not None:
            question.handle.cancel()
            self._begin(transaction, question)

    def allows_now(
        self,
        transaction: _Transaction,
        partitions: Mapping[TopicPartition, Partition],
        coordinator_epoch: int,
    ) -> bool:
        """Ask for all partitions of a request. True: the coordinator, on this broker, has allowed
        them. False: `ask` of each partition tells; an answer that is awaited is not asked for again
        until `put`."""
        if transaction in self._questions:
            return False
        question = _Question(None)
        question.coordinator_epoch = coordinator_epoch
        question.partitions = {key: found.topic_id for key, found in partitions.items()}
        question.of_request = partitions
        if self._begin(transaction, question):
            return not question.failed
        question.of_request = {}
        question.answers = {key: (found, _Answer()) for key, found in partitions.items()}
        self._questions[transaction] = question
        return False

    def _begin(self, transaction: _Transaction, question: _Question) -> bool:
        """Ask; True when the answer is there."""
        begun = first_step(self._ask_coordinator(transaction, question))
        if isinstance(begun, Finished):
            return True
        task = asyncio.ensure_future(begun)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return False

    async def _ask_coordinator(self, transaction: _Transaction, question: _Question) -> None:
        codes: Mapping[TopicPartition, ErrorCode] = {}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            codes = await self.enlistment.enlist(
                transaction.transactional_id,
                ProducerOfTransaction(transaction.producer_id, transaction.producer_epoch),
                question.partitions,
                verify_only=transaction.produce_version < ADDS_SINCE,
                coordinator_epoch=question.coordinator_epoch,
            )
        except KafkaError as error:
            missing = error.code
        except Exception:
            logger.exception("transaction %r could not be verified", transaction.transactional_id)
        self.verifications_total += len(question.partitions)
        of_request = question.of_request
        if of_request and len(codes) == len(of_request) and not any(codes.values()):
            return  # as most often: all are allowed, and nobody waits for that
        answers: dict[TopicPartition, tuple[Partition, _Answer | None]] = question.answers or {
            key: (found, None) for key, found in of_request.items()
        }
        for key, (partition, answer) in answers.items():
            code = codes.get(key, missing)
            refusal = None
            if code is not ErrorCode.NONE:
                question.failed += 1
                self.failures_total[code.name] += 1
                refusal = _error(transaction, partition, code)
            if answer is not None:
                answer.give(refusal)

    async def close(self) -> None:
        """End the questions that are under way; they get no answer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _error(transaction: _Transaction, partition: Partition, code: ErrorCode) -> KafkaError:
    """The error for batches that the coordinator does not allow. A later epoch counts more."""
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    entry = partition.log.producers.entries.get(producer_id)
    if entry is not None and epoch < entry.epoch:
        return _fenced(partition, entry, epoch)
    return KafkaError(
        produce_error(code, transaction.produce_version),
        f"{partition.topic}-{partition.partition}: the coordinator of "
        f"{transaction.transactional_id!r} answers {code.name} for producer {producer_id}, "
        f"epoch {epoch}",
    )


class ProducerOfTransaction(NamedTuple):
    """Implements `Producer`."""

    producer_id: int
    producer_epoch: int


class TransactionGuard:
    """Verifies the transactional batches of one Produce request. Implements `AppendGuard`."""

    __slots__ = ("_asked", "_transactional_id", "_verifier", "_version")

    def __init__(
        self, verifier: TransactionVerifier, transactional_id: str, produce_version: int
    ) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._version = produce_version
        self._asked: _Transaction | None = None

    @property
    def _adds(self) -> bool:
        return self._version >= ADDS_SINCE

    def put(self) -> None:
        """Put the question for all partitions that were asked about. A coordinator on this broker
        whose log has no followers has answered when this returns."""
        if self._asked is not None:
            self._verifier.put(self._asked)

    def allows_now(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Mapping[TopicPartition, Partition],
        coordinator_epoch: int,
    ) -> bool:
        """True when the coordinator, on this broker, has added all these partitions by now: their
        batches may be appended before anything else happens. Else `verify` decides."""
        self._asked = _Transaction(
            self._transactional_id, producer_id, producer_epoch, self._version
        )
        return self._verifier.allows_now(self._asked, partitions, coordinator_epoch)

    def verify(self, partition: Partition, batch: memoryview) -> Verdict | None:
        """See `AppendGuard`. Rejects at once what no answer of the coordinator could allow."""
        producer_id, producer_epoch, sequence = _unpack_producer(batch, AT_PRODUCER_ID)
        entry = self._arrived(partition, producer_id, producer_epoch, sequence)
        if is_open(entry, producer_epoch):
            return None
        if entry is None and sequence > 0 and self._adds:
            raise _gap(partition, producer_id, producer_epoch, sequence, 0)
        transaction = self._asked
        if transaction is None or transaction[1:3] != (producer_id, producer_epoch):
            self.put()
            transaction = self._asked = _Transaction(
                self._transactional_id, producer_id, producer_epoch, self._version
            )
        coordinator_epoch = NO_EPOCH if entry is None else entry.coordinator_epoch
        return self._verifier.ask(transaction, partition, coordinator_epoch)

    def queued(self, partition: Partition, batch: memoryview) -> None:
        """See `AppendGuard`."""
        self._arrived(partition, *_unpack_producer(batch, AT_PRODUCER_ID))

    def recheck(self, partition: Partition, batch: memoryview) -> None:
        """See `AppendGuard`. Raises OUT_OF_ORDER_SEQUENCE_NUMBER for a producer without state whose
        first batch is missing: with an epoch per transaction that has sequence 0, else the lowest
        sequence seen."""
        producer_id, producer_epoch, sequence = _unpack_producer(batch, AT_PRODUCER_ID)
        if producer_id in partition.log.producers.entries:
            return
        first = 0
        if not self._adds:
            lowest = self._verifier.lowest
            first = lowest.get(partition, producer_id, producer_epoch, sequence)
        if sequence > first:
            raise _gap(partition, producer_id, producer_epoch, sequence, first)

    def _arrived(
        self, partition: Partition, producer_id: int, producer_epoch: int, sequence: int
    ) -> ProducerEntry | None:
        """The epoch counts before the state of the transaction (KAFKA-19690). Raises
        INVALID_PRODUCER_EPOCH."""
        entry = partition.log.producers.entries.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            raise _fenced(partition, entry, producer_epoch)
        if entry is None and not self._adds:
            self._verifier.lowest.note(partition, producer_id, producer_epoch, sequence)
        return entry


def is_open(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """True when the producer has a transaction open here, in this epoch."""
    return (
        entry is not None
        and entry.transaction_first_offset is not None
        and entry.epoch == producer_epoch
    )


def _fenced(partition: Partition, entry: ProducerEntry, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"{partition.topic}-{partition.partition}: producer {entry.producer_id} writes with epoch "
        f"{epoch}, but epoch {entry.epoch} is known; its transaction has ended, or a newer "
        "instance took over",
    )


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


def _gap(
    partition: Partition, producer_id: int, producer_epoch: int, sequence: int, expected: int
) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{partition.topic}-{partition.partition}: producer {producer_id} epoch {producer_epoch} "
        f"is not known here and sends sequence {sequence}, expected {expected}",
    )
