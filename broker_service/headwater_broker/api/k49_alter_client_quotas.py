"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headwater.config.quota_precedence import plain_name
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k48_describe_client_quotas import EntityData
from headwater.wire.apis.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward, may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

_Key = frozenset[tuple[str, str | None]]


@handles(AlterClientQuotasRequest, AlterClientQuotasResponse)
async def alter_client_quotas(
    ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """One row per entity, in the order of the request."""
    if not may_on_cluster(ctx, Operation.ALTER_CONFIGS):
        text = "no ALTER_CONFIGS on the cluster"
        return _refused(request.entries, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
    times = Counter(_key(entry) for entry in request.entries)
    once = tuple(entry for entry in request.entries if times[_key(entry)] == 1)
    found: dict[_Key, AlteredEntryData] = {}
    if once:
        try:
            part = replace(request, entries=once)
            reply = await forward(ctx, part, AlterClientQuotasResponse, FORWARD_TIMEOUT_MIN_MS)
        except KafkaError as e:
            reply = _refused(once, e.code, e.detail)
        found = {_key(entry): row for entry, row in zip(once, reply.entries, strict=True)}
    text = "the entity occurs more than once in the request"
    return AlterClientQuotasResponse(
        entries=tuple(
            found.get(_key(entry)) or _failed(entry.entity, ErrorCode.INVALID_REQUEST, text)
            for entry in {entry.entity: entry for entry in request.entries}.values()
        )
    )


def _key(entry: AlterEntryData) -> _Key:
    return frozenset(
        (e.entity_type, plain_name(e.entity_type, e.entity_name)) for e in entry.entity
    )


def _refused(
    entries: tuple[AlterEntryData, ...], code: ErrorCode, text: str
) -> AlterClientQuotasResponse:
    rows = tuple(_failed(entry.entity, code, text) for entry in entries)
    return AlterClientQuotasResponse(entries=rows)


def _failed(entity: tuple[EntityData, ...], code: ErrorCode, text: str) -> AlteredEntryData:
    return AlteredEntryData(error_code=code, error_message=text, entity=entity)
