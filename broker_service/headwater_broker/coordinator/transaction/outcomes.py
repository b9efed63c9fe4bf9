"""The outcome of a request to a transactional id: a refusal, a wait, or its new transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.transaction import (
    Partition,
    ProducerIdentity,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class Refused:
    """The request gets an error; nothing changes."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Busy:
    """Markers are on their way: the request waits a moment, then CONCURRENT_TRANSACTIONS."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request succeeds, and nothing is written."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class InitializedProducer:
    """The reply to InitProducerId: the identity to go on with."""

    identity: ProducerIdentity
    ongoing: ProducerIdentity | None = None
    """The producer of the prepared transaction that stays open (KIP-939)."""


class Changed(NamedTuple):
    """`after` is to be written; the reply carries `identity` once it is durable.

    `then_retry`: the request is decided again when the transaction is complete.
    """

    after: Transaction
    identity: ProducerIdentity
    then_retry: bool = False
    ongoing: ProducerIdentity | None = None
    """The producer of the prepared transaction that stays open (KIP-939)."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Each partition that was asked about, with its code."""

    codes: Mapping[Partition, ErrorCode]


Outcome = Refused | Busy | Unchanged | Changed | Verified
