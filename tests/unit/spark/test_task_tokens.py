"""Delegation tokens for tasks: one for a driver's processes, renewed at half of its time."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from headwater.client.admin.tokens import DelegationToken
from headwater.errors import UsageError
from headwater.testing.clocks import ManualClock
from headwater_spark.task_security import TaskSecurity, task_security
from headwater_spark.task_tokens import TaskTokens

HOUR_MS = 3_600_000
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "spark",
    "kafka.sasl.password": "databricks:kafka/spark",
    "headwater.delegation.token": "true",
}


class Brokers:
    """A cluster's tokens, and who logged in where."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.tokens: list[DelegationToken] = []
        self.logins: list[tuple[str, str | None]] = []

    def __call__(self, servers: str, security: TaskSecurity) -> Any:
        self.logins.append((servers, "password" if security.uses_tokens else "token"))
        return self

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        pass

    def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(host="a", port=n) for n in (1, 2)])

    def describe_delegation_tokens(self, owners: Sequence[str]) -> list[DelegationToken]:
        return [token for token in self.tokens if token.owner in owners]

    def create_delegation_token(self) -> DelegationToken:
        now = self.clock.now_ms()
        token = DelegationToken(
            token_id=f"token-{len(self.tokens)}",
            owner="User:spark",
            requester="User:spark",
            renewers=(),
            issue_timestamp=now,
            expiry_timestamp=now + 24 * HOUR_MS,
            max_timestamp=now + 168 * HOUR_MS,
            hmac=b"secret-of-token",
        )
        self.tokens.append(token)
        return token


def test_processes_share_a_token_until_half_of_its_time() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    security = task_security(LOGIN)
    first, second = (TaskTokens(clock, brokers) for _ in range(2))
    shipped = first.of("h:1", security)
    assert shipped == first.of("h:1", security) == second.of("h:1", security)
    assert len(brokers.tokens) == 1
    clock.advance(12 * HOUR_MS)
    assert second.of("h:1", security) != shipped
    assert len(brokers.tokens) == 2


def test_every_broker_knows_a_new_token_before_tasks_get_it() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    TaskTokens(clock, brokers).of("h:1", task_security(LOGIN))
    assert brokers.logins == [("h:1", "password"), ("a:1", "token"), ("a:2", "token")]


def test_what_is_shipped_has_the_token_and_not_the_login() -> None:
    clock = ManualClock()
    shipped = TaskTokens(clock, Brokers(clock)).of("h:1", task_security(LOGIN))
    found = dict(shipped.properties)["sasl.jaas.config"]
    assert base64.b64encode(b"secret-of-token").decode() in found
    assert 'tokenauth="true"' in found
    assert b"databricks:kafka/spark" not in pickle.dumps(shipped)
    assert "token" not in repr(shipped).removeprefix("TaskSecurity(uses_tokens=False)")


def test_without_the_option_tasks_log_in_as_the_driver_does() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    security = task_security(
        {
            **LOGIN,
            "headwater.delegation.token": "false",
            "kafka.sasl.password": "env:PASSWORD",
        }
    )
    assert TaskTokens(clock, brokers).of("h:1", security) is security
    assert brokers.logins == []


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"headwater.delegation.token": "yes"}, "must be true or false"),
        ({"kafka.sasl.password": "blue-Horse-9"}, "give env:NAME or file:PATH"),
    ],
)
def test_a_wrong_option_names_the_remedy(change: dict[str, str], remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy) as error:
        task_security({**LOGIN, **change})
    assert "blue-Horse-9" not in str(error.value)


def test_tokens_need_a_sasl_listener() -> None:
    with pytest.raises(UsageError, match="set SASL_SSL"):
        task_security({"kafka.security.protocol": "SSL", "headwater.delegation.token": "true"})
