"""AlterReplicaLogDirs (API key 34), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AlterReplicaLogDirTopic(Struct):
    """The topics to add to the directory."""

    name: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class AlterReplicaLogDir(Struct):
    """The alterations to make for each directory."""

    path: str = wire("string", "0+")
    topics: tuple[AlterReplicaLogDirTopic, ...] = wire(AlterReplicaLogDirTopic, "0+", array=True)


@wire_schema
class AlterReplicaLogDirsRequest(Message):
    """API key 34, versions 1 to 2, flexible from 2."""

    api_key: ClassVar[int] = 34
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 2

    dirs: tuple[AlterReplicaLogDir, ...] = wire(AlterReplicaLogDir, "0+", array=True)


@wire_schema
class AlterReplicaLogDirPartitionResult(Struct):
    """The results for each partition."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class AlterReplicaLogDirTopicResult(Struct):
    """The results for each topic."""

    topic_name: str = wire("string", "0+")
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = wire(
        AlterReplicaLogDirPartitionResult, "0+", array=True
    )


@wire_schema
class AlterReplicaLogDirsResponse(Message):
    """API key 34, versions 1 to 2, flexible from 2."""

    api_key: ClassVar[int] = 34
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    results: tuple[AlterReplicaLogDirTopicResult, ...] = wire(
        AlterReplicaLogDirTopicResult, "0+", array=True
    )
