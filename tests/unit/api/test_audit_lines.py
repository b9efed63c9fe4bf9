"""Audit lines of requests that change the cluster: every one has them, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import AllowAll, Principal
from headwater.ports.metadata_store import StoreError
from headwater.testing.clocks import ManualClock
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k10013_share_holds as k10013
from headwater.wire.schema import Message
from headwater_broker.api.admin.audit_lines import LINE_MAX, TEXT_MAX, audited
from headwater_broker.api.admin.audit_table import AUDITED
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.k30_create_acls import create_acls
from headwater_broker.api.k31_delete_acls import delete_acls
from headwater_broker.api.registry import load_handlers
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.security.audit_entry import AuditEntry
from headwater_broker.security.audit_log import LINES_PER_S_MAX, AuditLog
from headwater_broker.security.session import Session
from headwater_broker.security.standard_authorizer import StandardAuthorizer
from unit.api.audit_cases import ACL, CASES, HERE, acl_filter, altered, creation, settings
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ADMINISTRATORS = {
    "records and offsets": {0, 1, 2, 8, 9, 23, 28},
    "members of groups": {10, 11, 12, 13, 14, 68, 76},
    "transactions": {22, 24, 25, 26},
    "reading": {3, 15, 16, 29, 32, 35, 41, 46, 48, 50, 60, 61, 65, 66, 69, 74, 75, 77, 90},
    "logins": {17, 18, 36},
    "share partitions": {78, 79, 83, 84, 85, 86, 87},
    "epochs of sinks": {10000, 10001, 10002, 10003, 10004, 10005, 10006},
    "tools that read": {10009, 10010, 10011},
}


class Denies(AllowAll):
    """Nothing is allowed."""

    def authorize(self, *_: Any) -> bool:
        return False


class Asked:
    """A request that reached a broker with an authorizer, and the audit lines it left."""

    def __init__(self, authorizer: AllowAll | None = None, **services: Any) -> None:
        self.entries: list[AuditEntry] = []
        self.clock = ManualClock()
        audit = AuditLog(self.clock, self.entries.append)
        found = SimpleNamespace(
            acls=SimpleNamespace(authorizer=SimpleNamespace(audit=audit)), **services
        )
        who, host = Principal("User", "a"), "10.0.0.1"
        session = Session(authorizer or AllowAll(), listener="L", host=host, principal=who)
        self.ctx = RequestContext(cast(Services, found), session, "test", 0, 1)

    @property
    def lines(self) -> list[str]:
        return [entry.line for entry in self.entries]

    def send(self, request: Message, handler: Callable[..., Any]) -> Any:
        return audited(handler, AUDITED[request.api_key])(self.ctx, request)

    def results(self, request: Message) -> list[str]:
        """What the lines say after who asked for what."""
        name = type(request).__name__.removesuffix("Request")
        head = f"Principal = User:a requested {name} from host = 10.0.0.1, result = "
        assert all(line.startswith(head) for line in self.lines), self.lines
        return [line.removeprefix(head) for line in self.lines]


def test_every_api_key_leaves_audit_lines_or_is_listed_as_no_administrators() -> None:
    """A new handler fails here: give its key a row of `audit_table.AUDITED`, or list it above."""
    listed = [key for keys in NO_ADMINISTRATORS.values() for key in keys]
    rows = load_handlers()
    assert sorted([*AUDITED, *listed]) == sorted(rows)
    passed_by = [key for key in AUDITED if rows[key].raw or rows[key].at_once]
    assert passed_by == [], "only the general handler of a key leaves its lines"


def asked(authorizer: AllowAll | None = None) -> Asked:
    known = {b"secret": SimpleNamespace(token_id="id1")}
    return Asked(
        authorizer,
        broker_id=3,
        view=SimpleNamespace(topic_by_id={HERE: SimpleNamespace(name="t")}),
        tokens=SimpleNamespace(with_hmac=known.get),
    )


@pytest.mark.parametrize(
    ("request_", "reply", "wanted"), CASES, ids=[type(row[0]).__name__ for row in CASES]
)
def test_a_line_says_who_from_where_what_and_the_result(
    request_: Message, reply: Message, wanted: list[str]
) -> None:
    one = asked()
    assert one.send(request_, lambda _ctx, _request: reply) is reply
    assert one.results(request_) == wanted
    assert "secret" not in str(one.entries)


def test_the_parts_of_a_line_are_columns_of_its_entry() -> None:
    one, request = asked(), groups("g", "h\n")
    code = {"g": ErrorCode.NONE, "h\n": ErrorCode.NON_EMPTY_GROUP}
    rows = (k42.DeletableGroupResult(group_id=g, error_code=code[g]) for g in code)
    reply = k42.DeleteGroupsResponse(results=tuple(rows))
    one.send(request, lambda _ctx, _request: reply)
    head = "Principal = User:a requested DeleteGroups from host = 10.0.0.1, result = "
    assert one.entries == [
        AuditEntry(
            line=f"{head}{result}: {detail}",
            principal="User:a",
            host="10.0.0.1",
            request="DeleteGroups",
            result=result,
            detail=detail,
        )
        for result, detail in (("NONE", "group g"), ("NON_EMPTY_GROUP", "group h\\u000a"))
    ]


def test_the_cases_are_of_all_audited_keys() -> None:
    assert {request.api_key for request, _, _ in CASES} == set(AUDITED)


@pytest.mark.parametrize(
    "request_", [row[0] for row in CASES], ids=[type(row[0]).__name__ for row in CASES]
)
def test_a_request_that_ends_without_a_reply_leaves_lines_too(request_: Message) -> None:
    async def story() -> None:
        one, began = asked(), asyncio.Event()

        async def waits(_ctx: RequestContext, _request: Message) -> Message:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError("it is cancelled")

        task = asyncio.ensure_future(one.send(request_, waits))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (line,) = one.results(request_)
        assert line.startswith("unknown (CancelledError): ")

    asyncio.run(story())


def groups(*names: str) -> k42.DeleteGroupsRequest:
    return k42.DeleteGroupsRequest(groups_names=names)


def test_the_error_of_a_handler_is_the_result() -> None:
    def fails(_ctx: RequestContext, _request: Message) -> Message:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "elsewhere")

    one, request = asked(), groups("g")
    with pytest.raises(KafkaError):
        one.send(request, fails)
    assert one.results(request) == ["NOT_CONTROLLER: group g"]


def test_what_is_denied_is_the_authorizers_line_and_what_is_validated_is_none() -> None:
    one = asked()
    topic = k19.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    row = k19.CreatableTopicResult(name="t", error_code=DENIED, error_message=None)
    denied = k19.CreateTopicsRequest(topics=(topic,))
    one.send(denied, lambda _ctx, _request: k19.CreateTopicsResponse(topics=(row,)))
    dry = k19.CreateTopicsRequest(topics=(topic,), validate_only=True)
    one.send(dry, lambda _ctx, _request: k19.CreateTopicsResponse(topics=()))
    assert one.lines == []


def test_a_row_that_the_reply_lacks_is_not_left_out() -> None:
    one, request = asked(), groups("g")
    one.send(request, lambda _ctx, _request: k42.DeleteGroupsResponse(results=()))
    assert one.results(request) == ["UNKNOWN_SERVER_ERROR: group g"]


@pytest.mark.parametrize("authorizer", [AllowAll(), Denies()])
def test_markers_of_a_coordinator_are_no_administrators(authorizer: AllowAll) -> None:
    """Without the right of brokers, its number does not hide an operator's request."""
    row = next(request for request, _, _ in CASES if request.api_key == 27)
    assert isinstance(row, k27.WriteTxnMarkersRequest)
    request = k27.WriteTxnMarkersRequest(markers=row.markers, broker_id=2)
    one = asked(authorizer)
    one.send(request, lambda _ctx, _request: k27.WriteTxnMarkersResponse(markers=()))
    assert len(one.lines) == (0 if type(authorizer) is AllowAll else 1)


