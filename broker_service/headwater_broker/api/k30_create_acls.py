"""CreateAcls: adds ACLs (KIP-140, KIP-290). The controller writes them."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.security.acl_requests import acl_of, check_acl
from headwater.wire.apis.k30_create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headwater_broker.api.admin.acl_changes import acl_store, caught_up
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(CreateAclsRequest, CreateAclsResponse)
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """One row per ACL; one that is not valid does not affect the others."""
    try:
        store = acl_store(ctx, Operation.ALTER)
    except KafkaError as e:
        return CreateAclsResponse(results=(_failed(e),) * len(request.creations))
    refused = [_fault(row) for row in request.creations]
    valid = tuple(
        row for row, fault in zip(request.creations, refused, strict=True) if fault is None
    )
    made = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    if valid:
        try:
            part = replace(request, creations=valid)
            await forward(ctx, part, CreateAclsResponse, FORWARD_TIMEOUT_MIN_MS)
            await caught_up(store)
        except KafkaError as e:
            made = _failed(e)
    return CreateAclsResponse(results=tuple(fault or made for fault in refused))


def _fault(row: AclCreation) -> AclCreationResult | None:
    try:
        check_acl(acl_of(row))
    except KafkaError as e:
        return _failed(e)
    return None


def _failed(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.detail)
