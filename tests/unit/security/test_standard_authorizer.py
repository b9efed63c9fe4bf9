"""The authorizer over ACLs: super users, loading, sessions that forget, audit lines."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from headwater.config.keys import broker_values
from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, Principal, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater.testing.clocks import ManualClock
from headwater_broker.security.audit_entry import AuditEntry
from headwater_broker.security.audit_log import AUDIT_LOGGER, LINES_PER_S_MAX, AuditLog
from headwater_broker.security.session import Session
from headwater_broker.security.standard_authorizer import (
    StandardAuthorizer,
    pattern_of,
    super_users,
)

TOPIC, READ = ResourceType.TOPIC, Operation.READ


def acl(principal: str = "User:alice", name: str = "t") -> AclBinding:
    return AclBinding(TOPIC, name, PatternType.LITERAL, principal, "*", READ, PermissionType.ALLOW)


def authorizer(*, everyone: bool = False, clock: ManualClock | None = None) -> StandardAuthorizer:
    audit = AuditLog(clock or ManualClock())
    users = frozenset({"User:admin"})
    return StandardAuthorizer(users, audit, allow_without_acls=everyone)


def session(of: StandardAuthorizer, name: str) -> Session:
    return Session(of, listener="L", host="10.0.0.1", principal=Principal("User", name, "L"))


def test_super_users_may_do_everything_even_before_the_acls_are_loaded() -> None:
    acls = authorizer()
    assert session(acls, "admin").allows(READ, TOPIC, "t")
    assert session(acls, "admin").allows_any(READ, TOPIC)
    assert not session(acls, "alice").allows(READ, TOPIC, "t")
    assert not session(acls, "alice").allows_any(READ, TOPIC)


def test_a_session_forgets_its_decisions_when_the_acls_change() -> None:
    acls = authorizer()
    acls.load([acl()])
    alice = session(acls, "alice")
    before = alice.revision
    assert alice.allows(READ, TOPIC, "t")
    acls.update({pattern_of(acl()): ()})
    assert not alice.allows(READ, TOPIC, "t")
    assert alice.revision != before
    acls.update({pattern_of(acl()): [acl()]})
    assert alice.allows(READ, TOPIC, "t")
    assert acls.acls(AclFilter()) == [acl()]


def test_everyone_is_allowed_only_where_no_acl_is() -> None:
    acls = authorizer(everyone=True)
    acls.load([acl()])
    bob = session(acls, "bob")
    assert bob.allows(READ, TOPIC, "other")
    assert not bob.allows(READ, TOPIC, "t")


def test_super_users_of_the_settings() -> None:
    assert super_users("User:a; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
    with pytest.raises(UsageError, match=r"super\.users: 'alice'"):
        super_users("alice")


def test_an_authorizer_without_super_users_does_not_start() -> None:
    values = broker_values(
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    )
    with pytest.raises(UsageError, match=r"set super\.users=User:name"):
        StandardAuthorizer.from_values(values, AuditLog(ManualClock()))


def test_denials_are_written_once_a_second_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    acls = authorizer(clock=clock)
    acls.load([acl()])
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for _ in range(4):
            session(acls, "mallory\nPrincipal = User:admin").allows(READ, TOPIC, "t")
        clock.advance(1500)
        session(acls, "mallory\nPrincipal = User:admin").allows(READ, TOPIC, "t")
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:mallory\\u000aPrincipal = User:admin is Denied operation = READ "
        "from host = 10.0.0.1 on resource = Topic:LITERAL:t based on rule DefaultDeny" + more
        for more in ("", " (3 more times)")
    ]


def test_the_parts_of_a_denial_are_columns_of_its_entry() -> None:
    clock, entries = ManualClock(), list[AuditEntry]()
    acls = StandardAuthorizer(frozenset(), AuditLog(clock, entries.append))
    acls.load([acl()])
    bob = session(acls, "bob\n")
    for _ in range(3):
        assert not bob.allows(READ, TOPIC, "t")
    clock.advance(1000)
    assert not bob.allows(READ, TOPIC, "t")
    first = AuditEntry(
        line="Principal = User:bob\\u000a is Denied operation = READ from host = 10.0.0.1 "
        "on resource = Topic:LITERAL:t based on rule DefaultDeny",
        principal="User:bob\\u000a",
        host="10.0.0.1",
        operation="READ",
        resource="Topic:LITERAL:t",
        result="DENIED",
        detail="DefaultDeny",
    )
    again = replace(first, line=f"{first.line} (2 more times)", repeats=2)
    assert entries == [first, again]


def test_a_session_counts_every_denial(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    acls = authorizer(clock=clock)
    acls.load([])
    bob = session(acls, "bob")
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for _ in range(5):
            assert not bob.allows(READ, TOPIC, "t")
        clock.advance(1000)
        assert not bob.allows(READ, TOPIC, "t")
    assert [record.getMessage().rpartition(" (")[2] for record in caplog.records][1:] == [
        "4 more times)"
    ]


def test_a_flood_of_different_denials_does_not_fill_the_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    acls = authorizer(clock=clock)
    acls.load([])
    bob = session(acls, "bob")
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for number in range(5000):
            assert not bob.allows(READ, TOPIC, str(number))
        assert len(caplog.records) == LINES_PER_S_MAX
        clock.advance(1000)
        bob.allows(READ, TOPIC, "t")
    assert "4900 more denials" in caplog.text


def test_a_list_of_rights_is_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    acls = authorizer()
    acls.load([])
    bob = session(acls, "bob")
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        with bob.quietly():
            assert not bob.allows(READ, TOPIC, "t")
        assert not caplog.records
        assert not bob.allows(READ, TOPIC, "t")
    assert len(caplog.records) == 1
