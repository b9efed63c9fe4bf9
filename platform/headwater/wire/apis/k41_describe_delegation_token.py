"""DescribeDelegationToken (API key 41), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeDelegationTokenOwner(Struct):
    """An owner whose tokens are asked for."""

    principal_type: str = wire("string", "0+")
    principal_name: str = wire("string", "0+")


@wire_schema
class DescribeDelegationTokenRequest(Message):
    """API key 41, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 41
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire(
        DescribeDelegationTokenOwner, "0+", nullable="0+", array=True
    )


@wire_schema
class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = wire("string", "0+")
    principal_name: str = wire("string", "0+")


@wire_schema
class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = wire("string", "0+")
    principal_name: str = wire("string", "0+")
    token_requester_principal_type: str = wire("string", "3+", ignorable=True)
    token_requester_principal_name: str = wire("string", "3+", ignorable=True)
    issue_timestamp: int = wire("int64", "0+")
    expiry_timestamp: int = wire("int64", "0+")
    max_timestamp: int = wire("int64", "0+")
    token_id: str = wire("string", "0+")
    hmac: bytes = wire("bytes", "0+")
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire(
        DescribedDelegationTokenRenewer, "0+", array=True
    )


@wire_schema
class DescribeDelegationTokenResponse(Message):
    """API key 41, versions 1 to 3, flexible from 2."""

    api_key: ClassVar[int] = 41
    versions: ClassVar[tuple[int, int]] = (1, 3)
    flexible: ClassVar[int] = 2

    error_code: int = wire("int16", "0+")
    tokens: tuple[DescribedDelegationToken, ...] = wire(DescribedDelegationToken, "0+", array=True)
    throttle_time_ms: int = wire("int32", "0+")
