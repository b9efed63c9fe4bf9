"""Admin calls about delegation tokens: requests, replies, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest

from headwater.client.admin.tokens import TokenCalls
from headwater.client.cluster import Cluster
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.wire.apis import k38_create_delegation_token as k38
from headwater.wire.apis import k39_renew_delegation_token as k39
from headwater.wire.apis import k41_describe_delegation_token as k41

T = TypeVar("T")


class OneBroker:
    """A cluster that gives the prepared replies."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[Any] = []

    async def any_node(self) -> int:
        return 1

    async def call(self, _node: int, request: Any, _response: Any) -> Any:
        self.asked.append(request)
        return self.replies.pop(0)

    async def retrying(self, _what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await attempt()

    def calls(self) -> TokenCalls:
        return TokenCalls(cast(Cluster, self))


def made(error: ErrorCode = ErrorCode.NONE) -> k38.CreateDelegationTokenResponse:
    return k38.CreateDelegationTokenResponse(
        error_code=error, principal_type="User", principal_name="carol",
        token_requester_principal_type="User", token_requester_principal_name="alice",
        issue_timestamp_ms=1, expiry_timestamp_ms=2, max_timestamp_ms=3, token_id="id",
        hmac=b"secret",
    )  # fmt: skip


def test_a_token_is_made_for_an_owner_with_renewers() -> None:
    broker = OneBroker(made())
    token = asyncio.run(broker.calls().create("User:carol", ["User:a:b"], -1))
    [request] = broker.asked
    assert (request.owner_principal_type, request.owner_principal_name) == ("User", "carol")
    assert request.renewers == (k38.CreatableRenewers(principal_type="User", principal_name="a:b"),)
    assert (token.owner, token.requester, token.renewers) == (
        "User:carol", "User:alice", ("User:a:b",)
    )  # fmt: skip
    assert token.password == "c2VjcmV0"
    assert "secret" not in repr(token)


def test_errors_are_typed_and_a_bad_principal_is_refused_before_anything_is_sent() -> None:
    broker = OneBroker(made(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
    with pytest.raises(KafkaError) as refused:
        asyncio.run(broker.calls().create(None, (), -1))
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    for text in ("alice", ":alice", "User:"):
        with pytest.raises(UsageError, match="User:name"):
            asyncio.run(broker.calls().create(text, (), -1))
    renewed = k39.RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp_ms=-1
    )
    with pytest.raises(KafkaError, match="DELEGATION_TOKEN_NOT_FOUND"):
        asyncio.run(OneBroker(renewed).calls().renew(b"x", -1))


def test_tokens_are_described_and_older_brokers_name_no_requester() -> None:
    row = k41.DescribedDelegationToken(
        principal_type="User", principal_name="alice", issue_timestamp=1, expiry_timestamp=2,
        max_timestamp=3, token_id="id", hmac=b"x",
        renewers=(k41.DescribedDelegationTokenRenewer(principal_type="User", principal_name="b"),),
    )  # fmt: skip
    broker = OneBroker(k41.DescribeDelegationTokenResponse(error_code=0, tokens=(row,)))
    [token] = asyncio.run(broker.calls().describe(["User:alice"]))
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice", "User:alice", ("User:b",)
    )  # fmt: skip
    [request] = broker.asked
    assert request.owners == (
        k41.DescribeDelegationTokenOwner(principal_type="User", principal_name="alice"),
    )
