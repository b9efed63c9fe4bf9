"""Shared by CreateAcls and DeleteAcls: rights, this broker's copy of the ACLs."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.ports.metadata_store import StoreError
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.metadata.acl_store import AclStore

CATCH_UP_S = 5.0
"""How long a reply waits for this broker's own copy of the ACLs."""


def acl_store(ctx: RequestContext, operation: Operation) -> AclStore:
    """This broker's ACLs. Raises KafkaError (CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED)."""
    require_on_cluster(ctx, operation)
    if ctx.broker.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return ctx.broker.acls


async def caught_up(store: AclStore) -> None:
    """Read the change here too before the reply. Raises KafkaError(REQUEST_TIMED_OUT)."""
    try:
        async with asyncio.timeout(CATCH_UP_S):
            await store.catch_up()
    except (StoreError, TimeoutError) as e:
        text = f"the change is written, but this broker has not read it yet: {e}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from e
