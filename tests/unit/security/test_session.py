"""The session: decisions of the authorizer are remembered per generation of its ACLs."""

from __future__ import annotations

from headwater.ports.authorizer import AllowAll, Operation, Principal, Requester, ResourceType
from headwater_broker.security.session import DECISIONS_MAX, Session


class Acls(AllowAll):
    """Allows what it is told to, and remembers what it was asked."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.generation = 1
        self.allowed = set(allowed)
        self.asked: list[tuple[str, str, Operation, str]] = []

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        self.asked.append((requester.principal.name, requester.host, operation, name))
        return (requester.principal.name, name) in self.allowed


def session(acls: Acls) -> Session:
    return Session(acls, listener="SASL_SSL", host="10.0.0.1", principal=Principal("User", "alice"))


def read(made: Session, name: str) -> bool:
    return made.allows(Operation.READ, ResourceType.TOPIC, name)


def test_an_approval_is_asked_for_once_and_a_denial_each_time() -> None:
    acls = Acls(("alice", "flights"))
    made = session(acls)
    assert [read(made, "flights"), read(made, "flights"), read(made, "other")] == [
        True,
        True,
        False,
    ]
    assert not read(made, "other")
    assert acls.asked == [
        ("alice", "10.0.0.1", Operation.READ, "flights"),
        ("alice", "10.0.0.1", Operation.READ, "other"),
        ("alice", "10.0.0.1", Operation.READ, "other"),
    ]


def test_operations_and_resource_types_are_told_apart() -> None:
    acls = Acls(("alice", "flights"))
    made = session(acls)
    assert read(made, "flights")
    made.allows(Operation.WRITE, ResourceType.TOPIC, "flights")
    made.allows(Operation.READ, ResourceType.GROUP, "flights")
    assert len(acls.asked) == 3


def test_changed_acls_void_the_decisions() -> None:
    acls = Acls(("alice", "flights"))
    made = session(acls)
    assert read(made, "flights")
    acls.allowed.clear()
    assert read(made, "flights"), "the same generation: the decision stands"
    acls.generation += 1
    assert not read(made, "flights")


def test_authentication_voids_the_decisions() -> None:
    made = session(Acls(("alice", "flights")))
    assert read(made, "flights")
    made.authenticate(Principal("User", "bob"))
    assert not read(made, "flights")


def test_a_session_remembers_a_bounded_number_of_decisions() -> None:
    acls = Acls(*(("alice", f"t{number}") for number in range(DECISIONS_MAX + 1)))
    made = session(acls)
    for number in range(DECISIONS_MAX + 1):
        read(made, f"t{number}")
    read(made, f"t{DECISIONS_MAX}")
    assert len(acls.asked) == DECISIONS_MAX + 1
    read(made, "t0")
    assert len(acls.asked) == DECISIONS_MAX + 2, "forgotten with the others"
