"""The arguments of `headwater acls` as ACLs and filters."""

from __future__ import annotations

import pytest

from headwater.cli.acl_arguments import (
    Entries,
    Resources,
    bindings,
    consumer_bindings,
    filters,
    operation,
    operation_name,
    producer_bindings,
)
from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType

ALICE = Entries(allowed=("User:alice",))
FLIGHTS = Resources(topics=("flights",))


def shown(acls: list[AclBinding]) -> set[str]:
    return {f"{a.resource_type.name} {a.name} {operation_name(a.operation)}" for a in acls}


def test_without_an_operation_it_is_all_from_every_host() -> None:
    (acl,) = bindings(FLIGHTS, ALICE)
    assert acl == AclBinding(
        ResourceType.TOPIC,
        "flights",
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.ALL,
        PermissionType.ALLOW,
    )


def test_each_resource_operation_principal_and_host_is_an_acl() -> None:
    resources = Resources(topics=("a", "b"))
    entries = Entries(("User:x",), ("User:y",), ("h1", "h2"), (), ("read", "Write"))
    found = bindings(resources, entries)
    assert len(found) == 2 * 2 * (2 + 1)
    assert {a.host for a in found if a.permission is PermissionType.DENY} == {"*"}


def test_a_producer_needs_its_topic_its_transactions_and_for_old_brokers_the_cluster() -> None:
    resources = Resources(topics=("t",), transactional_ids=("x",))
    assert shown(producer_bindings(resources, ALICE, idempotent=False)) == {
        "TOPIC t Write",
        "TOPIC t Describe",
        "TOPIC t Create",
        "TRANSACTIONAL_ID x Write",
        "TRANSACTIONAL_ID x Describe",
    }
    found = producer_bindings(FLIGHTS, ALICE, idempotent=True)
    assert "CLUSTER kafka-cluster IdempotentWrite" in shown(found)


def test_a_consumer_needs_its_topic_and_its_group() -> None:
    resources = Resources(topics=("t",), groups=("g",), pattern_type=PatternType.PREFIXED)
    found = consumer_bindings(resources, ALICE)
    assert shown(found) == {"TOPIC t Read", "TOPIC t Describe", "GROUP g Read"}
    assert {acl.pattern_type for acl in found} == {PatternType.PREFIXED}


def test_the_cluster_is_never_prefixed() -> None:
    resources = Resources(cluster=True, pattern_type=PatternType.PREFIXED)
    (acl,) = bindings(resources, ALICE)
    assert acl.pattern_type is PatternType.LITERAL


def test_filters_of_nothing_select_everything() -> None:
    everything = Resources(pattern_type=PatternType.ANY)
    assert filters(everything) == [AclFilter()]
    (one,) = filters(Resources(topics=("t",), pattern_type=PatternType.MATCH), ["User:alice"])
    assert (one.name, one.principal) == ("t", "User:alice")


def test_an_exact_filter_selects_its_acl_alone() -> None:
    one, other = bindings(FLIGHTS, Entries(("User:a", "User:b")))
    assert AclFilter.exactly(one).matches(one) and not AclFilter.exactly(one).matches(other)


@pytest.mark.parametrize("text", ["DescribeConfigs", "describe_configs", "DESCRIBE-CONFIGS"])
def test_operations_have_kafkas_names(text: str) -> None:
    assert operation(text) is Operation.DESCRIBE_CONFIGS


@pytest.mark.parametrize(
    ("resources", "entries", "said"),
    [
        (Resources(), ALICE, "which resource"),
        (FLIGHTS, Entries(), "whose ACL"),
        (FLIGHTS, Entries(allowed=("alice",)), "'alice': write it as User:alice"),
        (FLIGHTS, Entries(allowed=("User:a",), operations=("Fly",)), "'Fly'"),
        (FLIGHTS, Entries(allowed=("User:a",), operations=("ClusterAction",)), "for topic"),
        (FLIGHTS, Entries(allowed=("User:a",), deny_hosts=("h",)), "--deny-host goes with"),
    ],
)
def test_bad_input_names_the_value_and_the_remedy(
    resources: Resources, entries: Entries, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        bindings(resources, entries)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (Entries(allowed=("User:a",), operations=("Read",)), "leave --operation out"),
        (Entries(denied=("User:a",)), "--allow-principal only"),
        (ALICE, "--consumer needs --group"),
    ],
)
def test_a_role_is_refused_with_what_contradicts_it(entries: Entries, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        consumer_bindings(FLIGHTS, entries)
