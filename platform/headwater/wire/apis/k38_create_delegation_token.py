"""CreateDelegationToken (API key 38), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = wire("string", "0+")
    principal_name: str = wire("string", "0+")


@wire_schema
class CreateDelegationTokenRequest(Message):
    """API key 38, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 38
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    owner_principal_type: str | None = wire("string", "3+", nullable="3+")
    owner_principal_name: str | None = wire("string", "3+", nullable="3+")
    renewers: tuple[CreatableRenewers, ...] = wire(CreatableRenewers, "0+", array=True)
    max_lifetime_ms: int = wire("int64", "0+")


@wire_schema
class CreateDelegationTokenResponse(Message):
    """API key 38, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 38
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    error_code: int = wire("int16", "0+")
    principal_type: str = wire("string", "0+")
    principal_name: str = wire("string", "0+")
    token_requester_principal_type: str = wire("string", "3+", ignorable=True)
    token_requester_principal_name: str = wire("string", "3+", ignorable=True)
    issue_timestamp_ms: int = wire("int64", "0+")
    expiry_timestamp_ms: int = wire("int64", "0+")
    max_timestamp_ms: int = wire("int64", "0+")
    token_id: str = wire("string", "0+")
    hmac: bytes = wire("bytes", "0+")
    throttle_time_ms: int = wire("int32", "0+")
