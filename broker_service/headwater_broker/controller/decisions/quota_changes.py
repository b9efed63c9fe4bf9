"""Decisions on client quotas (KIP-546): validation, new quotas, their nodes below `/config`."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.config.quota_precedence import Entity, check_quota_key, entity_path, quota_text
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.metadata_store import Create, Operation, Set
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    AlterClientQuotas,
    ClientQuotaChange,
    QuotaEdit,
    Reply,
    TopicResult,
)
from headwater_broker.controller.state import ControllerState
from headwater_broker.controller.write_batches import check_size
from headwater_broker.metadata import znodes


def on_alter_client_quotas(
    state: ControllerState, decision: DecisionBuilder, event: AlterClientQuotas
) -> None:
    """Set and remove quotas. An invalid entity does not affect the others."""
    results = []
    for edit in event.edits:
        try:
            path, quotas = _edited(state, edit)
        except KafkaError as e:
            results.append(TopicResult(name=None, error=e.code, message=e.detail))
            continue
        results.append(TopicResult(name=path))
        if not event.validate_only and quotas != state.client_quotas.get(path, {}):
            store_entity(state, decision, path, quotas)
    decision.reply(Reply(event.token, tuple(results), after_delivery=not event.validate_only))


def on_client_quota_change(
    state: ControllerState, decision: DecisionBuilder, event: ClientQuotaChange
) -> None:
    """A tool wrote or removed an entity's node. Brokers use the valid quotas in it."""
    if event.configs is None:
        state.client_quotas.pop(event.path, None)
        state.stored_quota_nodes.discard(event.path)
    else:
        state.client_quotas[event.path] = dict(event.configs)
        state.stored_quota_nodes.update(_above(event.path), (event.path,))
    decision.publish_client_quotas()


def _edited(state: ControllerState, edit: QuotaEdit) -> tuple[str, dict[str, str]]:
    """The entity's path and its quotas after the edit. Raises KafkaError(INVALID_REQUEST)."""
    entity: Entity = dict(edit.entity)
    try:
        if len(entity) != len(edit.entity):
            raise UsageError("quota entity: a type is named more than once")
        if len({key for key, _ in edit.operations}) != len(edit.operations):
            raise UsageError("quotas of one entity: a key is named more than once")
        path = entity_path(entity)
        quotas = dict(state.client_quotas.get(path, {}))
        for key, value in edit.operations:
            if value is None:
                check_quota_key(entity, key)
                quotas.pop(key, None)
            else:
                quotas[key] = quota_text(entity, key, value)
    except UsageError as e:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(e)) from e
    node = Set(f"/config/{path}", znodes.encode_overrides(quotas))
    check_size((node,), "the quotas of an entity with this name", ErrorCode.INVALID_REQUEST)
    return path, quotas


def store_entity(
    state: ControllerState, decision: DecisionBuilder, path: str, quotas: dict[str, str]
) -> None:
    """Write an entity's configs: its quotas, and a user's SCRAM credentials.

    An entity without any keeps its node, as in Kafka.
    """
    stored = state.stored_quota_nodes
    data = znodes.encode_overrides(quotas)
    rows: list[Operation] = [
        Create(f"/config/{above}", znodes.encode_overrides({}))
        for above in _above(path)
        if above not in stored
    ]
    node = f"/config/{path}"
    rows.append(Set(node, data) if path in stored else Create(node, data))
    decision.write(*rows)
    stored.update(_above(path), (path,))
    state.client_quotas[path] = quotas
    decision.publish_client_quotas()


def _above(path: str) -> Iterator[str]:
    """The parent nodes: `users/U` and `users/U/clients` for a client of a user."""
    parts = path.split("/")
    for count in range(2, len(parts)):
        yield "/".join(parts[:count])
