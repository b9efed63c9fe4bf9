"""The mirror's state in `__mirror.N.positions` on the target: keys, JSON values, their fold.

A bucket's partition has, per mirrored partition, a position and the chunks of its offset map; of
the bucket a heartbeat; in bucket 0 the groups whose offsets were written; `promoted` once the
mirror was. The topic is compacted: each key counts by its last record. All of a bucket's records
are written in its transactions, together with the data that they describe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.mirror.core.acls import acl_of, acl_row
from headwater.mirror.core.offset_translation import OffsetMap, Run
from headwater.security.acl import AclBinding

T = TypeVar("T")
VERSION = 1
POSITION, MAP, HEARTBEAT, GROUP, PROMOTED = "position", "map", "heartbeat", "group", "promoted"
ORPHANS, ACLS = "orphans", "acls"

StateRecord = tuple[bytes, bytes | None]
"""Key and value; the value None deletes the key."""


def positions_topic(mirror_id: str) -> str:
    """The name of the mirror's topic on the target."""
    return f"__mirror.{mirror_id}.positions"


def transactional_id(mirror_id: str, bucket: int) -> str:
    """The transactional id with which a bucket's owner writes."""
    return f"mirror.{mirror_id}.{bucket}"


class Position(NamedTuple):
    """How far a partition is mirrored."""

    next_offset: int
    """The source offset to read next: every visible record before it is in the target."""
    source_topic_id: str
    target_topic_id: str
    leader_epoch: int = -1
    """The source's, of the batch before `next_offset`."""
    timestamp: int = -1
    """Of the newest mirrored record, in ms."""


class SourceEnd(NamedTuple):
    """What the source last said of a partition."""

    last_stable_offset: int
    """Where its visible records end."""
    log_start_offset: int


@dataclass(slots=True)
class Heartbeat:
    """What the owner of a bucket last said of it."""

    time_ms: int
    owner: str
    source_ends: dict[TopicPartition, SourceEnd] = field(default_factory=dict)
    stopped: dict[TopicPartition, str] = field(default_factory=dict)
    """Partition -> why it is not mirrored any more, and the remedy."""
    source_cluster_id: str = ""
    troubles: list[str] = field(default_factory=list)
    """What is retried: partitions that cannot be read, topics that cannot be created."""


def _record(key: str, value: Mapping[str, Any] | None) -> StateRecord:
    if value is None:
        return key.encode(), None
    text = json.dumps({"version": VERSION, **value}, separators=(",", ":"))
    return key.encode(), text.encode()


class Orphans(NamedTuple):
    """The lost tail of a partition, which a failback has copied to `T.orphans`."""

    end: int
    """The offset after the tail, in the target of the mirror that failed back."""
    promoted_ms: int
    """When the mirror in the other direction was promoted: each failover has a tail of its own."""
    records: int


def position_record(tp: TopicPartition, position: Position | None) -> StateRecord:
    """The position of a partition; None forgets it."""
    value = None if position is None else position._asdict()
    return _record(f"{POSITION}/{tp.topic}/{tp.partition}", value)


def chunk_record(tp: TopicPartition, chunk: int, runs: Iterable[Run] | None) -> StateRecord:
    """A chunk of a partition's map; None deletes it."""
    key = f"{MAP}/{tp.topic}/{tp.partition}/{chunk}"
    return _record(key, None if runs is None else {"runs": list(runs)})


def orphans_record(tp: TopicPartition, orphans: Orphans) -> StateRecord:
    """The target's lost tail of a partition is in its topic of orphans."""
    return _record(f"{ORPHANS}/{tp.topic}/{tp.partition}", orphans._asdict())


def heartbeat_record(bucket: int, beat: Heartbeat) -> StateRecord:
    """A sign of life of a bucket's owner."""
    ends = [[*tp, *end] for tp, end in beat.source_ends.items()]
    stopped = [[*tp, reason] for tp, reason in beat.stopped.items()]
    return _record(
        f"{HEARTBEAT}/{bucket}",
        {
            "time_ms": beat.time_ms,
            "owner": beat.owner,
            "source_cluster_id": beat.source_cluster_id,
            "source_ends": ends,
            "stopped": stopped,
            "troubles": beat.troubles,
        },
    )


def group_record(group: str, offsets: Mapping[TopicPartition, GroupOffset] | None) -> StateRecord:
    """The offsets of a group: the source's, and what was written to the target."""
    rows = None if offsets is None else [[*tp, *row] for tp, row in offsets.items()]
    return _record(f"{GROUP}/{group}", None if rows is None else {"offsets": rows})


def promoted_record(time_ms: int | None) -> StateRecord:
    """The target was promoted: the mirror writes no more. None: it may run again."""
    return _record(PROMOTED, None if time_ms is None else {"time_ms": time_ms})


