"""Transactions' timeouts: which are allowed, and what happens when one has passed. Pure.

`shard` asks for it when the deadline comes. `producer_fencing.fence` raises the producer's epoch by
one, so that its owner may still go on from the last one; `marker_sender` then writes the markers.
"""

from __future__ import annotations

import logging

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.producer_fencing import fence
from headwater_broker.coordinator.transaction.transaction import NO_TIMEOUT_MS, EndedBy, Transaction

logger = logging.getLogger(__name__)


def checked_timeout_ms(
    config: TransactionConfig, timeout_ms: int, two_phase: bool, keep_prepared: bool
) -> int:
    """The timeout of a producer that InitProducerId asks for; NO_TIMEOUT_MS: it prepares (KIP-939).

    Raises INVALID_TRANSACTION_TIMEOUT above transaction.max.timeout.ms, and for KIP-939
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST.
    """
    if two_phase:
        if not config.is_two_phase_enabled:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transaction.two.phase.commit.enable is false on this broker",
            )
        return NO_TIMEOUT_MS
    if keep_prepared:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "keep_prepared_txn without enable_2pc (KIP-939)"
        )
    if not 0 < timeout_ms <= config.max_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"a timeout of {timeout_ms} ms; transaction.max.timeout.ms is {config.max_timeout_ms}",
        )
    return min(timeout_ms, NO_TIMEOUT_MS - 1)


def left_ms(known: Transaction, now_ms: int) -> int | None:
    """How long the open transaction may last still, 0 when it is to be aborted; None: for ever."""
    return None if known.deadline_ms is None else max(known.deadline_ms - now_ms, 0)


def time_out(known: Transaction, now_ms: int) -> Transaction:
    """Abort the open transaction after its timeout, and fence its producer."""
    logger.info(
        "transaction of %r (producer %d, epoch %d) timed out after %d ms: aborting it",
        known.transactional_id, known.producer_id, known.producer_epoch, known.timeout_ms,
    )  # fmt: skip
    fenced = fence(known, now_ms, keeps_last=True)
    return fenced._replace(ended_by=EndedBy.TIMEOUT)
