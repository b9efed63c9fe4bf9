"""DeleteAcls: removes the ACLs that filters select (KIP-140, KIP-290)."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.security.acl_requests import filter_of
from headwater.wire.apis.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headwater_broker.api.admin.acl_changes import acl_store, caught_up
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(DeleteAclsRequest, DeleteAclsResponse)
async def delete_acls(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """One row per filter; one that is not valid does not affect the others."""
    try:
        store = acl_store(ctx, Operation.ALTER)
    except KafkaError as e:
        return DeleteAclsResponse(filter_results=(_failed(e),) * len(request.filters))
    results = [_fault(row) for row in request.filters]
    valid = [at for at, fault in enumerate(results) if fault is None]
    if valid:
        try:
            part = replace(request, filters=tuple(request.filters[at] for at in valid))
            reply = await forward(ctx, part, DeleteAclsResponse, FORWARD_TIMEOUT_MIN_MS)
            for at, row in zip(valid, reply.filter_results, strict=True):
                results[at] = row
            await caught_up(store)
        except KafkaError as e:
            for at in valid:
                results[at] = _late(results[at], e)
    return DeleteAclsResponse(filter_results=tuple(row for row in results if row is not None))


def _fault(row: DeleteAclsFilter) -> DeleteAclsFilterResult | None:
    try:
        filter_of(row)
    except KafkaError as e:
        return _failed(e)
    return None


def _late(row: DeleteAclsFilterResult | None, error: KafkaError) -> DeleteAclsFilterResult:
    """A failure; it keeps the ACLs that are deleted by then, for the audit line."""
    failed = _failed(error)
    return failed if row is None else replace(failed, matching_acls=row.matching_acls)


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=error.code, error_message=error.detail, matching_acls=()
    )
