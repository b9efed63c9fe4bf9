"""What audit lines say of changes of ACLs, users, delegation tokens and quotas (`audit_table`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from headwater.config.quota_precedence import plain_name
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from headwater.security.acl_requests import acl_of, from_deleted
from headwater.security.scram_credential import mechanism_of_code
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis import k38_create_delegation_token as k38
from headwater.wire.apis import k39_renew_delegation_token as k39
from headwater.wire.apis import k40_expire_delegation_token as k40
from headwater.wire.apis import k48_describe_client_quotas as k48
from headwater.wire.apis import k49_alter_client_quotas as k49
from headwater.wire.apis import k51_alter_user_scram_credentials as k51
from headwater_broker.api.admin.audit_lines import WHOLE, Audit, Change, Outcome, whole
from headwater_broker.api.context import RequestContext
from headwater_broker.security.audit_entry import pascal
from headwater_broker.security.delegation_tokens import owner_of, principal_text


def _acl(acl: AclBinding) -> str:
    return (
        f"{acl.permission.name} {acl.operation.name} to {acl.principal} from {acl.host} on "
        f"{pascal(acl.resource_type.name)}:{acl.pattern_type.name}:{acl.name}"
    )


def _acls(_ctx: RequestContext, request: k30.CreateAclsRequest) -> Iterator[Change]:
    return ((place, f"ACL {_acl(acl_of(row))}") for place, row in enumerate(request.creations))


def _acls_rows(reply: k30.CreateAclsResponse) -> Iterator[Outcome]:
    return (Outcome(place, row.error_code) for place, row in enumerate(reply.results))


def _code(kind: type[IntEnum], code: int) -> str:
    return next((member.name for member in kind if member == code), str(code))


def _filters(_ctx: RequestContext, request: k31.DeleteAclsRequest) -> Iterator[Change]:
    for place, row in enumerate(request.filters):
        resource = pascal(_code(ResourceType, row.resource_type_filter))
        pattern = _code(PatternType, row.pattern_type_filter)
        what = f"{_code(PermissionType, row.permission_type)} {_code(Operation, row.operation)}"
        who = f"{row.principal_filter or 'any'} from {row.host_filter or 'any'}"
        where = f"{resource}:{pattern}:{row.resource_name_filter or 'any'}"
        yield place, f"no ACL of {what} to {who} on {where}"


def _filters_rows(reply: k31.DeleteAclsResponse) -> Iterator[Outcome]:
    for place, row in enumerate(reply.filter_results):
        for acl in row.matching_acls:
            yield Outcome(place, acl.error_code or row.error_code, f"ACL {_acl(from_deleted(acl))}")
        if not row.matching_acls:
            yield Outcome(place, row.error_code)


def _users(_ctx: RequestContext, request: k51.AlterUserScramCredentialsRequest) -> Iterator[Change]:
    """Without anything of the credential."""
    for removed in request.deletions:
        yield removed.name, f"{_mechanism(removed.mechanism)} of User:{removed.name} removed"
    for put in request.upsertions:
        yield put.name, f"{_mechanism(put.mechanism)} of User:{put.name} set"


def _mechanism(code: int) -> str:
    mechanism = mechanism_of_code(code)
    return f"mechanism {code}" if mechanism is None else mechanism.value


def _users_rows(reply: k51.AlterUserScramCredentialsResponse) -> Iterator[Outcome]:
    return (Outcome(row.user, row.error_code) for row in reply.results)


def _token(ctx: RequestContext, request: k38.CreateDelegationTokenRequest) -> Iterator[Change]:
    requester = principal_text(ctx.principal.kind, ctx.principal.name)
    owner = owner_of(request.owner_principal_type, request.owner_principal_name, requester)
    yield WHOLE, f"delegation token of {owner}"


def _token_rows(reply: k38.CreateDelegationTokenResponse) -> Iterator[Outcome]:
    owner = principal_text(reply.principal_type, reply.principal_name)
    text = f"delegation token {reply.token_id} of {owner}" if not reply.error_code else ""
    yield Outcome(WHOLE, reply.error_code, text)


def _token_by_hmac(ctx: RequestContext, secret: bytes) -> str:
    known = ctx.broker.tokens.with_hmac(secret)
    return "delegation token " + ("of unknown id" if known is None else known.token_id)


def _renewed(ctx: RequestContext, request: k39.RenewDelegationTokenRequest) -> Iterator[Change]:
    token = _token_by_hmac(ctx, bytes(request.hmac))
    yield WHOLE, f"{token} for {request.renew_period_ms} ms"


def _expired(ctx: RequestContext, request: k40.ExpireDelegationTokenRequest) -> Iterator[Change]:
    token = _token_by_hmac(ctx, bytes(request.hmac))
    wait_ms = request.expiry_time_period_ms
    yield WHOLE, f"{token} now" if wait_ms < 0 else f"{token} in {wait_ms} ms"


def _entity(entity: tuple[k48.EntityData, ...]) -> Hashable:
    return frozenset((e.entity_type, plain_name(e.entity_type, e.entity_name)) for e in entity)


def _quotas(_ctx: RequestContext, request: k49.AlterClientQuotasRequest) -> Iterator[Change]:
    for entry in request.entries if not request.validate_only else ():
        who = ", ".join(
            f"{e.entity_type} {'<default>' if e.entity_name is None else e.entity_name}"
            for e in entry.entity
        )
        what = ", ".join(
            f"{op.key} removed" if op.remove else f"{op.key}={op.value:g}" for op in entry.ops
        )
        yield _entity(entry.entity), f"quotas of {who}: {what}"


def _quotas_rows(reply: k49.AlterClientQuotasResponse) -> Iterator[Outcome]:
    return (Outcome(_entity(row.entity), row.error_code) for row in reply.entries)


AUDITED_OF_SECURITY: Mapping[int, Audit[Any, Any]] = MappingProxyType(
    {
        k30.CreateAclsRequest.api_key: Audit(_acls, _acls_rows),
        k31.DeleteAclsRequest.api_key: Audit(_filters, _filters_rows),
        k38.CreateDelegationTokenRequest.api_key: Audit(_token, _token_rows),
        k39.RenewDelegationTokenRequest.api_key: Audit(_renewed, whole),
        k40.ExpireDelegationTokenRequest.api_key: Audit(_expired, whole),
        k49.AlterClientQuotasRequest.api_key: Audit(_quotas, _quotas_rows),
        k51.AlterUserScramCredentialsRequest.api_key: Audit(_users, _users_rows),
    }
)
"""By API key."""
