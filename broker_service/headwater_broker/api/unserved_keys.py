"""API keys that this broker does not serve but answers, with UNSUPPORTED_VERSION.

ApiVersions does not list them, but some clients send them without looking there: they read an error
in the key's own shape instead of the end of the connection. A key that stands neither here nor in
the registry closes its connection, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k29_describe_acls as k29
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.schema import Message
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import ApiRow, Handler

ADVERTISED_REFUSALS = (68, 76, 78)
"""Keys of the registry whose handlers refuse every request: clients that do not find them hang."""
UNSERVED = "this broker does not serve this request"
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


def refuse(ctx: RequestContext, request: Message) -> Message:
    """Raise UNSUPPORTED_VERSION: the response has one error for all of the request."""
    raise KafkaError(UNSUPPORTED, UNSERVED)


def create_acls(ctx: RequestContext, request: k30.CreateAclsRequest) -> k30.CreateAclsResponse:
    """One error per ACL."""
    row = k30.AclCreationResult(error_code=UNSUPPORTED, error_message=UNSERVED)
    return k30.CreateAclsResponse(results=(row,) * len(request.creations))


def delete_acls(ctx: RequestContext, request: k31.DeleteAclsRequest) -> k31.DeleteAclsResponse:
    """One error per filter."""
    row = k31.DeleteAclsFilterResult(error_code=UNSUPPORTED, error_message=UNSERVED)
    return k31.DeleteAclsResponse(filter_results=(row,) * len(request.filters))


def _row(request: type[Message], response: type[Message], handler: Handler[Any, Any]) -> ApiRow:
    low, high = request.versions
    return ApiRow(
        key=request.api_key,
        low=low,
        high=high,
        flexible=request.flexible,
        advertised_low=low,
        request=request,
        response=response,
        handler=handler,
        raw=None,
    )


UNSERVED_ROWS = {
    row.key: row
    for row in (
        _row(k29.DescribeAclsRequest, k29.DescribeAclsResponse, refuse),
        _row(k30.CreateAclsRequest, k30.CreateAclsResponse, create_acls),
        _row(k31.DeleteAclsRequest, k31.DeleteAclsResponse, delete_acls),
    )
}
"""By API key. A key that is registered (`headwater_broker.api.registry`) is served instead."""
