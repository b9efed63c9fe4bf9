"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Filters: states, producer ids, the age of the open transaction (version 1, KIP-994), a pattern of
transactional ids (version 2, KIP-1152).
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.transaction.states import TransactionState as State
from headwater_broker.coordinator.transaction.transaction import Transaction

STATES = {state.label: state for state in State if state is not State.DEAD}
"""By the names that clients use."""


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
        found = _matching(found, request.transactional_id_pattern)
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


def _matching(rows: list[Transaction], pattern: str | None) -> list[Transaction]:
    """The rows whose whole transactional id matches. Raises INVALID_REGULAR_EXPRESSION.

    Arrow's matcher is RE2, as Kafka's: its time is linear, so that no pattern can hold the loop.
    """
    if not pattern:
        return rows
    import pyarrow as pa  # noqa: PLC0415 - the broker starts without it
    import pyarrow.compute as pc  # noqa: PLC0415

    names = pa.array([row.transactional_id for row in rows], pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # `a)|(b` would be legal below
        matches = pc.match_substring_regex(names, f"^(?:{pattern})$")
    except pa.ArrowInvalid as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return [row for row, matched in zip(rows, matches.to_pylist(), strict=True) if matched]
