"""The ACL matcher against a naive one, and Kafka's rules one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater_broker.security.standard_authorizer import (
    AclMatcher,
    Subject,
    pattern_of,
    plain_host,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE = Subject("User:alice", "10.0.0.1")


def acl(
    name: str = "t",
    operation: Operation = Operation.READ,
    permission: PermissionType = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def may(
    *acls: AclBinding,
    operation: Operation = Operation.READ,
    name: str = "t",
    subject: Subject = ALICE,
    kind: ResourceType = TOPIC,
) -> bool:
    return AclMatcher(acls).decide(subject, operation, kind, name).allowed


def may_any(*acls: AclBinding, operation: Operation = Operation.WRITE) -> bool:
    return AclMatcher(acls).decide_any(ALICE, operation, TOPIC)


def naive(
    acls: list[AclBinding],
    subject: Subject,
    operation: Operation,
    kind: ResourceType,
    name: str,
    everyone: bool,
) -> bool:
    """The rules as Kafka's documentation words them, on a list."""
    here = [
        a
        for a in acls
        if a.resource_type == kind
        and (
            (a.pattern_type == LITERAL and a.name in (name, "*"))
            or (a.pattern_type == PREFIXED and name.startswith(a.name))
        )
    ]
    if not here:
        return everyone
    mine = [
        a
        for a in here
        if a.principal in (subject.principal, "User:*") and a.host in (subject.host, "*")
    ]
    if any(a.permission == DENY and a.operation in (operation, Operation.ALL) for a in mine):
        return False
    enough = {operation.name, "ALL"}
    if operation == Operation.DESCRIBE:
        enough |= {"READ", "WRITE", "DELETE", "ALTER"}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {"ALTER_CONFIGS"}
    return any(a.permission == ALLOW and a.operation.name in enough for a in mine)


NAMES = st.sampled_from(("*", "a", "aa", "ab", "aab", "b", "ba", "b*"))
OPERATIONS = st.sampled_from([o for o in Operation if o >= Operation.ALL])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from((TOPIC, GROUP)),
    NAMES,
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from(("User:a", "User:b", "User:*")),
    st.sampled_from(("10.0.0.1", "10.0.0.2", "*")),
    OPERATIONS,
    st.sampled_from((ALLOW, DENY)),
)
SUBJECTS = st.builds(
    Subject, st.sampled_from(("User:a", "User:b")), st.sampled_from(("10.0.0.1", "10.0.0.2"))
)


@given(
    st.lists(BINDINGS, max_size=12),
    SUBJECTS,
    OPERATIONS,
    st.sampled_from((TOPIC, GROUP)),
    NAMES,
    st.booleans(),
)
def test_it_decides_as_a_naive_matcher(
    acls: list[AclBinding],
    subject: Subject,
    operation: Operation,
    kind: ResourceType,
    name: str,
    everyone: bool,
) -> None:
    found = AclMatcher(acls).decide(subject, operation, kind, name, allow_without_acls=everyone)
    assert found.allowed == naive(acls, subject, operation, kind, name, everyone)


@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, max_size=6), SUBJECTS, NAMES)
def test_replaced_patterns_leave_nothing_behind(
    before: list[AclBinding], after: list[AclBinding], subject: Subject, name: str
) -> None:
    matcher = AclMatcher(before)
    for pattern in {pattern_of(a) for a in before} | {pattern_of(a) for a in after}:
        matcher.replace(pattern, [a for a in after if pattern_of(a) == pattern])
    assert sorted(matcher) == sorted(set(after))
    assert matcher.decide(subject, Operation.READ, TOPIC, name) == AclMatcher(after).decide(
        subject, Operation.READ, TOPIC, name
    )


@given(st.lists(BINDINGS, max_size=8), SUBJECTS, OPERATIONS)
def test_a_right_on_some_resource_is_never_found_under_a_denied_everything(
    acls: list[AclBinding], subject: Subject, operation: Operation
) -> None:
    everything = acl("*", Operation.ALL, DENY, principal="User:*")
    assert not AclMatcher([*acls, everything]).decide_any(subject, operation, TOPIC)


def test_a_deny_wins_over_every_allow() -> None:
    assert may(acl())
    assert not may(acl(), acl(permission=DENY))
    assert not may(acl(), acl("*", permission=DENY, principal="User:*"))
    assert not may(acl(), acl("*", permission=DENY), name="t")
    assert not may(acl(), acl("t", Operation.ALL, DENY, PREFIXED))


def test_describe_is_implied_by_allow_only() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert may(acl(operation=operation), operation=Operation.DESCRIBE)
    assert not may(acl(operation=Operation.CREATE), operation=Operation.DESCRIBE)
    assert may(acl(operation=Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS)
    assert may(
        acl(operation=Operation.DESCRIBE),
        acl(operation=Operation.READ, permission=DENY),
        operation=Operation.DESCRIBE,
    )


def test_a_star_is_a_character_in_a_prefix() -> None:
    assert may(acl("*"), name="anything")
    assert not may(acl("*", pattern=PREFIXED), name="anything")
    assert may(acl("*", pattern=PREFIXED), name="*rest")


def test_principals_and_types_match_whole() -> None:
    assert may(acl(principal="User:*"))
    assert not may(acl(principal="User:alic"))
    assert not may(acl(principal="Group:alice"))
    assert not may(acl(kind=GROUP))


def test_hosts_are_compared_as_addresses() -> None:
    assert may(acl(host="10.0.0.1"))
    assert not may(acl(host="10.0.0.2"))
    assert may(acl(host="::ffff:10.0.0.1"))
    assert plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_host("0:0:0:0:0:0:0:1") == plain_host("::1")
    assert plain_host("local") == "local"


def test_a_right_on_some_resource() -> None:
    assert not may_any()
    assert may_any(acl(operation=Operation.WRITE))
    assert may_any(acl("*", Operation.ALL))
    assert not may_any(acl(operation=Operation.READ))
    assert not may_any(acl(operation=Operation.WRITE), acl("*", Operation.WRITE, DENY))
    assert not may_any(acl(operation=Operation.WRITE), acl("t", Operation.WRITE, DENY))
    assert not may_any(acl("team.a", Operation.WRITE), acl("team", Operation.ALL, DENY, PREFIXED))
    assert may_any(
        acl("te", Operation.WRITE, pattern=PREFIXED),
        acl("team", Operation.WRITE, DENY, PREFIXED),
    )
    assert may_any(acl("x", Operation.WRITE), acl("y", Operation.WRITE, DENY))


def test_filters_select() -> None:
    rows = [acl("a"), acl("*"), acl("ab", pattern=PREFIXED), acl("b", principal="User:b")]
    matcher = AclMatcher(rows)
    matching = AclFilter(TOPIC, "abc", PatternType.MATCH)
    assert matcher.selected(matching) == sorted([rows[1], rows[2]])
    assert matcher.selected(AclFilter(principal="User:b")) == [rows[3]]
