"""ACLs and filters as the requests of Kafka's protocol carry them (API keys 29 to 31)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import groupby
from typing import Protocol, TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)
from headwater.wire.apis.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
)
from headwater.wire.apis.k30_create_acls import AclCreation
from headwater.wire.apis.k31_delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl

E = TypeVar("E", bound=IntEnum)
R = TypeVar("R")


class FilterRow(Protocol):
    """The fields of a filter, of DescribeAcls or DeleteAcls."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def _member(kind: type[E], code: int) -> E:
    """The member with this code; UNKNOWN for a code that is not known here."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def acl_of(row: AclCreation) -> AclBinding:
    """The ACL to create, unchecked."""
    return AclBinding(
        _member(ResourceType, row.resource_type),
        row.resource_name,
        _member(PatternType, row.resource_pattern_type),
        row.principal,
        row.host,
        _member(Operation, row.operation),
        _member(PermissionType, row.permission_type),
    )


def check_acl(acl: AclBinding) -> None:
    """Raises KafkaError(INVALID_REQUEST) for an ACL that cannot be created."""
    text = ""
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        text = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.name:
        text = "Invalid empty resource name"
    elif acl.resource_type <= ResourceType.ANY:
        text = f"Invalid resourceType {acl.resource_type.name}"
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        text = f"Invalid patternType {acl.pattern_type.name}"
    elif acl.operation <= Operation.ANY:
        text = f"Invalid operation {acl.operation.name}"
    elif acl.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        text = f"Invalid permissionType {acl.permission.name}"
    elif ":" not in acl.principal:
        text = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if text:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def creation(acl: AclBinding) -> AclCreation:
    """The row of CreateAcls."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def filter_of(row: FilterRow) -> AclFilter:
    """The filter. Raises KafkaError(INVALID_REQUEST) when a code of it is not known."""
    pattern = (
        _member(ResourceType, row.resource_type_filter),
        _member(PatternType, row.pattern_type_filter),
    )
    entry = _member(Operation, row.operation), _member(PermissionType, row.permission_type)
    if 0 in pattern:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if 0 in entry:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return AclFilter(
        pattern[0],
        row.resource_name_filter,
        pattern[1],
        row.principal_filter,
        row.host_filter,
        *entry,
    )


def describe_request(wanted: AclFilter) -> DescribeAclsRequest:
    """DescribeAcls with this filter."""
    return _filter_row(DescribeAclsRequest, wanted)


def delete_filter(wanted: AclFilter) -> DeleteAclsFilter:
    """The row of DeleteAcls."""
    return _filter_row(DeleteAclsFilter, wanted)


def _filter_row(kind: Callable[..., R], wanted: AclFilter) -> R:
    return kind(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def described(acls: Iterable[AclBinding]) -> tuple[DescribeAclsResource, ...]:
    """ACLs by resource, as DescribeAcls answers them."""
    return tuple(
        DescribeAclsResource(
            resource_type=key[0],
            resource_name=key[1],
            pattern_type=key[2],
            acls=tuple(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in rows
            ),
        )
        for key, rows in groupby(
            sorted(acls), key=lambda acl: (acl.resource_type, acl.name, acl.pattern_type)
        )
    )


def from_described(rows: Iterable[DescribeAclsResource]) -> list[AclBinding]:
    """The inverse of `described`."""
    return [
        AclBinding(
            _member(ResourceType, row.resource_type),
            row.resource_name,
            _member(PatternType, row.pattern_type),
            acl.principal,
            acl.host,
            _member(Operation, acl.operation),
            _member(PermissionType, acl.permission_type),
        )
        for row in rows
        for acl in row.acls
    ]


def deleted(acl: AclBinding) -> DeleteAclsMatchingAcl:
    """The row of an ACL that was deleted."""
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def from_deleted(row: DeleteAclsMatchingAcl) -> AclBinding:
    """The inverse of `deleted`."""
    return AclBinding(
        _member(ResourceType, row.resource_type),
        row.resource_name,
        _member(PatternType, row.pattern_type),
        row.principal,
        row.host,
        _member(Operation, row.operation),
        _member(PermissionType, row.permission_type),
    )
