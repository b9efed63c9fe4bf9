"""The errors that clients raise: most are the `KafkaError` of one error code.

`kafka_error(code, detail)` builds the subclass of a code where there is one. Some are built-in
errors too (`KafkaTimeoutError` is a `TimeoutError`), so that either `except` clause catches them.
"""

from __future__ import annotations

from typing import Any, Literal

from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError


class OptionError(UsageError, TypeError):
    """An option that the class does not have, or a value of a type that it does not take."""


class _CodedError(KafkaError):
    """Base of the errors with a code of their own (`own_code`)."""

    own_code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, detail: str = "") -> None:
        super().__init__(self.own_code, detail)

    def __reduce__(self) -> tuple[type[KafkaError], tuple[object, ...]]:
        return type(self), (self.detail,)


class UnknownServerError(_CodedError):
    """The broker failed and its log says why, for example: the files of a Delta table are gone."""

    own_code = ErrorCode.UNKNOWN_SERVER_ERROR


class UnknownTopicOrPartitionError(_CodedError):
    """The topic or partition does not exist."""

    own_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicAlreadyExistsError(_CodedError):
    """A topic of this name exists."""

    own_code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(_CodedError):
    """The name is not a legal topic name."""

    own_code = ErrorCode.INVALID_TOPIC_EXCEPTION


class MessageTooLargeError(_CodedError):
    """A record or batch is larger than max_request_size or the topic's max.message.bytes."""

    own_code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetOutOfRangeError(_CodedError):
    """The log does not have the requested offset, and auto_offset_reset is "none"."""

    own_code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptRecordError(_CodedError):
    """A batch with a wrong CRC or format."""

    own_code = ErrorCode.CORRUPT_MESSAGE


class NotEnoughReplicasError(_CodedError):
    """The partition has fewer in-sync replicas than min.insync.replicas."""

    own_code = ErrorCode.NOT_ENOUGH_REPLICAS


class LeaderNotAvailableError(_CodedError):
    """The partition has no leader at the moment."""

    own_code = ErrorCode.LEADER_NOT_AVAILABLE


class AuthorizationError(_CodedError):
    """The principal is not authorized for this operation on the topic."""

    own_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupIdNotFoundError(_CodedError):
    """The group does not exist."""

    own_code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroupError(_CodedError):
    """The group still has members."""

    own_code = ErrorCode.NON_EMPTY_GROUP


class RebalanceInProgressError(_CodedError):
    """The group is rebalancing: repeat the call afterwards."""

    own_code = ErrorCode.REBALANCE_IN_PROGRESS


class CommitFailedError(_CodedError):
    """The commit came too late: the group has assigned the partitions to another member."""

    own_code = ErrorCode.ILLEGAL_GENERATION


class InvalidGroupIdError(_CodedError):
    """A group operation of a consumer without `group_id`."""

    own_code = ErrorCode.INVALID_GROUP_ID


class InvalidPartitionsError(_CodedError):
    """The partition count is not possible, for example lower than it is."""

    own_code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(_CodedError):
    """The replication factor is larger than the number of brokers, or not positive."""

    own_code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidConfigError(_CodedError):
    """The broker refuses a configuration's name or value."""

    own_code = ErrorCode.INVALID_CONFIG


class UnsupportedCompressionTypeError(_CodedError):
    """The client or the broker does not support the compression type."""

    own_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class KafkaTimeoutError(_CodedError, TimeoutError):
    """The time limit passed before the cluster answered or acknowledged."""

    own_code = ErrorCode.REQUEST_TIMED_OUT


class NoBrokersAvailableError(_CodedError, ConnectionError):
    """No broker could be reached."""

    own_code = ErrorCode.BROKER_NOT_AVAILABLE


class BufferExhaustedError(KafkaTimeoutError):
    """`send` waited `max_block_ms` for room in `buffer_memory`."""


class TransactionError(KafkaError):
    """A transactional call failed. `remedy` says what the caller does next; `code` is the cause.

    "abort": call `abort_transaction()`, then repeat the transaction. "retry": make the same call
    again. "close": close the producer; another one with the transactional id may begin anew.
    """

    remedy: Literal["abort", "retry", "close"] = "close"

    def __reduce__(self) -> tuple[type[KafkaError], tuple[object, ...]]:
        return type(self), (self.code, self.detail)


class AbortableTransactionError(TransactionError):
    """The transaction can only be aborted. The producer is usable after `abort_transaction()`."""

    remedy = "abort"


class TransactionAbortedError(AbortableTransactionError):
    """The record was not written: its transaction was aborted before the record was sent."""


class RetriableTransactionError(TransactionError, TimeoutError):
    """The outcome of the call is not known in time. The same call, made again, waits for it."""

    remedy = "retry"


class FatalTransactionError(TransactionError):
    """The producer cannot go on: it is fenced, not authorized, or lost its transaction."""

    remedy = "close"


class ProducerFencedError(_CodedError, FatalTransactionError):
    """A newer producer uses the transactional id or producer id, or the coordinator aborted the
    transaction because it was open for longer than `transaction_timeout_ms`."""

    own_code = ErrorCode.PRODUCER_FENCED


class ClosedError(HeadwaterError):
    """The producer, consumer or admin client is closed."""


class IllegalStateError(HeadwaterError):
    """The client's state does not allow the call; the message names what does."""


class SerializationError(HeadwaterError):
    """A value cannot be made the bytes of a record; nothing was sent. The cause says why."""


class RecordDeserializationError(HeadwaterError):
    """A record's key or value cannot be read (Kafka's RecordDeserializationException).

    The consumer stays before the record: `seek` behind it to go on.
    """

    def __init__(self, topic: str, partition: int, offset: int, detail: str) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {detail}")
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return _undecoded, (self.topic, self.partition, self.offset, str(self))


class SerializerUnavailableError(HeadwaterError):
    """What a serializer has to ask, a schema registry, does not answer. It says nothing about the
    record: the same call may succeed later."""


def _undecoded(topic: str, partition: int, offset: int, text: str) -> RecordDeserializationError:
    detail = text.partition(": ")[2]
    return RecordDeserializationError(topic, partition, offset, detail)


_BY_CODE: dict[ErrorCode, type[_CodedError]] = {
    cls.own_code: cls
    for cls in (
        UnknownServerError,
        UnknownTopicOrPartitionError,
        TopicAlreadyExistsError,
        InvalidTopicError,
        MessageTooLargeError,
        OffsetOutOfRangeError,
        CorruptRecordError,
        NotEnoughReplicasError,
        LeaderNotAvailableError,
        AuthorizationError,
        GroupIdNotFoundError,
        NonEmptyGroupError,
        RebalanceInProgressError,
        CommitFailedError,
        InvalidGroupIdError,
        InvalidPartitionsError,
        InvalidReplicationFactorError,
        InvalidConfigError,
        ProducerFencedError,
        UnsupportedCompressionTypeError,
        KafkaTimeoutError,
        NoBrokersAvailableError,
    )
}


def error_code(code: int) -> ErrorCode:
    """The `ErrorCode` of a code on the wire; UNKNOWN_SERVER_ERROR for an unknown one."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def kafka_error(code: int, detail: str = "") -> KafkaError:
    """The error of `code`: its own class where there is one, else a plain KafkaError."""
    known = error_code(code)
    typed = _BY_CODE.get(known)
    return KafkaError(known, detail) if typed is None else typed(detail)
