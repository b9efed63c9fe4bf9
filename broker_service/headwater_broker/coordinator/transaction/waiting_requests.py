"""Requests to the shard of a transactional id: how each is decided, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.errors import KafkaError
from headwater_broker.coordinator.common.shard import Token
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Changed,
    InitializedProducer,
    Outcome,
    Refused,
    Verified,
)
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity, Transaction

Decide = Callable[[Transaction | None, int], Outcome]
"""(known state, wall clock in ms) -> outcome."""


class Unrecorded(NamedTuple):
    """A reply that changed nothing: no append has confirmed that this broker still coordinates."""

    identity: ProducerIdentity


class Request(NamedTuple):
    """A request that is decided now, or once markers are written."""

    token: Token
    decide: Decide
    retry: Callable[[ProducerIdentity], Decide] | None = None
    """How it is decided after the transaction that it met was aborted for it."""


def reply_of(outcome: Outcome) -> object:
    """The response to the request."""
    if isinstance(outcome, Changed) and outcome.ongoing is None:  # as nearly always
        return outcome.identity
    if isinstance(outcome, Refused):
        return KafkaError(outcome.code, outcome.code.name)
    if isinstance(outcome, Verified):
        return outcome.codes
    assert not isinstance(outcome, Busy)
    if isinstance(outcome, Changed) and outcome.ongoing is not None:
        return InitializedProducer(outcome.identity, outcome.ongoing)
    return outcome.identity
