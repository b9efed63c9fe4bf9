"""ApiVersions (API key 18), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ApiVersionsRequest(Message):
    """API key 18, versions 0 to 4, flexible from 3."""

    api_key: ClassVar[int] = 18
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 3

    client_software_name: str = wire("string", "3+", ignorable=True)
    client_software_version: str = wire("string", "3+", ignorable=True)


@wire_schema
class ApiVersion(Struct):
    """The APIs supported by the broker."""

    api_key: int = wire("int16", "0+")
    min_version: int = wire("int16", "0+")
    max_version: int = wire("int16", "0+")


@wire_schema
class SupportedFeatureKey(Struct):
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0
    are omitted.
    """

    name: str = wire("string", "3+")
    min_version: int = wire("int16", "3+")
    max_version: int = wire("int16", "3+")


@wire_schema
class FinalizedFeatureKey(Struct):
    """List of cluster-wide finalized features. The information is valid only if
    FinalizedFeaturesEpoch >= 0.
    """

    name: str = wire("string", "3+")
    max_version_level: int = wire("int16", "3+")
    min_version_level: int = wire("int16", "3+")


@wire_schema
class ApiVersionsResponse(Message):
    """API key 18, versions 0 to 4, flexible from 3."""

    api_key: ClassVar[int] = 18
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 3

    error_code: int = wire("int16", "0+")
    api_keys: tuple[ApiVersion, ...] = wire(ApiVersion, "0+", array=True)
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        SupportedFeatureKey, "3+", array=True, tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = wire(
        "int64", "3+", default=-1, tag=1, tagged="3+", ignorable=True
    )
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        FinalizedFeatureKey, "3+", array=True, tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = wire("bool", "3+", tag=3, tagged="3+", ignorable=True)