def test_holds_of_queries_are_no_administrators() -> None:
    one = asked()
    rows = (k10013.ShareHoldPartition(topic_id=HERE, partition=0),)
    for operation in range(5):
        request = k10013.ShareHoldsRequest(
            group_id="g", operation=operation, owner="q", partitions=rows
        )
        one.send(request, lambda _ctx, _request: k10013.ShareHoldsResponse())
    assert one.lines == []


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (2, "sasl.jaas.config", "password=hunter2"),
        (4, "ssl.keystore.password", "hunter2"),
        (4, "listener.name.l.ssl.key.password", "hunter2"),
        (8, "headwater_broker", "hunter2"),
        (77, "x", "hunter2"),
    ],
)
def test_values_that_may_be_secrets_are_hidden(kind: int, key: str, value: str) -> None:
    one = asked()
    request = k44.IncrementalAlterConfigsRequest(
        resources=(settings((key, 0, value), kind=kind, name="1"),)
    )
    refused = altered(kind, "1", ErrorCode.INVALID_CONFIG)
    reply = k44.IncrementalAlterConfigsResponse(responses=(refused,))
    one.send(request, lambda _ctx, _request: reply)
    assert f"{key}=(hidden)" in one.lines[0] and "hunter2" not in str(one.lines)


def answer(code: ErrorCode) -> Callable[[RequestContext, Any], Message]:
    def handler(_ctx: RequestContext, request: k42.DeleteGroupsRequest) -> Message:
        rows = (k42.DeletableGroupResult(group_id=g, error_code=code) for g in request.groups_names)
        return k42.DeleteGroupsResponse(results=tuple(rows))

    return handler


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_what_may_be_changed_is_never_left_out(code: ErrorCode) -> None:
    one = asked()
    for number in range(LINES_PER_S_MAX + 5):
        one.send(groups(str(number % 3)), answer(code))
    assert len(one.lines) == LINES_PER_S_MAX + 5


