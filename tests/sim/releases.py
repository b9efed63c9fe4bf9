"""An artificial next release, whose brokers run beside those of the current one.

It makes every change that a release may make: all control messages have one more format; one has a
field that only the new format holds, one a tagged field, one a tagged field in a structure; all
JSON nodes in ZooKeeper have one more key. The changes are made at the edges: the code between them
is the current one.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, cast

from headwater.ports.metadata_store import Create, Node, Operation, Set
from headwater.wire.control import (
    FORMAT_VERSION,
    LeaderAndIsrRequest,
    PartitionState,
    UpdateMetadataRequest,
    control_messages,
)
from headwater.wire.schema import Message, Struct, wire

M = TypeVar("M", bound=Message)

NEXT_VERSION = FORMAT_VERSION + 1
NEXT_KEY = "of_the_next_release"
WAVE = 7
REASON = "a planted one"


class Release:
    """The messages and nodes of a release. This is the current release, without changes."""

    name = "today"

    def __init__(self) -> None:
        self.took: Counter[str] = Counter()
        """The additions of the next release that its brokers have read, counted."""

    def sent(self, message: Message) -> Message:
        """The message as this release sends it."""
        return message

    def read_as(self, cls: type[M]) -> type[M]:
        """The class with which this release decodes it."""
        return cls

    def received(self, message: Message) -> None:
        """Called when a message was decoded."""

    def stored(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """The writes to ZooKeeper as this release makes them."""
        return operations

    def found(self, node: Node) -> Node:
        """A ZooKeeper node as this release reads it."""
        if NEXT_KEY.encode() in node.data:
            self.took["node"] += 1
        return node


PLANTED_TAG = 1000
"""A tag far from those of real fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPartitionState(PartitionState):
    """With one more tagged field."""

    wave: int = wire("int32", tag=PLANTED_TAG, tagged="0+", default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLeaderAndIsrRequest(LeaderAndIsrRequest):
    """With a tagged field, in both formats."""

    versions: ClassVar[tuple[int, int]] = (0, NEXT_VERSION)
    wave: int = wire("int32", tag=PLANTED_TAG, tagged="0+", default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextUpdateMetadataRequest(UpdateMetadataRequest):
    """With a field that only the new format holds and that the old one can do without, and a tagged
    field in each of its partitions."""

    versions: ClassVar[tuple[int, int]] = (0, NEXT_VERSION)
    reason: str = wire("string", f"{NEXT_VERSION}+", ignorable=True)
    partitions: tuple[PartitionState, ...] = wire(NextPartitionState, array=True)


def _next_classes() -> dict[type[Message], type[Message]]:
    found: dict[type[Message], type[Message]] = {}
    for name, cls in control_messages().items():
        more: dict[str, Any] = {"__slots__": (), "versions": (0, NEXT_VERSION)}
        found[cls] = cast(type[Message], type(f"Next{name}", (cls,), more))
    found[LeaderAndIsrRequest] = NextLeaderAndIsrRequest
    found[UpdateMetadataRequest] = NextUpdateMetadataRequest
    return found


_NEXT = _next_classes()


def _grown(cls: type[Struct], value: Struct, **more: Any) -> Any:
    """`value` as an instance of a class with more fields."""
    names = [field.name for field in dataclasses.fields(cast(Any, value))]
    return cls(**{**{name: getattr(value, name) for name in names}, **more})


class NextRelease(Release):
    """The artificial next release."""

    name = "next"

    def sent(self, message: Message) -> Message:
        """The message with the additions."""
        more: dict[str, Any] = {}
        if isinstance(message, LeaderAndIsrRequest):
            more["wave"] = WAVE
        elif isinstance(message, UpdateMetadataRequest):
            more["reason"] = REASON
            rows = (_grown(NextPartitionState, row, wave=WAVE) for row in message.partitions)
            more["partitions"] = tuple(rows)
        return cast(Message, _grown(_NEXT[type(message)], message, **more))

    def read_as(self, cls: type[M]) -> type[M]:
        return cast("type[M]", _NEXT[cls])

    def received(self, message: Message) -> None:
        if getattr(message, "reason", "") == REASON:
            self.took["field"] += 1
        if getattr(message, "wave", -1) == WAVE:
            self.took["tagged field"] += 1
        rows = getattr(message, "partitions", ())
        self.took["inner tagged field"] += sum(getattr(row, "wave", -1) == WAVE for row in rows)

    def stored(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        return [
            replace(o, data=_with_key(o.data)) if isinstance(o, Create | Set) else o
            for o in operations
        ]

    def found(self, node: Node) -> Node:
        """The node without the additional key, which this release reads."""
        return replace(super().found(node), data=_without_key(node.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class CarelessLeaderAndIsrRequest(NextLeaderAndIsrRequest):
    """With an untagged field in every format, which is not allowed."""

    careless: int = wire("int32", default=3)


class CarelessRelease(NextRelease):
    """A release with a change that is not allowed."""

    def sent(self, message: Message) -> Message:
        sent = super().sent(message)
        if isinstance(sent, NextLeaderAndIsrRequest):
            sent = cast(Message, _grown(CarelessLeaderAndIsrRequest, sent))
        return sent

    def read_as(self, cls: type[M]) -> type[M]:
        if cls is LeaderAndIsrRequest:
            return cast("type[M]", CarelessLeaderAndIsrRequest)
        return super().read_as(cls)


RAISED_VERSION = 2
"""The raised version of a partition's state node."""
RAISED_NAMES = {"isr": "in_sync"}


class RaisedRelease(NextRelease):
    """The release after that. It reads a newer version of a partition's state node, and writes it
    once all brokers can read it (`is_raised`)."""

    name = "raised"

    def __init__(self) -> None:
        super().__init__()
        self.is_raised = False

    def stored(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        rows = super().stored(operations)
        if not self.is_raised:
            return rows
        return [
            replace(row, data=_raised(row.data))
            if isinstance(row, Create | Set) and row.path.endswith("/state")
            else row
            for row in rows
        ]

    def found(self, node: Node) -> Node:
        return super().found(replace(node, data=_lowered(node.data)))


def is_raised(data: bytes) -> bool:
    """Whether a partition's state node has the newer version."""
    value = _object(data)
    return value is not None and value.get("version") == RAISED_VERSION


def _raised(data: bytes) -> bytes:
    return _renamed(data, RAISED_VERSION, RAISED_NAMES)


def _lowered(data: bytes) -> bytes:
    if not is_raised(data) or b"in_sync" not in data:
        return data
    return _renamed(data, 1, {new: old for old, new in RAISED_NAMES.items()})


def _renamed(data: bytes, version: int, names: dict[str, str]) -> bytes:
    value = _object(data)
    assert value is not None, data
    return _text({names.get(key, key): item for key, item in value.items()} | {"version": version})


def _object(data: bytes) -> dict[str, Any] | None:
    if not data.startswith(b"{"):
        return None
    return cast("dict[str, Any]", json.loads(data))


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _with_key(data: bytes) -> bytes:
    value = _object(data)
    return data if value is None else _text({**value, NEXT_KEY: {"wave": WAVE}})


def _without_key(data: bytes) -> bytes:
    value = _object(data)
    if value is None or value.pop(NEXT_KEY, None) is None:
        return data
    return _text(value)
