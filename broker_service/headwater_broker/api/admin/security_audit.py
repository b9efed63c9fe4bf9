"""Audit lines of admin requests that change the cluster's security, except ACLs."""

from __future__ import annotations

from headwater_broker.api.context import RequestContext
from headwater_broker.security.delegation_tokens import principal_text


def audit(ctx: RequestContext, change: str) -> None:
    """Note a change by the client of `ctx`, where the broker has audit lines."""
    if ctx.broker.acls is not None:
        requester = principal_text(ctx.principal.kind, ctx.principal.name)
        ctx.broker.acls.authorizer.audit.changed(requester, change)
