"""What each form plans, and what its confirmation asks of the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.client.admin.scram import ScramDeletion, ScramUpsertion
from headwater.client.share_group_values import ShareGroupDescription
from headwater.client.values import (
    GroupDescription,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater_gateway.console.addresses import ROOT, address
from unit.console.consoles import Console, topic
from unit.console.full_cluster import ACL, CONFIGS, HOSTILE, TP, config, full_admin

EMPTY = GroupDescription("app", "Empty", "consumer", "", ())


def done(_given: Any = None, *_args: Any, **_options: Any) -> None:
    """A call that succeeds."""


def outcomes(targets: Any, *_args: Any, **_options: Any) -> dict[TopicPartition, None]:
    return dict.fromkeys(targets)


def console(**answers: Any) -> Console:
    empty = {"describe_groups": {"app": EMPTY, HOSTILE: EMPTY}}
    return Console(full_admin(**empty | answers))


def write(page: Console, path: str, fields: Mapping[str, str], call: str) -> Any:
    """Plan, and see that nothing was done; confirm, and return the call's arguments."""
    page.admin.answers.setdefault(call, done)
    plan = page.plan(path, fields)
    asked = [c for c in page.admin.calls if c[0] == call and not c[2].get("validate_only")]
    assert asked == []
    reply = page.confirm(path, plan)
    assert reply.status_code == 303, reply.text
    asked = [c for c in page.admin.calls if c[0] == call and not c[2].get("validate_only")]
    assert len(asked) == 1
    return asked[0][1]


def test_create_a_topic() -> None:
    fields = {"name": "new", "partitions": "6", "replication": "", "configs": "retention.ms=5\n"}
    args = write(console(), "/topic-new", fields, "create_topics")
    assert args == ([NewTopic("new", 6, -1, {"retention.ms": "5"})],)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "flights"}, "exists already"),
        ({"name": ""}, "name is empty"),
        ({"name": "x", "partitions": "0"}, "give a whole number"),
        ({"name": "x", "partitions": "9" * 400}, "give a whole number"),
        ({"name": "x", "configs": "nonsense"}, "write key=value"),
    ],
)
def test_a_bad_topic_is_told_before_any_plan(fields: dict[str, str], told: str) -> None:
    page = console(create_topics=done)
    reply = page.browser.post("/console/topic-new", data=fields)
    assert reply.status_code == 400 and told in reply.text
    assert page.admin.named("create_topics") == []


def test_delete_a_topic_by_its_typed_name() -> None:
    page = console()
    assert (
        page.browser.post("/console/topics/flights/delete", data={"name": "x"}).status_code == 400
    )
    args = write(page, "/topics/flights/delete", {"name": "flights"}, "delete_topics")
    assert args == (["flights"],)


def test_grow_a_topic() -> None:
    args = write(console(), "/topics/flights/partitions", {"partitions": "5"}, "create_partitions")
    assert args == ({"flights": 5},)
    reply = console().browser.post("/console/topics/flights/partitions", data={"partitions": "3"})
    assert reply.status_code == 400


def test_delete_records_below_an_offset_of_one_partition() -> None:
    fields = {"before": "400", "partitions": "1"}
    args = write(console(), "/topics/flights/empty", fields, "delete_records")
    assert args == ({TP: 400},)


def test_move_a_partition() -> None:
    page = console(alter_partition_reassignments=outcomes)
    fields = {"partition": "1", "replicas": "1, 0"}
    args = write(page, "/topics/flights/move", fields, "alter_partition_reassignments")
    assert args == ({TP: [1, 0]},)
    for bad in ("7", "0 0", "", "x"):
        fields = {"partition": "1", "replicas": bad}
        assert page.browser.post("/console/topics/flights/move", data=fields).status_code == 400


def test_cancel_a_move() -> None:
    page = console(alter_partition_reassignments=outcomes)
    fields = {"topic": "flights", "partition": "1"}
    args = write(page, "/moves/cancel", fields, "alter_partition_reassignments")
    assert args == ({TP: None},)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"to": "earliest"}, {TP: 100}),
        ({"to": "latest"}, {TP: 1000}),
        ({"to": "offset", "value": "300"}, {TP: 300}),
        ({"to": "offset", "value": "5"}, {TP: 100}),
        ({"to": "timestamp", "value": "2026-11-25T18:20:00Z"}, {TP: 500}),
        (
            {"to": "earliest", "topic": "flights", "partitions": "0 2"},
            {TopicPartition("flights", 0): 100, TopicPartition("flights", 2): 100},
        ),
    ],
)
def test_set_offsets_of_a_group(fields: dict[str, str], wanted: dict[TopicPartition, int]) -> None:
    args = write(console(), "/group/offsets?id=app", fields, "alter_group_offsets")
    assert args == ("app", wanted)


