"""A fresh producer id for an idempotent task (KIP-98); a task never reuses another's."""

from __future__ import annotations

import time

from headwater.client.addresses import parse_bootstrap
from headwater.client.raw_connection import BlockingConnection
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

ATTEMPTS_MAX = 50
PAUSE_S = 0.2
CALL_TIMEOUT_S = 10.0
WITHOUT_ID = (-1, -1)
"""Brokers that give out no ids: a lost reply may double a batch, which the sink allows."""


def new_producer_id(bootstrap_servers: str, client_id: str) -> tuple[int, int]:
    """(producer id, epoch) from whichever broker answers first; waits while none can give one.

    WITHOUT_ID from brokers that know no such request.
    """
    failure: Exception | None = None
    for _ in range(ATTEMPTS_MAX):
        for host, port in parse_bootstrap(bootstrap_servers):
            try:
                return _ask(host, port, client_id)
            except KafkaError as e:
                if e.code == ErrorCode.UNSUPPORTED_VERSION:
                    return WITHOUT_ID
                if not e.retriable:
                    raise
                failure = e
            except OSError as e:
                failure = e
        time.sleep(PAUSE_S)
    assert failure is not None
    raise failure


def _ask(host: str, port: int, client_id: str) -> tuple[int, int]:
    connection = BlockingConnection(host, port, client_id=client_id, timeout_s=CALL_TIMEOUT_S)
    try:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        reply = connection.call(request, InitProducerIdResponse, cap=5)
    finally:
        connection.close()
    if reply.error_code:
        raise KafkaError(ErrorCode(reply.error_code), f"producer id from {host}:{port}")
    return reply.producer_id, reply.producer_epoch
