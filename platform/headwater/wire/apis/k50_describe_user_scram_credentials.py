"""DescribeUserScramCredentials (API key 50), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class UserName(Struct):
    """A user to describe."""

    name: str = wire("string", "0+")


@wire_schema
class DescribeUserScramCredentialsRequest(Message):
    """API key 50, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 50
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    users: tuple[UserName, ...] | None = wire(UserName, "0+", nullable="0+", array=True)


@wire_schema
class CredentialInfo(Struct):
    """Mechanism and iterations of one credential."""

    mechanism: int = wire("int8", "0+")
    iterations: int = wire("int32", "0+")


@wire_schema
class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = wire("string", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    credential_infos: tuple[CredentialInfo, ...] = wire(CredentialInfo, "0+", array=True)


@wire_schema
class DescribeUserScramCredentialsResponse(Message):
    """API key 50, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 50
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(
        DescribeUserScramCredentialsResult, "0+", array=True
    )