def test_set_offsets_to_a_version_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ends(clients: Any, topic: str, at: Any) -> dict[int, int]:
        asked.append((topic, at))
        return {0: 10, 1: 20, 2: 30}

    monkeypatch.setattr("headwater_gateway.console.views.group_offsets.table_ends", ends)
    fields = {"to": "version", "value": "7", "topic": "flights"}
    args = write(console(), "/group/offsets?id=app", fields, "alter_group_offsets")
    assert args[1][TP] == 20
    assert asked == [("flights", 7)] * 2


def test_offsets_of_a_group_with_members_stay() -> None:
    page = Console(full_admin())
    reply = page.browser.post(
        "/console/group/offsets", params={"id": HOSTILE}, data={"to": "earliest"}
    )
    assert reply.status_code == 400 and "stop its consumers first" in reply.text


def test_offsets_that_moved_meanwhile_are_409() -> None:
    page = console(alter_group_offsets=done)
    plan = page.plan("/group/offsets?id=app", {"to": "earliest"})
    page.admin.answers["list_group_offsets"] = {TP: OffsetAndMetadata(901)}
    assert page.confirm("/group/offsets?id=app", plan).status_code == 409
    assert page.admin.named("alter_group_offsets") == []


def test_forget_a_topic_and_delete_a_group() -> None:
    page = console(delete_group_offsets=lambda group, rows: dict.fromkeys(rows))
    fields = {"topic": "flights"}
    args = write(page, "/group/forget?id=app", fields, "delete_group_offsets")
    assert args == ("app", [TP])
    assert write(console(), "/group/delete?id=app", {}, "delete_groups") == (["app"],)


UNUSED = ShareGroupDescription("app", "Empty", 4, 4, "simple", ())


@pytest.mark.parametrize(
    ("path", "fields", "call", "wanted"),
    [
        ("offsets", {"to": "offset", "value": "500", "topic": "flights", "partitions": "1"},
         "alter_share_group_offsets", ("app", {TP: 500})),
        ("forget", {"topic": "flights"}, "delete_share_group_offsets", ("app", ["flights"])),
        ("delete", {}, "delete_groups", (["app"],)),
    ],
)  # fmt: skip
def test_changes_of_a_share_group(
    path: str, fields: dict[str, str], call: str, wanted: tuple[Any, ...]
) -> None:
    page = console(
        describe_share_groups={"app": UNUSED},
        alter_share_group_offsets=lambda _group, rows: dict.fromkeys(rows),
        delete_share_group_offsets=lambda _group, topics: dict.fromkeys(topics),
    )
    assert write(page, f"/share-group/{path}?id=app", fields, call) == wanted


def test_a_share_group_with_members_stays() -> None:
    page = Console(full_admin())
    for path in ("offsets", "forget", "delete"):
        reply = page.browser.post(
            f"/console/share-group/{path}", params={"id": HOSTILE}, data={"topic": "flights"}
        )
        assert reply.status_code == 400 and "stop its consumers first" in reply.text


def test_set_and_reset_a_config() -> None:
    path = "/topics/flights/configs"
    args = write(console(), path, {"key": "retention.ms", "value": "7"}, "alter_configs")
    assert args == ("topic", "flights", {"retention.ms": "7"})
    args = write(console(), path, {"key": "retention.ms", "reset": "1"}, "alter_configs")
    assert args == ("topic", "flights", {"retention.ms": None})
    args = write(
        console(), "/brokers/all/configs", {"key": "retention.ms", "value": "7"}, "alter_configs"
    )
    assert args == ("broker", "", {"retention.ms": "7"})


def test_a_secret_config_shows_nowhere() -> None:
    page = console(alter_configs=done)
    fields = {"key": "sasl.jaas.config", "value": "hunter2"}
    text = page.browser.post("/console/brokers/0/configs", data=fields).text
    assert "hunter2" not in text and "(hidden)" in text


def test_read_only_configs_and_unknown_brokers_are_refused() -> None:
    page = console(alter_configs=done)
    for path, key in (("/brokers/0/configs", "log.dirs"), ("/brokers/x/configs", "retention.ms")):
        reply = page.browser.post(f"/console{path}", data={"key": key, "value": "1"})
        assert reply.status_code == 400


