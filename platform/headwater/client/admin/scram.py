"""Admin calls about SCRAM users (KIP-554): their requests, on the loop.

Passwords stay here: brokers get the salted password, and store what checks one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, UsageError
from headwater.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    mechanism_of_code,
    new_salt,
    salted_password,
    scram_mechanism,
)
from headwater.system import SystemEntropy
from headwater.wire.apis.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from headwater.wire.apis.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

T = TypeVar("T")
ITERATIONS_DEFAULT = 8_192


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Set a user's password for one mechanism."""

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = ITERATIONS_DEFAULT


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Remove a user's password for one mechanism."""

    user: str
    mechanism: str = "SCRAM-SHA-512"


ScramAlteration = ScramUpsertion | ScramDeletion


class ScramCalls:
    """Each method is one admin call, with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, users: Iterable[str] | None) -> dict[str, dict[str, int]]:
        """DescribeUserScramCredentials."""
        rows = None if users is None else tuple(UserName(name=user) for user in users)
        request = DescribeUserScramCredentialsRequest(users=rows)

        async def attempt() -> dict[str, dict[str, int]]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, DescribeUserScramCredentialsResponse)
            _check(reply.error_code, reply.error_message, "describe users")
            return {row.user: _mechanisms(row) for row in reply.results if _is_found(row)}

        return await self._cluster.retrying("describe users", attempt)

    async def alter(self, request: AlterUserScramCredentialsRequest) -> None:
        """AlterUserScramCredentials: raises the first error, with the other users changed."""

        async def attempt() -> None:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, AlterUserScramCredentialsResponse)
            for row in reply.results:
                _check(row.error_code, row.error_message, f"user {row.user}")

        await self._cluster.retrying("alter users", attempt)


def alter_request(changes: Iterable[ScramAlteration]) -> AlterUserScramCredentialsRequest:
    """The request of these changes, with salted passwords. Raises UsageError."""
    deletions, upsertions = [], []
    for change in changes:
        mechanism = scram_mechanism(change.mechanism)
        if not change.user:
            raise UsageError("the name of a user is empty")
        if isinstance(change, ScramDeletion):
            row = ScramCredentialDeletion(name=change.user, mechanism=mechanism.code)
            deletions.append(row)
        else:
            upsertions.append(_upsertion(change, mechanism))
    return AlterUserScramCredentialsRequest(
        deletions=tuple(deletions), upsertions=tuple(upsertions)
    )


def _upsertion(change: ScramUpsertion, mechanism: ScramMechanism) -> ScramCredentialUpsertion:
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise UsageError(
            f"user {change.user}: {change.iterations} iterations: give {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX}"
        )
    if not change.password:
        raise UsageError(f"user {change.user}: the password is empty")
    salt = new_salt(SystemEntropy())
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism.code,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, change.password, salt, change.iterations),
    )


def _is_found(row: DescribeUserScramCredentialsResult) -> bool:
    if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
        return False
    _check(row.error_code, row.error_message, f"user {row.user}")
    return True


def _mechanisms(row: DescribeUserScramCredentialsResult) -> dict[str, int]:
    known = {mechanism_of_code(info.mechanism): info.iterations for info in row.credential_infos}
    return {mechanism.value: count for mechanism, count in known.items() if mechanism is not None}


def _check(code: int, text: str | None, what: str) -> None:
    if code:
        raise kafka_error(code, text or what)


class ScramVerbs:
    """The methods of `Admin` about SCRAM users."""

    _scram: ScramCalls

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """User -> mechanism -> iterations, for these users or for all; unknown users are left out.

        Raises KafkaError.
        """
        return await self._scram.describe(None if users is None else list(users))

    async def alter_user_scram_credentials(self, changes: Iterable[ScramAlteration]) -> None:
        """Set and remove passwords. The password itself is not sent.

        Raises UsageError; KafkaError: RESOURCE_NOT_FOUND for a deletion of what does not exist,
        UNACCEPTABLE_CREDENTIAL. The other users are changed all the same.
        """
        await self._scram.alter(alter_request(changes))