def test_a_loop_of_refused_requests_does_not_fill_the_disk() -> None:
    one = asked()
    for _ in range(1_000):
        one.send(groups("g"), answer(ErrorCode.NON_EMPTY_GROUP))
    assert len(one.lines) == 1
    for number in range(1_000):
        one.send(groups(str(number)), answer(ErrorCode.NON_EMPTY_GROUP))
    assert len(one.lines) == LINES_PER_S_MAX
    one.clock.advance(1_000)
    one.send(groups("g"), answer(ErrorCode.NON_EMPTY_GROUP))
    assert "(999 more times)" in one.lines[-1]
    assert [entry.repeats for entry in one.entries] == [0] * len(one.entries[:-1]) + [999]


def test_lines_of_a_large_request_are_few_and_bounded() -> None:
    one = asked()
    names = [f"group-{number}" for number in range(2_000)]
    one.send(groups("x" * 100_000, *names), answer(ErrorCode.NONE))
    assert len(one.lines) < 15
    assert all(len(line) < LINE_MAX + TEXT_MAX for line in one.lines)
    assert all(f"group {name}" in str(one.lines) for name in names)


def test_a_name_cannot_forge_a_line() -> None:
    one = asked()
    one.send(groups("g\nPrincipal = User:admin"), answer(ErrorCode.NONE))
    assert one.results(groups())[0] == "NONE: group g\\u000aPrincipal = User:admin"


def test_without_an_authorizer_the_handler_is_called_as_it_is() -> None:
    one = asked()
    cast(Any, one.ctx.broker).acls = None
    one.send(groups("g"), answer(ErrorCode.NONE))
    assert one.lines == []


class LateAcls(AclStore):
    """A broker's copy of the ACLs that is not read in time."""

    is_late = False

    async def catch_up(self) -> None:
        if self.is_late:
            raise StoreError("the store is slow")
        await super().catch_up()


def test_acls_are_audited_though_the_broker_does_not_read_them_in_time() -> None:
    """They are written by then: an error in the reply does not undo them."""

    async def story(cluster: Cluster) -> None:
        entries: list[AuditEntry] = []
        asked = standby(cluster)
        audit = AuditLog(ManualClock(), entries.append)
        acls = LateAcls(asked.store, StandardAuthorizer(frozenset(), audit))
        await acls.start()
        acls.is_late = True
        ctx = context(asked, 3)
        cast(Any, ctx.broker).acls = acls
        made = await cast(
            Awaitable[Any], create_acls(ctx, k30.CreateAclsRequest(creations=(creation("t"),)))
        )
        assert made.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        gone = await cast(
            Awaitable[Any], delete_acls(ctx, k31.DeleteAclsRequest(filters=(acl_filter(None),)))
        )
        assert gone.filter_results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert [(e.principal, e.request, e.result, e.detail) for e in entries] == [
            ("User:test", "CreateAcls", "REQUEST_TIMED_OUT", f"{ACL}t"),
            ("User:test", "DeleteAcls", "REQUEST_TIMED_OUT", f"{ACL}t"),
        ]
        await acls.close()

    play(story)
