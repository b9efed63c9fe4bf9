"""SCRAM users (KIP-554): k50 and k51 through the controller to the znodes and to every broker."""

from __future__ import annotations

import json

import pytest

from headwater.errors import ErrorCode
from headwater.security.scram_credential import (
    ScramMechanism,
    credential_of_password,
    parse_credential,
    salted_password,
)
from headwater.wire.apis.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from headwater.wire.apis.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from headwater.wire.apis.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater_broker.api.k48_describe_client_quotas import describe_client_quotas
from headwater_broker.api.k50_describe_user_scram_credentials import (
    describe_user_scram_credentials,
)
from headwater_broker.api.k51_alter_user_scram_credentials import alter_user_scram_credentials
from headwater_broker.security.scram_credentials import ScramCredentials
from unit.api.test_client_quota_requests import alter as alter_quotas
from unit.api.test_client_quota_requests import entry
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster, FakeBroker

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b"0123456789abcdef"
Outcome = dict[str, tuple[ErrorCode, str | None]]


def upsertion(
    name: str, mechanism: ScramMechanism = SHA_256, password: str = "pw", iterations: int = 4096
) -> ScramCredentialUpsertion:
    salted = salted_password(mechanism, password, SALT, 4096)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.code,
        iterations=iterations,
        salt=SALT,
        salted_password=salted,
    )


def deletion(name: str, mechanism: ScramMechanism = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism.code)


async def alter(
    broker: FakeBroker,
    *changes: ScramCredentialUpsertion | ScramCredentialDeletion,
    audited: list[str] | None = None,
) -> Outcome:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(c for c in changes if isinstance(c, ScramCredentialDeletion)),
        upsertions=tuple(c for c in changes if isinstance(c, ScramCredentialUpsertion)),
    )
    reply = await alter_user_scram_credentials(  # type: ignore[misc]
        context(broker, 0, audited=audited), request
    )
    assert isinstance(reply, AlterUserScramCredentialsResponse)
    return {row.user: (ErrorCode(row.error_code), row.error_message) for row in reply.results}


def describe(broker: FakeBroker, *names: str) -> dict[str, list[tuple[int, int]] | ErrorCode]:
    users = tuple(UserName(name=name) for name in names) if names else None
    request = DescribeUserScramCredentialsRequest(users=users)
    reply = describe_user_scram_credentials(context(broker, 0), request)
    assert isinstance(reply, DescribeUserScramCredentialsResponse)
    return {
        row.user: ErrorCode(row.error_code)
        if row.error_code
        else [(info.mechanism, info.iterations) for info in row.credential_infos]
        for row in reply.results
    }


DONE = (ErrorCode.NONE, None)


def test_a_user_reaches_every_broker_in_kafkas_znode_beside_its_quotas() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        await alter_quotas(asked, entry({"user": "al ice"}, producer_byte_rate=1024.0))
        changes = (upsertion("al ice"), upsertion("al ice", SHA_512), upsertion("bob"))
        assert await alter(asked, *changes) == {"al ice": DONE, "bob": DONE}
        node = json.loads((await asked.store.get("/config/users/al%20ice")).data)
        assert sorted(node["config"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512", "producer_byte_rate"]
        wanted = credential_of_password(SHA_256, "pw", SALT)
        assert parse_credential(node["config"]["SCRAM-SHA-256"]) == wanted
        for broker in cluster.all():
            known = ScramCredentials(lambda b=broker: b.view.client_quotas, b"")  # type: ignore[misc]
            assert known.find(SHA_256, "al ice") == wanted
            assert known.find(SHA_512, "bob") is None
            assert describe(broker) == {"al ice": [(1, 4096), (2, 4096)], "bob": [(1, 4096)]}
        assert await alter(asked, deletion("al ice")) == {"al ice": DONE}
        assert describe(asked) == {"al ice": [(2, 4096)], "bob": [(1, 4096)]}

    play(story)


def test_keys_are_not_among_quotas() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        await alter(asked, upsertion("alice"), upsertion("bob"))
        await alter_quotas(asked, entry({"user": "bob"}, producer_byte_rate=5.0))
        reply = describe_client_quotas(context(asked, 1), DescribeClientQuotasRequest())
        assert isinstance(reply, DescribeClientQuotasResponse)
        assert [
            ([e.entity_name for e in row.entity], [v.key for v in row.values])
            for row in reply.entries or ()
        ] == [(["bob"], ["producer_byte_rate"])]

    play(story)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (upsertion("alice", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few"),
        (upsertion("alice", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many"),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "must not be empty"),
        (upsertion("admin\u202e"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "SASLprep"),
        (upsertion("a\0b"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "SASLprep"),
        (upsertion("x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "1024 bytes"),
        (
            ScramCredentialUpsertion(name="a", mechanism=3, iterations=4096),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            ScramCredentialUpsertion(
                name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"short"
            ),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "32 bytes",
        ),
        (deletion("nobody"), ErrorCode.RESOURCE_NOT_FOUND, "does not exist"),
    ],
)
def test_changes_that_are_refused(
    change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode, text: str
) -> None:
    async def story(cluster: Cluster) -> None:
        outcome = await alter(standby(cluster), change, upsertion("good"))
        assert outcome["good"] == DONE
        assert outcome[change.name][0] is code
        assert text in (outcome[change.name][1] or "")
        assert list(describe(standby(cluster))) == ["good"]

    play(story)


def test_one_credential_is_not_changed_twice_in_a_request() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        outcome = await alter(asked, upsertion("alice"), upsertion("alice", password="other"))
        assert outcome["alice"][0] is ErrorCode.DUPLICATE_RESOURCE
        assert describe(asked) == {}
        await alter(asked, upsertion("alice"))
        assert describe(asked, "alice", "nobody", "bob", "bob") == {
            "alice": [(1, 4096)],
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
            "bob": ErrorCode.DUPLICATE_RESOURCE,
        }

    play(story)


class Nobody:
    """Allows nothing."""

    generation = 0

    def authorize(self, *_: object) -> bool:
        return False

    authorize_any = authorize


def test_rights() -> None:
    async def story(cluster: Cluster) -> None:
        ctx = context(standby(cluster), 0, Nobody())
        request = AlterUserScramCredentialsRequest(upsertions=(upsertion("alice"),))
        reply = await alter_user_scram_credentials(ctx, request)  # type: ignore[misc]
        codes = [row.error_code for row in reply.results]
        assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        asked = DescribeUserScramCredentialsRequest(users=(UserName(name="alice"),))
        described = describe_user_scram_credentials(ctx, asked)
        assert isinstance(described, DescribeUserScramCredentialsResponse)
        assert described.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert [(row.user, row.error_code) for row in described.results] == [("", codes[0])]

    play(story)


def test_changes_are_audited_without_the_credential() -> None:
    async def story(cluster: Cluster) -> None:
        asked, audited = standby(cluster), list[str]()
        await alter(asked, upsertion("alice"), upsertion("bob", SHA_512), audited=audited)
        await alter(asked, deletion("alice"), deletion("nobody"), audited=audited)
        head = "User:test requested AlterUserScramCredentials from host = , result = "
        assert [line.removeprefix(head) for line in audited] == [
            "NONE: SCRAM-SHA-256 of User:alice set; SCRAM-SHA-512 of User:bob set",
            "NONE: SCRAM-SHA-256 of User:alice removed",
            "RESOURCE_NOT_FOUND: SCRAM-SHA-256 of User:nobody removed",
        ]

    play(story)
