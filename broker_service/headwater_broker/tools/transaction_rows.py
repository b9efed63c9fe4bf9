"""Rows of `headwater dump-log --records` for the records of `__transaction_state`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from headwater.errors import HeadwaterError
from headwater_broker.coordinator.transaction.epoch_records import (
    OWN_KIND,
    DecisionKey,
    SinkKey,
    TicketsKey,
    read_decision,
    read_own_key,
    read_sink,
    read_tickets,
)
from headwater_broker.coordinator.transaction.records import (
    read_transaction,
    read_transactional_id,
)
from headwater_broker.coordinator.transaction.transaction import Transaction


def decoded(key: bytes, value: bytes | None) -> dict[str, Any]:
    """The record's kind, key and value; nothing for kinds that are not known here."""
    try:
        if key[:1] == OWN_KIND:
            return _of_epochs(key, value)
        name = read_transactional_id(key)
        if name is None:
            return {}
        found = None if value is None else _transaction(read_transaction(name, value))
        return {"transactionalId": name, "state": found}
    except HeadwaterError as error:
        return {"unreadable": str(error)}


def _of_epochs(key: bytes, value: bytes | None) -> dict[str, Any]:
    match read_own_key(key):
        case SinkKey(name):
            sink = None if value is None else read_sink(name, value)._asdict()
            return {"sink": name, "state": _shown(sink)}
        case DecisionKey(sink, epoch):
            decision = None if value is None else read_decision(value)._asdict()
            row = {"sink": sink, "epoch": epoch.epoch, "ticket": epoch.ticket}
            return {**row, "decision": _shown(decision)}
        case TicketsKey():
            return {"ticketsReservedTo": None if value is None else read_tickets(value)}
    return {}


def _transaction(found: Transaction) -> Any:
    fields = found._asdict()
    del fields["transactional_id"]
    fields["partitions"] = [f"{topic}-{index}" for topic, index in found.partitions]
    return _shown(fields)


def _shown(value: Any) -> Any:
    """Names of states, text of ids, and nothing that JSON does not have."""
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(name): _shown(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return value.label if hasattr(value, "label") else getattr(value, "name", value)
