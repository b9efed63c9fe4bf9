"""API keys that this broker does not serve but answers, with UNSUPPORTED_VERSION.

ApiVersions does not list them, but some clients send them without looking there: they read an error
in the key's own shape instead of the end of the connection. A key that stands neither here nor in
the registry closes its connection, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k50_describe_user_scram_credentials as k50
from headwater.wire.apis import k51_alter_user_scram_credentials as k51
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


def alter_user_scram_credentials(
    ctx: RequestContext, request: k51.AlterUserScramCredentialsRequest
) -> k51.AlterUserScramCredentialsResponse:
    """One error per user."""
    users = [row.name for row in request.deletions] + [row.name for row in request.upsertions]
    return k51.AlterUserScramCredentialsResponse(
        results=tuple(
            k51.AlterUserScramCredentialsResult(
                user=user, error_code=UNSUPPORTED, error_message=UNSERVED
            )
            for user in dict.fromkeys(users)
        )
    )


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
        _row(
            k50.DescribeUserScramCredentialsRequest,
            k50.DescribeUserScramCredentialsResponse,
            refuse,
        ),
        _row(
            k51.AlterUserScramCredentialsRequest,
            k51.AlterUserScramCredentialsResponse,
            alter_user_scram_credentials,
        ),
    )
}
"""By API key. A key that is registered (`headwater_broker.api.registry`) is served instead."""