def test_a_config_that_changed_meanwhile_is_409() -> None:
    page = console(alter_configs=done)
    plan = page.plan("/topics/flights/configs", {"key": "retention.ms", "value": "7"})
    page.admin.answers["describe_configs"] = CONFIGS | {"retention.ms": config("retention.ms", "8")}
    assert page.confirm("/topics/flights/configs", plan).status_code == 409


def test_abort_a_transaction_fences_its_producer() -> None:
    path = address("transaction", "abort", id=HOSTILE).removeprefix(ROOT)
    assert write(console(), path, {}, "fence_producers") == ([HOSTILE],)


def test_a_transaction_whose_end_is_decided_is_not_aborted() -> None:
    [found] = full_admin().answers["describe_transactions"]([HOSTILE]).values()
    page = console(describe_transactions={HOSTILE: found._replace(state="CompleteAbort")})
    path = address("transaction", "abort", id=HOSTILE)
    reply = page.browser.post(path)
    assert reply.status_code == 400 and "nothing is left to abort" in reply.text
    assert "hx-post" not in page.get("/transaction", id=HOSTILE)


def test_a_hanging_transaction_gets_an_abort_marker() -> None:
    [blocker] = full_admin().answers["transaction_blockers"]
    hanging = blocker._replace(is_hanging=True, transactional_id=None)
    page = console(transaction_blockers=[hanging])
    fields = {"topic": "flights", "partition": "1", "first_offset": "900"}
    args = write(page, "/transactions/abort-hanging", fields, "abort_transaction")
    assert args == (("flights", 1),)
    reply = console().browser.post("/console/transactions/abort-hanging", data=fields)
    assert reply.status_code == 400 and "nothing hangs" in reply.text


def test_elect_preferred_leaders() -> None:
    rows = {"flights": topic("flights", 3, leader=1)}
    page = console(describe_topics=rows, elect_leaders=lambda _kind, tps: dict.fromkeys(tps))
    kind, partitions = write(page, "/topics/flights/elect", {}, "elect_leaders")
    assert kind == "preferred" and len(partitions) == 3


def test_add_and_delete_an_acl() -> None:
    fields = {
        "principal": "ann",
        "permission": "ALLOW",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "flights",
        "pattern": "LITERAL",
        "host": "",
    }
    acl = AclBinding(
        ResourceType.TOPIC,
        "flights",
        PatternType.LITERAL,
        "User:ann",
        "*",
        Operation.READ,
        PermissionType.ALLOW,
    )
    assert write(console(), "/access/acls", fields, "create_acls") == ([acl],)
    fields = {
        "delete": "1",
        "principal": ACL.principal,
        "permission": "ALLOW",
        "operation": "READ",
        "resource": "TOPIC",
        "name": ACL.name,
        "pattern": "PREFIXED",
        "host": "*",
    }
    ((wanted,),) = write(console(), "/access/acls", fields, "delete_acls")
    assert isinstance(wanted, AclFilter) and wanted.matches(ACL)
    assert wanted.name == HOSTILE and wanted.host == "*"


def test_a_password_is_asked_for_at_the_confirmation_only() -> None:
    page = console(alter_user_scram_credentials=done)
    fields = {"user": "ann", "mechanism": "SCRAM-SHA-512"}
    plan = page.plan("/access/users", fields)
    assert page.confirm("/access/users", plan, password="hunter2").status_code == 303
    [(changes,)] = page.admin.named("alter_user_scram_credentials")
    assert changes == [ScramUpsertion("ann", "hunter2")]
    assert "hunter2" not in str(page.services.audit.recent())


def test_delete_a_password() -> None:
    fields = {"user": HOSTILE, "mechanism": "SCRAM-SHA-512", "delete": "1"}
    args = write(console(), "/access/users", fields, "alter_user_scram_credentials")
    assert args == ([ScramDeletion(HOSTILE)],)


def test_set_and_remove_a_quota() -> None:
    fields = {"client-id": HOSTILE, "user": "*", "quota": "consumer_byte_rate", "value": "2048"}
    entity = {"client-id": HOSTILE, "user": None}
    args = write(console(), "/access/quotas", fields, "alter_client_quotas")
    assert args == (entity, {"consumer_byte_rate": 2048.0})
    args = write(console(), "/access/quotas", {**fields, "delete": "1"}, "alter_client_quotas")
    assert args == (entity, {"consumer_byte_rate": None})
    for bad in ("-1", "nan", "inf", "x", ""):
        reply = console().browser.post("/console/access/quotas", data={**fields, "value": bad})
        assert reply.status_code == 400
