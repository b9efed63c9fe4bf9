"""Requests to a transaction coordinator: when one counts as unanswered."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.client.connection import Connection
from headwater.client.coordinator_calls import CoordinatorCalls
from headwater.client.core.transaction_states import Request
from headwater.errors import ErrorCode, KafkaError


class OneBroker:
    """A cluster whose only broker is every coordinator."""

    cache = SimpleNamespace(brokers={1: None})

    async def coordinator(self, key: str, key_type: int) -> int:
        return 1

    async def connection(self, node: int, lane: str) -> None:
        return None

    def backoff_s(self, tries: int) -> float:
        return 0.0


def test_a_final_error_is_an_answer_and_no_outage() -> None:
    calls = CoordinatorCalls(cast(Any, OneBroker()))
    causes: list[str] = []
    errors = [ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_TRANSACTION_TIMEOUT]

    async def attempt(_: Connection) -> None:
        causes.append(calls.cause)
        raise KafkaError(errors[len(causes) - 1], "InitProducerId")

    with pytest.raises(KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
        asyncio.run(calls.to_transaction(Request.INIT, "x", attempt))
    assert causes == ["", "NOT_COORDINATOR: InitProducerId"], "one that is repeated is an outage"
    assert (calls.trouble, calls.cause) == (None, "")
