"""CreateAcls and DeleteAcls on the controller. The broker that received them has checked them."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import StoreError
from headwater.security.acl_requests import acl_of, check_acl, deleted, filter_of
from headwater.wire.apis.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headwater.wire.apis.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headwater_broker.controller.controller_loop import ControllerLoop
from headwater_broker.controller.zk import acl_writer


async def create_acls(
    _executor: object, controller: ControllerLoop, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Add the ACLs. Raises KafkaError(NOT_CONTROLLER): adding them again does no harm."""
    acls = [acl_of(row) for row in request.creations]
    for acl in acls:
        check_acl(acl)
    try:
        await acl_writer.add_acls(controller.store, controller.won.fence, acls)
    except StoreError as e:
        raise _lost(e) from e
    row = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return CreateAclsResponse(results=(row,) * len(acls))


async def delete_acls(
    _executor: object, controller: ControllerLoop, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Remove what the filters select. Raises KafkaError(NOT_CONTROLLER)."""
    filters = [filter_of(row) for row in request.filters]
    try:
        removed = await acl_writer.remove_acls(controller.store, controller.won.fence, filters)
    except StoreError as e:
        raise _lost(e) from e
    return DeleteAclsResponse(
        filter_results=tuple(
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE,
                error_message=None,
                matching_acls=tuple(deleted(acl) for acl in rows),
            )
            for rows in removed
        )
    )


def _lost(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, f"ACLs were not written: {error}")