@dataclass(frozen=True, slots=True)
class MirroredAcls:
    """The ACLs of mirrored topics."""

    given: set[AclBinding] = field(default_factory=set)
    """Those that the mirror gives, or gave, in the target."""
    promoted: set[AclBinding] = field(default_factory=set)
    """Those that the target gets at promotion: the source's, to write too."""


def acls_record(acls: MirroredAcls) -> StateRecord:
    """The ACLs of mirrored topics, in bucket 0."""
    return _record(
        ACLS,
        {
            "given": [acl_row(acl) for acl in sorted(acls.given)],
            "promoted": [acl_row(acl) for acl in sorted(acls.promoted)],
        },
    )


class GroupOffset(NamedTuple):
    """A group's offset of one partition."""

    source: int
    """As committed at the source."""
    target: int
    """As the mirror writes it to the target; -1: nothing is."""
    before: int = -1
    """What the mirror had written before that: the target may have either."""
    metadata: str = ""
    era: int = 0
    """When the mirror in the other direction was promoted; 0 without one."""


@dataclass(slots=True)
class MirrorState:
    """The fold of the records of one bucket, or of all."""

    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    chunks: dict[TopicPartition, dict[int, list[Run]]] = field(default_factory=dict)
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    orphans: dict[TopicPartition, Orphans] = field(default_factory=dict)
    promoted_ms: int | None = None
    acls: MirroredAcls = field(default_factory=lambda: MirroredAcls())

    def offset_map(self, tp: TopicPartition) -> OffsetMap:
        """The map of one partition. Raises KafkaError when a part of it is missing."""
        try:
            return OffsetMap.from_chunks(self.chunks.get(tp, {}))
        except ValueError as error:
            text = f"the map of {tp.topic}-{tp.partition}: {error}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text) from error

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Read one record, in their order. Raises KafkaError for one of another kind."""
        text = "" if key is None else key.decode(errors="replace")
        kind, _, rest = text.partition("/")
        try:
            self._apply(kind, rest, None if value is None else _object(value))
        except (ValueError, TypeError, KeyError) as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the mirror's record {text!r} cannot be read: {error}"
            ) from error

    def _apply(self, kind: str, rest: str, value: dict[str, Any] | None) -> None:
        if kind == PROMOTED:
            self.promoted_ms = None if value is None else int(value["time_ms"])
        elif kind == ACLS and value is not None:
            self.acls = MirroredAcls(
                {acl_of(row) for row in value["given"]}, {acl_of(row) for row in value["promoted"]}
            )
        elif kind == HEARTBEAT and value is not None:
            self.heartbeats[int(rest)] = _heartbeat(value)
        elif kind == GROUP:
            rows = [] if value is None else value["offsets"]
            found = {TopicPartition(t, p): _row(GroupOffset, row) for t, p, *row in rows}
            self.groups.setdefault(rest, {}).update(found)  # each bucket has its partitions
        elif kind == POSITION and value is None:
            self.positions.pop(_partition(rest), None)
        elif kind == POSITION and value is not None:
            self.positions[_partition(rest)] = _known(Position, value)
        elif kind == ORPHANS and value is not None:
            self.orphans[_partition(rest)] = _known(Orphans, value)
        elif kind == MAP:
            name, _, chunk = rest.rpartition("/")
            chunks = self.chunks.setdefault(_partition(name), {})
            if value is None:
                chunks.pop(int(chunk), None)
            else:
                chunks[int(chunk)] = [Run(*row) for row in value["runs"]]
        elif value is not None:
            raise ValueError("a record of a kind that this version does not know")


def _object(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    version = found.pop("version", None) if isinstance(found, dict) else None
    if version != VERSION:
        raise ValueError(
            f"it has version {version}, and this Headwater reads {VERSION}: upgrade it"
        )
    return cast(dict[str, Any], found)


def _known(kind: type[T], value: dict[str, Any]) -> T:
    """A tuple of these fields; a newer writer may have added others."""
    fields = cast(Any, kind)._fields
    return kind(**{name: value[name] for name in fields if name in value})


def _row(kind: type[T], row: list[Any]) -> T:
    """The same of a list, whose additions are at its end."""
    return kind(*row[: len(cast(Any, kind)._fields)])


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("/")
    return TopicPartition(topic, int(index))


def _heartbeat(value: dict[str, Any]) -> Heartbeat:
    return Heartbeat(
        int(value["time_ms"]),
        str(value["owner"]),
        {TopicPartition(t, p): _row(SourceEnd, row) for t, p, *row in value["source_ends"]},
        {TopicPartition(t, p): reason for t, p, reason in value["stopped"]},
        str(value["source_cluster_id"]),
        [str(text) for text in value.get("troubles", ())],
    )
