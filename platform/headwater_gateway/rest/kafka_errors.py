"""Kafka's errors as replies, with the codes of Kafka's REST proxy (Confluent's rest-utils)."""

from __future__ import annotations

from headwater.client.errors import ClosedError, IllegalStateError
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater_gateway.app.errors import GatewayError

BAD_REQUEST = 40002
AUTHENTICATION = 40101
AUTHORIZATION = 40301
TOPIC_NOT_FOUND = 40401
PARTITION_NOT_FOUND = 40402
INSTANCE_NOT_FOUND = 40403
UNKNOWN_TOPIC_OR_PARTITION = 40403
FORMAT_MISMATCH = 40601
ALREADY_SUBSCRIBED = 40901
ALREADY_EXISTS = 40902
ILLEGAL_STATE = 40903
KEY_SCHEMA_MISSING = 42201
VALUE_SCHEMA_MISSING = 42202
JSON_CONVERSION = 42203
INVALID_CONSUMER_CONFIG = 42204
INVALID_SCHEMA = 42205
INVALID_PAYLOAD = 42206
SERIALIZATION = 42207
KAFKA_ERROR = 50002
KAFKA_RETRIABLE_ERROR = 50003
BROKER_NOT_AVAILABLE = 50302

_STATUS: dict[ErrorCode, tuple[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, UNKNOWN_TOPIC_OR_PARTITION),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, 40405),
    ErrorCode.RESOURCE_NOT_FOUND: (404, 404),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, AUTHORIZATION),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, AUTHORIZATION),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, AUTHORIZATION),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (403, AUTHORIZATION),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (401, AUTHENTICATION),
    ErrorCode.BROKER_NOT_AVAILABLE: (503, BROKER_NOT_AVAILABLE),
    ErrorCode.REQUEST_TIMED_OUT: (503, KAFKA_RETRIABLE_ERROR),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 413),
    ErrorCode.RECORD_LIST_TOO_LARGE: (413, 413),
    ErrorCode.NON_EMPTY_GROUP: (409, 409),
    ErrorCode.REBALANCE_IN_PROGRESS: (409, ILLEGAL_STATE),
    ErrorCode.ILLEGAL_GENERATION: (409, ILLEGAL_STATE),
    ErrorCode.UNKNOWN_MEMBER_ID: (409, ILLEGAL_STATE),
    ErrorCode.OFFSET_OUT_OF_RANGE: (400, BAD_REQUEST),
}
_CLIENTS_FAULT = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
    }
)


def as_reply(error: HeadwaterError) -> GatewayError:
    """The reply for an error of the SDK."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, KafkaError):
        status, code = _of_code(error)
        return GatewayError(status, code, str(error))
    if isinstance(error, UsageError):
        return GatewayError(400, BAD_REQUEST, str(error))
    if isinstance(error, IllegalStateError):
        return GatewayError(409, ILLEGAL_STATE, f"Illegal state: {error}")
    if isinstance(error, ClosedError):
        return GatewayError(503, BROKER_NOT_AVAILABLE, f"ended meanwhile: {error}")
    return GatewayError(500, KAFKA_ERROR, f"Kafka error: {error}")


def _of_code(error: KafkaError) -> tuple[int, int]:
    if error.code in _STATUS:
        return _STATUS[error.code]
    if error.code in _CLIENTS_FAULT:
        return 400, BAD_REQUEST
    return (503, KAFKA_RETRIABLE_ERROR) if error.retriable else (500, KAFKA_ERROR)
