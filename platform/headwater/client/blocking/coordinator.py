"""Calls to coordinators over blocking sockets, which survive the coordinator's move.

A call looks the coordinator up (FindCoordinator), asks it, and after NOT_COORDINATOR, a lost
connection or a dead broker looks it up again, with pauses, until its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from headwater.client.blocking.cluster import BlockingCluster
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.epoch_errors import EpochsUnsupportedError
from headwater.client.errors import KafkaTimeoutError, kafka_error
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.schema import Message, SchemaError

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEYS_VERSION = 4
"""The first version of FindCoordinator with several keys (KIP-699)."""

R = TypeVar("R", bound=Message)


class OutcomeUnknownError(Exception):
    """A request that changes state may have been served, and the brokers do not say whether."""


class Outcome(Enum):
    """What the caller needs to know of a request that may have been served without an answer."""

    ANY = "any"
    """Nothing: it may be repeated at any later time. The last error is raised."""
    TOLD = "told"
    """That its outcome is unknown: OutcomeUnknownError at the end of the time limit."""
    PURSUED = "pursued"
    """Its outcome: it is repeated without a time limit until a response tells it."""


class CoordinatorClient:
    """Calls the coordinators of keys: of transactional ids by default, or of groups."""

    def __init__(self, cluster: BlockingCluster, key_type: int = KEY_TYPE_TRANSACTION) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._nodes: dict[str, int] = {}

    def call(
        self,
        key: str,
        request: Message,
        reply_type: type[R],
        check: Callable[[R], None],
        *,
        timeout_s: float | None = None,
        outcome: Outcome = Outcome.ANY,
        cap: int | None = None,
    ) -> R:
        """The response of the key's coordinator; `check` raises the KafkaError that it carries.

        `cap` is the highest version to use. `outcome` decides what happens when the request may
        have been served: raises OutcomeUnknownError at the end of the time limit, and where
        repeating cannot help.
        """
        timer = self._cluster.retry_timer(type(request).__name__, timeout_s)
        is_unknown = False
        while True:
            connection: BlockingConnection | None = None
            try:
                connection = self._coordinator(key, request)
                reply = connection.call(request, reply_type, cap=cap)
                check(reply)
                return reply
            except (OSError, KafkaError, SchemaError) as e:
                if connection is not None:
                    is_unknown |= may_be_served(e)
                    if not isinstance(e, KafkaError):
                        self._cluster.drop(connection)
                self._nodes.pop(key, None)
                if isinstance(e, SchemaError):
                    e = ConnectionError(f"an unreadable response: {e}")
                try:
                    timer.pause_after(e)
                except KafkaError as end:
                    if not is_unknown or outcome is Outcome.ANY:
                        raise
                    if outcome is Outcome.TOLD or not isinstance(end, KafkaTimeoutError):
                        raise OutcomeUnknownError(str(end)) from end
                    timer.restart()

    def broker_of(self, key: str) -> int:
        """The id of the broker that answered as the key's coordinator; -1 before a call."""
        return self._nodes.get(key, -1)

    def _coordinator(self, key: str, request: Message) -> BlockingConnection:
        node = self._nodes.get(key)
        if node is None:
            node = self._find(key, type(request))
            self._cluster.refresh_if_possible([])
        connection = self._cluster.connection(node)
        _check_served(connection, type(request))
        self._nodes[key] = node
        return connection

    def _find(self, key: str, needed: type[Message]) -> int:
        def ask(connection: BlockingConnection) -> int:
            _check_served(connection, needed)
            by_list = connection.version_for(FindCoordinatorRequest) >= KEYS_VERSION
            request = FindCoordinatorRequest(
                key="" if by_list else key,
                key_type=self._key_type,
                coordinator_keys=(key,) if by_list else (),
            )
            reply = connection.call(request, FindCoordinatorResponse)
            found = reply.coordinators[0] if reply.coordinators else reply
            if found.error_code:
                detail = found.error_message or f"coordinator of {key}"
                raise kafka_error(found.error_code, detail)
            return found.node_id

        return self._cluster.ask_any(ask)


def may_be_served(error: Exception) -> bool:
    """True when a request that failed so may have been served, or may be served later.

    A coordinator that loses its leadership between append and high watermark answers with a
    retriable error, though its record can survive.
    """
    if isinstance(error, KafkaError):
        return error.code in _AFTER_APPEND
    return True


_AFTER_APPEND = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def _check_served(connection: BlockingConnection, needed: type[Message]) -> None:
    if needed.api_key not in connection.versions:
        raise EpochsUnsupportedError(
            f"the broker at {connection.host}:{connection.port} does not serve "
            f"{needed.__name__.removesuffix('Request')}: it is Apache Kafka or an older Headwater. "
            "Only Headwater has epoch transactions; write to other brokers at least once "
            "(headwater.delivery=at-least-once)"
        )
