"""Headwater's own API keys in the rights matrix: Kafka has no answer, a rule says what is allowed.

DrainBroker ends the broker: it is sent for users without the right only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import CLUSTER_NAME, WILDCARD, AclBinding, PatternType, PermissionType
from headwater.wire.apis import k10000_allocate_epoch_ticket as k10000
from headwater.wire.apis import k10001_join_epoch as k10001
from headwater.wire.apis import k10002_commit_epoch as k10002
from headwater.wire.apis import k10003_abort_epoch as k10003
from headwater.wire.apis import k10004_prepare_epoch as k10004
from headwater.wire.apis import k10005_epoch_heartbeat as k10005
from headwater.wire.apis import k10006_describe_sinks as k10006
from headwater.wire.apis import k10007_delete_sinks as k10007
from headwater.wire.apis import k10008_take_over_sink as k10008
from headwater.wire.apis import k10009_broker_status as k10009
from headwater.wire.apis import k10010_offsets_at_bytes as k10010
from headwater.wire.apis import k10011_tier_hint as k10011
from headwater.wire.apis import k10012_drain_broker as k10012
from headwater.wire.apis import k10013_share_holds as k10013
from headwater.wire.schema import Message
from headwater.wire.share_hold_operation import ShareHoldOperation
from suites.rights_requests import GONE, HERE, Request

LOOPBACK = "127.0.0.1"
SINK = GONE
SINK_ID = f"__hw.{SINK}"
"""The transactional id whose rights are those of the sink."""
REFUSALS = {
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""What an ALLOW of these operations allows besides."""

Rule = Callable[[tuple[AclBinding, ...]], bool]
"""A user's ACLs -> whether the request is allowed."""


class OwnRequest(NamedTuple):
    """A request and who may send it."""

    request: Request
    rule: Rule
    hides: str = ""
    """The code of a refusal that does not say that it is one."""
    is_for_refused_only: bool = False


def may(acls: Iterable[AclBinding], operation: Operation, kind: ResourceType, name: str) -> bool:
    """Kafka's rule: a DENY of the operation or of All wins; then an ALLOW, also an implied one."""
    near = [acl for acl in acls if _is_near(acl, kind, name)]
    exact = {operation, Operation.ALL}
    allowed = exact | IMPLIED.get(operation, set())
    return not any(
        acl.permission is PermissionType.DENY and acl.operation in exact for acl in near
    ) and any(acl.permission is PermissionType.ALLOW and acl.operation in allowed for acl in near)


def _is_near(acl: AclBinding, kind: ResourceType, name: str) -> bool:
    if acl.resource_type is not kind or acl.host not in (WILDCARD, LOOPBACK):
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


def _rule(operation: Operation, kind: ResourceType, name: str) -> Rule:
    return lambda acls: may(acls, operation, kind, name)


def _writes_any(acls: tuple[AclBinding, ...]) -> bool:
    """No DENY of the matrix covers all that an ALLOW of it does."""
    return any(
        acl.resource_type is ResourceType.TRANSACTIONAL_ID
        and acl.permission is PermissionType.ALLOW
        and acl.operation in (Operation.WRITE, Operation.ALL)
        and acl.host in (WILDCARD, LOOPBACK)
        for acl in acls
    )


def own_requests(here: UUID) -> Iterator[OwnRequest]:
    """`here`: the id of the topic that exists."""

    def of(message: Message, response: type[Message]) -> Request:
        return Request(type(message).__name__.removesuffix("Request"), message, response, 0)

    describes = _rule(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    acts = _rule(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    reads = _rule(Operation.READ, ResourceType.TOPIC, HERE)
    yield OwnRequest(of(k10009.BrokerStatusRequest(), k10009.BrokerStatusResponse), describes)
    part = k10010.OffsetAtBytesPartition(topic=HERE, partition=0, start_offset=0, max_bytes=1)
    at_bytes = k10010.OffsetsAtBytesRequest(partitions=(part,))
    yield OwnRequest(of(at_bytes, k10010.OffsetsAtBytesResponse), reads)
    hint = of(k10011.TierHintRequest(topic_id=here), k10011.TierHintResponse)
    yield OwnRequest(hint, reads, hides="UNKNOWN_TOPIC_ID")
    drain = of(k10012.DrainBrokerRequest(), k10012.DrainBrokerResponse)
    yield OwnRequest(drain, acts, is_for_refused_only=True)
    holds = k10013.ShareHoldsRequest(
        group_id=HERE, operation=ShareHoldOperation.DESCRIBE, partitions=()
    )
    sees = _rule(Operation.DESCRIBE, ResourceType.GROUP, HERE)
    yield OwnRequest(of(holds, k10013.ShareHoldsResponse), sees)
    ticket = of(k10000.AllocateEpochTicketRequest(), k10000.AllocateEpochTicketResponse)
    yield OwnRequest(ticket, _writes_any)
    writes = _rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, SINK_ID)
    for message, response in _on_epochs():
        yield OwnRequest(of(message, response), writes)
    shown = of(k10006.DescribeSinksRequest(sinks=(SINK,)), k10006.DescribeSinksResponse)
    yield OwnRequest(shown, _rule(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, SINK_ID))
    yield from _on_holds(here, reads)


def _on_holds(here: UUID, reads: Rule) -> Iterator[OwnRequest]:
    """Of a share group that has read nothing: none is stored."""
    rows = (k10013.ShareHoldPartition(topic_id=here, partition=0),)
    for operation, right in (
        (ShareHoldOperation.DESCRIBE, Operation.DESCRIBE),
        (ShareHoldOperation.CLAIM, Operation.READ),
        (ShareHoldOperation.END_RELEASED, Operation.READ),
    ):
        message = k10013.ShareHoldsRequest(
            group_id=HERE, operation=operation, owner="nobody", ticket=0, partitions=rows
        )
        name = f"ShareHolds {operation.name}"
        on_group = _rule(right, ResourceType.GROUP, HERE)
        yield OwnRequest(
            Request(name, message, k10013.ShareHoldsResponse, 0),
            lambda acls, on_group=on_group: on_group(acls) and reads(acls),
        )


def _on_epochs() -> Iterator[tuple[Message, type[Message]]]:
    """Of a run that nobody began: none is stored."""
    fields = {"sink": SINK, "owner": "nobody", "run": UUID(int=9), "ticket": 0, "epoch": 0}
    join = k10001.JoinEpochRequest(**{**fields, "owner": ""})
    yield join, k10001.JoinEpochResponse
    yield k10002.CommitEpochRequest(**fields, is_prepared=True), k10002.CommitEpochResponse
    yield k10003.AbortEpochRequest(**fields), k10003.AbortEpochResponse
    yield k10004.PrepareEpochRequest(**fields), k10004.PrepareEpochResponse
    yield k10005.EpochHeartbeatRequest(**fields), k10005.EpochHeartbeatResponse
    yield k10007.DeleteSinksRequest(sinks=(SINK,)), k10007.DeleteSinksResponse
    yield k10008.TakeOverSinkRequest(sink=SINK, owner="nobody"), k10008.TakeOverSinkResponse


def is_refused(own: OwnRequest, codes: Iterable[str]) -> bool:
    """Whether a reply with these error codes refuses for want of rights."""
    return bool(({own.hides} if own.hides else REFUSALS) & set(codes) - {ErrorCode.NONE.name})
