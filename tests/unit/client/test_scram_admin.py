"""Requests about SCRAM users: what leaves the client, and what does not."""

from __future__ import annotations

import pytest

from headwater.client.admin.scram import ScramDeletion, ScramUpsertion, alter_request
from headwater.errors import UsageError
from headwater.security.scram_credential import ScramMechanism, salted_password


def test_the_password_itself_is_not_sent() -> None:
    request = alter_request([ScramUpsertion("alice", "her password"), ScramDeletion("bob")])
    (row,) = request.upsertions
    assert "her password" not in repr(request)
    expected = salted_password(ScramMechanism.SCRAM_SHA_512, "her password", row.salt, 8_192)
    assert (row.salted_password, row.mechanism, row.iterations) == (expected, 2, 8_192)
    assert [(r.name, r.mechanism) for r in request.deletions] == [("bob", 2)]


def test_salts_differ() -> None:
    request = alter_request([ScramUpsertion("a", "p"), ScramUpsertion("b", "p")])
    assert len({row.salted_password for row in request.upsertions}) == 2


def test_a_password_is_not_in_repr() -> None:
    assert "secret" not in repr(ScramUpsertion("alice", "secret"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (ScramUpsertion("", "p"), "name of a user is empty"),
        (ScramUpsertion("alice", ""), "alice: the password is empty"),
        (ScramUpsertion("alice", "p", iterations=4_095), "4095 iterations: give 4096"),
        (ScramUpsertion("alice", "p", "SCRAM-SHA-1"), "SCRAM-SHA-1"),
    ],
)
def test_what_brokers_would_refuse_is_not_sent(change: ScramUpsertion, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        alter_request([change])
