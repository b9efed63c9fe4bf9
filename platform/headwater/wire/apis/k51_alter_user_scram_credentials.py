"""AlterUserScramCredentials (API key 51), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ScramCredentialDeletion(Struct):
    """A SCRAM credential to remove."""

    name: str = wire("string", "0+")
    mechanism: int = wire("int8", "0+")


@wire_schema
class ScramCredentialUpsertion(Struct):
    """A SCRAM credential to insert or update."""

    name: str = wire("string", "0+")
    mechanism: int = wire("int8", "0+")
    iterations: int = wire("int32", "0+")
    salt: bytes = wire("bytes", "0+")
    salted_password: bytes = wire("bytes", "0+")


@wire_schema
class AlterUserScramCredentialsRequest(Message):
    """API key 51, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 51
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    deletions: tuple[ScramCredentialDeletion, ...] = wire(ScramCredentialDeletion, "0+", array=True)
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(
        ScramCredentialUpsertion, "0+", array=True
    )


@wire_schema
class AlterUserScramCredentialsResult(Struct):
    """The outcome for one user."""

    user: str = wire("string", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class AlterUserScramCredentialsResponse(Message):
    """API key 51, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 51
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[AlterUserScramCredentialsResult, ...] = wire(
        AlterUserScramCredentialsResult, "0+", array=True
    )
