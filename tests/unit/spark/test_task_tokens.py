"""Delegation tokens for tasks: one for a driver's processes, renewed, where brokers give one."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from headwater.client.admin.tokens import DelegationToken
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.testing.clocks import ManualClock
from headwater_spark.task_security import TaskSecurity, Tokens, task_security
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
        self.renewals = 0
        self.refusal: ErrorCode | None = None

    def __call__(self, servers: str, security: TaskSecurity) -> Any:
        is_driver = security.tokens is not Tokens.NEVER
        self.logins.append((servers, "password" if is_driver else "token"))
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

    def renew_delegation_token(self, hmac: bytes) -> int:
        (token,) = [t for t in self.tokens if t.hmac == hmac]
        expiry = min(self.clock.now_ms() + 24 * HOUR_MS, token.max_timestamp)
        self.tokens[self.tokens.index(token)] = replace(token, expiry_timestamp=expiry)
        self.renewals += 1
        return expiry

    def create_delegation_token(self, renewers: Sequence[str] = ()) -> DelegationToken:
        if self.refusal is not None:
            raise KafkaError(self.refusal, "no tokens here")
        now = self.clock.now_ms()
        token = DelegationToken(
            token_id=f"token-{len(self.tokens)}",
            owner="User:spark",
            requester="User:spark",
            renewers=tuple(renewers),
            issue_timestamp=now,
            expiry_timestamp=now + 24 * HOUR_MS,
            max_timestamp=now + 168 * HOUR_MS,
            hmac=b"secret-of-token" + str(len(self.tokens)).encode(),
        )
        self.tokens.append(token)
        return token


def test_processes_share_a_token_and_renew_it_at_half_of_its_time() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    security = task_security(LOGIN)
    first, second = (TaskTokens(clock, brokers) for _ in range(2))
    shipped = first.of("h:1", security)
    assert shipped == first.of("h:1", security) == second.of("h:1", security)
    clock.advance(11 * HOUR_MS)
    assert second.of("h:1", security) == shipped and brokers.renewals == 0
    clock.advance(1 * HOUR_MS)
    assert second.of("h:1", security) == shipped
    assert (len(brokers.tokens), brokers.renewals) == (1, 1)
    clock.advance(1 * HOUR_MS)
    assert second.of("h:1", security) == shipped and brokers.renewals == 1


def test_a_token_that_the_user_made_is_left_alone() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    brokers.create_delegation_token()
    TaskTokens(clock, brokers).of("h:1", task_security(LOGIN))
    assert [token.renewers for token in brokers.tokens] == [(), ("User:spark",)]


def test_a_token_at_the_end_of_its_life_is_replaced() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    security = task_security(LOGIN)
    tokens = TaskTokens(clock, brokers)
    seen = {tokens.of("h:1", security)}
    for _ in range(20):
        clock.advance(10 * HOUR_MS)
        seen.add(tokens.of("h:1", security))
        assert brokers.tokens[-1].expiry_timestamp > clock.now_ms() + 2 * HOUR_MS
    assert len(seen) == len(brokers.tokens) == 2


def test_a_token_that_the_brokers_have_lost_is_replaced() -> None:
    """As after a cluster was made anew on the same ports."""
    clock = ManualClock()
    brokers = Brokers(clock)
    security = task_security(LOGIN)
    tokens = TaskTokens(clock, brokers)
    shipped = tokens.of("h:1", security)
    brokers.tokens.clear()
    brokers.create_delegation_token()
    brokers.tokens[0] = replace(brokers.tokens[0], token_id="another", hmac=b"another")
    clock.advance(60_000)
    assert tokens.of("h:1", security) != shipped


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_where_brokers_give_none_tasks_log_in_themselves_unless_told_otherwise(
    code: ErrorCode,
) -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    brokers.refusal = code
    tokens = TaskTokens(clock, brokers)
    login = {**LOGIN, "kafka.sasl.password": "env:PASSWORD"}
    with pytest.raises(KafkaError, match="no tokens here"):
        tokens.of("h:1", task_security(login))
    given = task_security({**login, "headwater.delegation.token": "auto"})
    assert tokens.of("h:1", given) is given
    tokens.of("h:1", given)
    assert len(brokers.logins) == 2, "it is not asked for each micro-batch"


def test_every_broker_knows_a_new_token_before_tasks_get_it() -> None:
    clock = ManualClock()
    brokers = Brokers(clock)
    TaskTokens(clock, brokers).of("h:1", task_security(LOGIN))
    assert brokers.logins == [("h:1", "password"), ("a:1", "token"), ("a:2", "token")]


def test_what_is_shipped_has_the_token_and_not_the_login() -> None:
    clock = ManualClock()
    shipped = TaskTokens(clock, Brokers(clock)).of("h:1", task_security(LOGIN))
    found = dict(shipped.properties)["sasl.jaas.config"]
    assert base64.b64encode(b"secret-of-token0").decode() in found
    assert 'tokenauth="true"' in found
    assert b"databricks:kafka/spark" not in pickle.dumps(shipped)
    assert "secret-of-token" not in repr(shipped)


def test_when_told_so_tasks_log_in_as_the_driver_does() -> None:
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
        ({"headwater.delegation.token": "yes"}, "must be one of true, false, auto"),
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
