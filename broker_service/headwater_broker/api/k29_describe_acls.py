"""DescribeAcls: the ACLs that a filter selects (KIP-140, KIP-290)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.security.acl_requests import described, filter_of
from headwater.wire.apis.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

NO_AUTHORIZER = "No Authorizer is configured on the broker"


@handles(DescribeAclsRequest, DescribeAclsResponse)
def describe_acls(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """From this broker's own copy of the ACLs."""
    try:
        require_on_cluster(ctx, Operation.DESCRIBE)
        if ctx.broker.acls is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        found = ctx.broker.acls.authorizer.acls(filter_of(request))
    except KafkaError as e:
        return DescribeAclsResponse(error_code=e.code, error_message=e.detail, resources=())
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE, error_message=None, resources=described(found)
    )
