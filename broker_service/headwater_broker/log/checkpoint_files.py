"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, meta.properties.

Pure: bytes in, values out. Line 1 of a checkpoint is its format version 0, line 2 the number of
entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.errors import HeadwaterError, UsageError
from headwater.ids import id_from_text, id_text

VERSION = 0

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
HAS_GAPS = "has-gaps"
"""In a log's folder: offsets are missing between its batches. Only its existence counts: a power
failure may take its content."""
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

Offsets = dict[tuple[str, int], int]


class CheckpointError(HeadwaterError):
    """A checkpoint file that does not parse; the message names the line."""


def check_version(found: str, newest: int, path: str) -> None:
    """Raises UsageError when a newer Headwater wrote the file; ignoring it would lose data."""
    if found.isdecimal() and int(found) > newest:
        raise UsageError(
            f"{path} has format version {found}, this broker reads versions up to {newest}: "
            "start the newer Headwater that wrote it"
        )


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """An offset checkpoint: `topic partition offset` per line."""
    return _encode(f"{topic} {p} {offset}" for (topic, p), offset in sorted(offsets.items()))


def decode_offsets(data: bytes, path: str = "offset checkpoint") -> Offsets:
    """The entries of an offset checkpoint. Raises CheckpointError, UsageError."""
    result: Offsets = {}
    for line in _decode(data, path):
        try:
            topic, partition, offset = line.split(" ")
            result[topic, int(partition)] = int(offset)
        except ValueError:
            raise CheckpointError(f"offset checkpoint: bad line {line!r}") from None
    return result


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader-epoch-checkpoint: `epoch start_offset` per line."""
    return _encode(f"{epoch} {start}" for epoch, start in epochs)


def decode_epochs(data: bytes, path: str = LEADER_EPOCHS) -> list[tuple[int, int]]:
    """(epoch, start offset) in file order. Raises CheckpointError, UsageError."""
    result = []
    for line in _decode(data, path):
        try:
            epoch, start = line.split(" ")
            result.append((int(epoch), int(start)))
        except ValueError:
            raise CheckpointError(f"leader epoch checkpoint: bad line {line!r}") from None
    return result


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """partition.metadata of a new log, version 0.

    Kafka does not know the last line, and skips it: in this log, HAS_GAPS marks the first gap.
    """
    return f"version: {VERSION}\ntopic_id: {id_text(topic_id)}\ntells_gaps: true\n".encode()


def decode_tells_gaps(data: bytes) -> bool:
    """Whether a partition.metadata says that a log without HAS_GAPS has no gaps."""
    return _metadata_fields(data).get("tells_gaps") == "true"


def _metadata_fields(data: bytes) -> dict[str, str]:
    lines = data.decode("utf-8", "replace").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def decode_partition_metadata(data: bytes, path: str = PARTITION_METADATA) -> UUID:
    """The topic id. Raises CheckpointError, UsageError."""
    fields = _metadata_fields(data)
    check_version(fields.get("version", ""), VERSION, path)
    if fields.get("version") != str(VERSION) or "topic_id" not in fields:
        raise CheckpointError(f"{PARTITION_METADATA} is not of version {VERSION}: {data[:80]!r}")
    try:
        return id_from_text(fields["topic_id"])
    except ValueError:
        raise CheckpointError(
            f"{PARTITION_METADATA}: bad topic id {fields['topic_id']!r}"
        ) from None


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """meta.properties: `key=value` lines, sorted."""
    return "".join(f"{k}={v}\n" for k, v in sorted(properties.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties; comments and blank lines are skipped."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.split("=", 1) for line in lines if line and line[0] != "#" and "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([str(VERSION), str(len(entries)), *entries, ""]).encode()


def _decode(data: bytes, path: str) -> list[str]:
    lines = data.decode("utf-8", "replace").splitlines()
    check_version(lines[0] if lines else "", VERSION, path)
    if len(lines) < 2 or lines[0] != str(VERSION) or not lines[1].isdecimal():
        raise CheckpointError(f"checkpoint is not of version {VERSION}: {data[:80]!r}")
    if int(lines[1]) != len(lines) - 2:
        raise CheckpointError(f"checkpoint has {len(lines) - 2} entries, its head says {lines[1]}")
    return lines[2:]
