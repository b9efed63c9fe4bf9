"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Filters: states, producer ids, the age of the open transaction (version 1, KIP-994), a pattern of
transactional ids (version 2, KIP-1152).
"""

from __future__ import annotations

import asyncio

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.transaction.id_pattern import IdPattern
from headwater_broker.coordinator.transaction.states import TransactionState as State
from headwater_broker.coordinator.transaction.transaction import Transaction

STATES = {state.label: state for state in State if state is not State.DEAD}
"""By the names that clients use."""
MATCHED_PER_TURN = 1_000
"""Transactional ids that are matched in one turn of the loop: some 5 ms."""


@handles(ListTransactionsRequest, ListTransactionsResponse)
async def list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Rows with DESCRIBE on the transactional id. Unknown states match nothing."""
    unknown = tuple(name for name in request.state_filters if name not in STATES)
    states = frozenset(STATES[name] for name in request.state_filters if name in STATES)
    try:
        found: list[Transaction] = []
        if states or not request.state_filters:
            found = await ctx.broker.transactions.listed(
                states, frozenset(request.producer_id_filters), request.duration_filter
            )
        found = await _matching(found, request.transactional_id_pattern)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=tuple(
            TransactionState(
                transactional_id=row.transactional_id,
                producer_id=row.producer_id,
                transaction_state=row.state.label,
            )
            for row in found
            if ctx.allowed(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, row.transactional_id)
        ),
    )


async def _matching(rows: list[Transaction], pattern: str | None) -> list[Transaction]:
    """The rows whose whole transactional id matches. Raises INVALID_REGULAR_EXPRESSION."""
    if not pattern:
        return rows
    wanted, found = IdPattern(pattern), []
    for number, row in enumerate(rows, 1):
        if wanted.matches(row.transactional_id):
            found.append(row)
        if number % MATCHED_PER_TURN == 0:
            await asyncio.sleep(0)
    return found
