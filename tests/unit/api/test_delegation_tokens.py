"""Delegation tokens (KIP-48): real handlers, controller, znodes; the watch that brokers follow."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Principal, Requester, ResourceType
from headwater.ports.metadata_store import Create
from headwater.security.protocol import SecurityProtocol
from headwater.wire.apis import k38_create_delegation_token as k38
from headwater.wire.apis import k39_renew_delegation_token as k39
from headwater.wire.apis import k40_expire_delegation_token as k40
from headwater.wire.apis import k41_describe_delegation_token as k41
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.k38_create_delegation_token import create_delegation_token
from headwater_broker.api.k39_renew_delegation_token import renew_delegation_token
from headwater_broker.api.k40_expire_delegation_token import expire_delegation_token
from headwater_broker.api.k41_describe_delegation_token import describe_delegation_token
from headwater_broker.controller.events import ExpireTokens
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.metadata.token_watch import TokenWatch
from headwater_broker.metadata.token_znodes import TOKEN_CHANGES, TOKENS, token_path
from headwater_broker.security.audit_entry import AskedChange
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable
from headwater_broker.security.session import Session
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until

SECRET = "a secret of all brokers"
HOUR_MS = 3_600_000
CONFIG = ControllerConfig(
    token_secrets=TokenSecrets(SECRET),
    token_lifetime_max_ms=10 * HOUR_MS,
    token_expiry_time_ms=2 * HOUR_MS,
)


def play(
    story: Callable[[Cluster], Awaitable[None]], config: ControllerConfig | None = None
) -> None:
    async def main() -> None:
        async with Cluster(3, config) as cluster:
            await asyncio.wait_for(story(cluster), 30)

    asyncio.run(main())


class Denies(AllowAll):
    """No rights on users and tokens, but these."""

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self.allowed = allowed

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, name) in self.allowed


class Broker:
    """The part of a broker that serves tokens."""

    def __init__(self, broker: FakeBroker, secrets: TokenSecrets | None = None) -> None:
        self.fake = broker
        self.table = TokenTable(secrets or TokenSecrets(SECRET))
        self.audited: list[tuple[str, str]] = []

        def note(change: AskedChange) -> None:
            self.audited.append((change.principal, change.text))

        audit = SimpleNamespace(changed=note, refused=note)
        self.acls = SimpleNamespace(authorizer=SimpleNamespace(audit=audit))
        self.watch = TokenWatch(broker.store, self.table)

    def ask(self, user: str, authorizer: Any = None, **session: Any) -> RequestContext:
        services = SimpleNamespace(
            controller=self.fake.calls, view=self.fake.view, clock=self.fake.clock,
            tokens=self.table, acls=self.acls,
        )  # fmt: skip
        found = Session(
            authorizer or Denies(), listener="SASL", principal=Principal("User", user),
            security_protocol=session.get("protocol", SecurityProtocol.SASL_SSL),
        )  # fmt: skip
        found.is_authenticated = session.get("is_authenticated", True)
        found.is_token = session.get("is_token", False)
        return RequestContext(cast(Services, services), found, "test", session.get("version", 3), 1)

    async def create(self, ctx: RequestContext, **fields: Any) -> k38.CreateDelegationTokenResponse:
        given = {
            "owner_principal_type": None, "owner_principal_name": None, "renewers": (),
            "max_lifetime_ms": -1, **fields,
        }  # fmt: skip
        request = k38.CreateDelegationTokenRequest(**given)
        reply = await cast("Awaitable[Any]", create_delegation_token(ctx, request))
        return cast(k38.CreateDelegationTokenResponse, reply)

    async def renew(self, user: str, secret: bytes, period_ms: int = -1) -> tuple[ErrorCode, int]:
        request = k39.RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
        ctx = self.ask(user, version=2)
        reply = await cast("Awaitable[Any]", renew_delegation_token(ctx, request))
        return ErrorCode(reply.error_code), reply.expiry_timestamp_ms

    async def expire(self, user: str, secret: bytes, period_ms: int) -> tuple[ErrorCode, int]:
        request = k40.ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
        ctx = self.ask(user, version=2)
        reply = await cast("Awaitable[Any]", expire_delegation_token(ctx, request))
        return ErrorCode(reply.error_code), reply.expiry_timestamp_ms

    def seen(self, ctx: RequestContext, *owners: str, every: bool = True) -> list[str]:
        rows = tuple(
            k41.DescribeDelegationTokenOwner(principal_type="User", principal_name=o)
            for o in owners
        )
        request = k41.DescribeDelegationTokenRequest(owners=None if every else rows)
        reply = describe_delegation_token(ctx, request)
        assert isinstance(reply, k41.DescribeDelegationTokenResponse)
        if reply.error_code:
            return [ErrorCode(reply.error_code).name]
        return [row.token_id for row in reply.tokens]


def tell(story: Callable[[Broker, Broker], Awaitable[None]]) -> None:
    """Run a story on two brokers that follow the tokens of one cluster."""

    async def run(cluster: Cluster) -> None:
        brokers = [Broker(broker) for broker in cluster.all()[:2]]
        for broker in brokers:
            await broker.watch.start()
        await story(brokers[0], brokers[1])
        for broker in brokers:
            await broker.watch.stop()

    play(run, config=CONFIG)


def renewer(name: str) -> tuple[k38.CreatableRenewers, ...]:
    return (k38.CreatableRenewers(principal_type="User", principal_name=name),)


def test_a_token_is_stored_in_kafkas_layout_and_known_to_all_brokers() -> None:
    async def story(one: Broker, two: Broker) -> None:
        made = await one.create(one.ask("al ice"), renewers=renewer("bob"))
        assert made.error_code == 0 and made.token_id in one.table, "the asked broker knows it"
        now_ms = one.fake.clock.now_ms()
        assert made.issue_timestamp_ms == now_ms
        assert made.expiry_timestamp_ms == now_ms + 2 * HOUR_MS
        assert made.max_timestamp_ms == now_ms + 10 * HOUR_MS
        secret = hmac.digest(SECRET.encode(), made.token_id.encode(), hashlib.sha512)
        assert made.hmac == secret
        node = await one.fake.store.get(token_path(made.token_id))
        row = json.loads(node.data)
        assert row.pop("signer") and SECRET not in node.data.decode()
        assert row == {
            "version": 3, "owner": "User%3Aal%20ice", "tokenRequester": "User%3Aal%20ice",
            "renewers": ["User%3Abob"], "issueTimestamp": now_ms,
            "maxTimestamp": made.max_timestamp_ms, "expiryTimestamp": made.expiry_timestamp_ms,
            "tokenId": made.token_id,
        }  # fmt: skip
        await until(lambda: made.token_id in two.table)
        login = two.table.find_token(made.token_id)
        assert login is not None and login.hmac == secret
        assert login.owner == Principal("User", "al ice")
        assert login.expiry_ms == made.expiry_timestamp_ms
        assert two.table.find_token("nobody") is None
        assert secret.hex() not in repr(login) and SECRET not in repr(one.table.secrets)

    tell(story)


def test_owners_and_renewers_renew_others_do_not_and_no_token_outlives_its_lifetime() -> None:
    async def story(one: Broker, two: Broker) -> None:
        made = await one.create(one.ask("alice"), renewers=renewer("bob"))
        secret, now_ms = made.hmac, one.fake.clock.now_ms()
        assert await one.renew("bob", secret, HOUR_MS) == (ErrorCode.NONE, now_ms + HOUR_MS)
        assert await one.renew("alice", secret) == (ErrorCode.NONE, now_ms + 2 * HOUR_MS)
        longest = await one.renew("alice", secret, 5 * HOUR_MS)
        assert longest == (ErrorCode.NONE, now_ms + 2 * HOUR_MS), "the broker's limit"
        for call in (one.renew("eve", secret), one.expire("eve", secret, -1)):
            assert await call == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
        for call in (one.renew("alice", b"x"), one.expire("alice", b"x", -1)):
            assert await call == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
        short = await one.create(one.ask("alice"), max_lifetime_ms=HOUR_MS)
        assert short.expiry_timestamp_ms == short.max_timestamp_ms == now_ms + HOUR_MS
        assert await one.renew("alice", short.hmac) == (ErrorCode.NONE, now_ms + HOUR_MS)
        assert await one.expire("bob", secret, 5_000) == (ErrorCode.NONE, now_ms + 5_000)

        def expiry() -> int:
            found = two.table.find_token(made.token_id)
            return 0 if found is None else found.expiry_ms

        await until(lambda: expiry() == now_ms + 5_000)
        done, _ = await one.expire("bob", secret, -1)
        assert done is ErrorCode.NONE
        token = f"delegation token {made.token_id}"
        asked = "requested {}DelegationToken from host = , result = NONE: " + token
        assert one.audited[0] == ("User:alice", f"{asked.format('Create')} of User:alice")
        assert one.audited[1] == ("User:bob", f"{asked.format('Renew')} for {HOUR_MS} ms")
        assert one.audited[-1] == ("User:bob", f"{asked.format('Expire')} now")
        assert secret.hex() not in str(one.audited)
        await until(lambda: made.token_id not in two.table)
        assert await one.renew("alice", secret) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)

    tell(story)


def test_an_expired_token_is_refused_and_then_removed() -> None:
    async def run(cluster: Cluster) -> None:
        active = next(b for b in cluster.all() if b.controller.is_active)
        one = Broker(active)
        await one.watch.start()
        made = await one.create(one.ask("alice"))
        active.clock.wall_ms = made.expiry_timestamp_ms + 1
        assert await one.renew("alice", made.hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
        assert await one.expire("alice", made.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
        loop = active.controller.controller_loop
        assert loop is not None
        loop.post(ExpireTokens(active.clock.now_ms()))
        await until(lambda: made.token_id not in one.table)
        assert await active.store.children(TOKENS) == []
        await one.watch.stop()

    play(run, config=CONFIG)


def test_a_token_for_another_needs_create_tokens_on_that_user() -> None:
    async def story(one: Broker, two: Broker) -> None:
        carol = {"owner_principal_type": "User", "owner_principal_name": "carol"}
        refused = await one.create(one.ask("alice"), **carol)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == (
            "carol",
            "alice",
        )
        allowed = Denies((Operation.CREATE_TOKENS, "User:carol"))
        made = await one.create(one.ask("alice", allowed), **carol)
        assert made.error_code == 0 and made.principal_name == "carol"
        found = one.table.find_token(made.token_id)
        assert found is not None and found.owner.name == "carol"
        assert one.seen(one.ask("carol")) == [made.token_id]
        assert one.seen(one.ask("alice")) == [], "who asked for a token does not own it"
        group = (k38.CreatableRenewers(principal_type="Group", principal_name="x"),)
        wrong = await one.create(one.ask("alice"), renewers=group)
        assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    tell(story)


def test_tokens_of_others_are_seen_with_describe_or_describe_tokens_only() -> None:
    async def story(one: Broker, two: Broker) -> None:
        made = await one.create(one.ask("alice"), renewers=renewer("bob"))
        for user, rights, sees in (
            ("alice", Denies(), True),
            ("bob", Denies(), True),
            ("eve", Denies(), False),
            ("eve", Denies((Operation.DESCRIBE, made.token_id)), True),
            ("eve", Denies((Operation.DESCRIBE_TOKENS, "User:alice")), True),
        ):
            assert one.seen(one.ask(user, rights)) == ([made.token_id] if sees else []), user
        alice = one.ask("alice")
        assert one.seen(alice, "alice", every=False) == [made.token_id]
        assert one.seen(alice, "carol", every=False) == []
        assert one.seen(alice, every=False) == [], "an empty list asks for nothing"

    tell(story)


@pytest.mark.parametrize(
    "session",
    [
        {"is_token": True},
        {"protocol": SecurityProtocol.PLAINTEXT},
        {"protocol": SecurityProtocol.SSL, "is_authenticated": False},
    ],
)
def test_sessions_without_credentials_of_their_own_get_no_token(session: dict[str, Any]) -> None:
    async def story(one: Broker, two: Broker) -> None:
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        ctx = one.ask("alice", **session)
        assert (await one.create(ctx)).error_code == code
        assert one.seen(ctx) == [code.name]

    tell(story)


def test_without_a_secret_key_there_are_no_tokens() -> None:
    async def run(cluster: Cluster) -> None:
        one = Broker(cluster.all()[0], TokenSecrets())
        await one.watch.start()
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert (await one.create(one.ask("alice"))).error_code == code
        assert await one.renew("alice", b"x") == (code, -1)
        assert await one.expire("alice", b"x", -1) == (code, -1)
        assert one.seen(one.ask("alice")) == [code.name]

    play(run)


def test_a_new_secret_key_signs_new_tokens_and_ends_no_old_ones() -> None:
    async def story(one: Broker, two: Broker) -> None:
        made = await one.create(one.ask("alice"))
        changed = Broker(two.fake, TokenSecrets("another", [SECRET]))
        forgetful = Broker(two.fake, TokenSecrets("another"))
        for broker in (changed, forgetful):
            await broker.watch.start()
        login = changed.table.find_token(made.token_id)
        assert login is not None and login.hmac == made.hmac
        assert forgetful.table.find_token(made.token_id) is None
        for broker in (changed, forgetful):
            await broker.watch.stop()

    tell(story)


def test_tokens_outlive_the_controller_and_a_bad_node_stands_alone() -> None:
    async def run(cluster: Cluster) -> None:
        one = Broker(cluster.all()[0])
        made = await one.create(one.ask("alice"))
        await one.fake.store.multi([Create(token_path("bad"), b"{}")])
        first = next(b.broker_id for b in cluster.all() if b.controller.is_active)
        await cluster.kill(first)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        again = Broker(cluster.all()[0])
        await again.watch.start()
        assert [t.token_id for t in again.table.tokens()] == [made.token_id]
        code, _ = await again.renew("alice", made.hmac)
        assert code is ErrorCode.NONE
        assert len(await again.fake.store.children(TOKEN_CHANGES)) == 2
        await again.watch.stop()

    play(run, config=CONFIG)
