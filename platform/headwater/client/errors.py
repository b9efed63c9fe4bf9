"""Typed errors for callers to catch; each is the `KafkaError` of one code.

`kafka_error(code, detail)` gives the subclass where there is one. `KafkaTimeoutError` is also a
`TimeoutError`, so that both `except` clauses work.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, HeadwaterError, KafkaError


class _CodedError(KafkaError):
    """Base of the typed ones: the code is the class's own."""

    own_code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, detail: str = "") -> None:
        super().__init__(self.own_code, detail)

    def __reduce__(self) -> tuple[type[_CodedError], tuple[str]]:
        return type(self), (self.detail,)


class UnknownServerError(_CodedError):
    """The broker failed, and its log says why; e.g. the files of a topic's table are gone."""

    own_code = ErrorCode.UNKNOWN_SERVER_ERROR


class UnknownTopicOrPartitionError(_CodedError):
    """The topic or partition does not exist (or may not be seen)."""

    own_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicAlreadyExistsError(_CodedError):
    """A topic of that name exists."""

    own_code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(_CodedError):
    """The name is no legal topic name."""

    own_code = ErrorCode.INVALID_TOPIC_EXCEPTION


class MessageTooLargeError(_CodedError):
    """A record or batch is larger than the client or the topic allows."""

    own_code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetOutOfRangeError(_CodedError):
    """The asked offset is not in the log, and auto_offset_reset is "none"."""

    own_code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptRecordError(_CodedError):
    """A batch whose CRC or shape is wrong."""

    own_code = ErrorCode.CORRUPT_MESSAGE


class NotEnoughReplicasError(_CodedError):
    """Fewer in-sync replicas than min.insync.replicas."""

    own_code = ErrorCode.NOT_ENOUGH_REPLICAS


class LeaderNotAvailableError(_CodedError):
    """The partition has no leader at the moment."""

    own_code = ErrorCode.LEADER_NOT_AVAILABLE


class AuthorizationError(_CodedError):
    """The principal may not do this to the topic."""

    own_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupIdNotFoundError(_CodedError):
    """No such group."""

    own_code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroupError(_CodedError):
    """The group still has members."""

    own_code = ErrorCode.NON_EMPTY_GROUP


class RebalanceInProgressError(_CodedError):
    """The group is rebalancing; what was asked must be repeated afterwards."""

    own_code = ErrorCode.REBALANCE_IN_PROGRESS


class CommitFailedError(_CodedError):
    """The commit came too late: the group has given the partitions to another member."""

    own_code = ErrorCode.ILLEGAL_GENERATION


class InvalidGroupIdError(_CodedError):
    """A group operation without a group id."""

    own_code = ErrorCode.INVALID_GROUP_ID


class InvalidPartitionsError(_CodedError):
    """A partition count that cannot be."""

    own_code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(_CodedError):
    """More replicas than brokers, or none."""

    own_code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidConfigError(_CodedError):
    """A configuration name or value that the broker refuses."""

    own_code = ErrorCode.INVALID_CONFIG


class ProducerFencedError(_CodedError):
    """A newer producer took over this producer id."""

    own_code = ErrorCode.PRODUCER_FENCED


class UnsupportedCompressionTypeError(_CodedError):
    """A compression type that is unknown here or there."""

    own_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class KafkaTimeoutError(_CodedError, TimeoutError):
    """Time was up before the cluster answered, or took the record."""

    own_code = ErrorCode.REQUEST_TIMED_OUT


class NoBrokersAvailableError(_CodedError, ConnectionError):
    """None of the bootstrap servers could be reached."""

    own_code = ErrorCode.BROKER_NOT_AVAILABLE


class BufferExhaustedError(KafkaTimeoutError):
    """`send` waited max_block_ms for room in buffer_memory."""


class ClosedError(HeadwaterError):
    """The producer, consumer or admin has been closed."""


class IllegalStateError(HeadwaterError):
    """The call does not fit the object's state: the message says which call would."""


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
    """The enum member of a wire code; UNKNOWN_SERVER_ERROR for one from the future."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def kafka_error(code: int, detail: str = "") -> KafkaError:
    """The typed error of `code`; a plain KafkaError where no class exists for it."""
    known = error_code(code)
    typed = _BY_CODE.get(known)
    return KafkaError(known, detail) if typed is None else typed(detail)
