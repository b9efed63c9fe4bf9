"""Serializers as protocols, and typed topics (Kafka's Serde). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

from headwater.client.errors import SerializationError, SerializerUnavailableError
from headwater.client.partition_names import topic_name

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Field = Literal["key", "value"]


class Context(NamedTuple):
    """The place of what is serialized: a record's key or value, and its headers."""

    topic: str
    field: Field
    headers: Sequence[tuple[str, bytes | None]] = ()


class Serializer(Protocol[T]):
    """Values to bytes and back. It raises for what it cannot do; the client names the record.

    One whose attribute `may_block` is true asks another machine at times: the asyncio clients run
    it on a thread, a poll at a time. Where it has `is_warm(at)`, and that is true, `dumps` asks
    nobody: it runs on the loop.
    """

    def dumps(self, value: T, at: Context) -> bytes | None:
        """The bytes of a value; None is sent as null: a tombstone, where it is a record's value."""
        ...

    def loads(self, data: bytes | None, at: Context) -> T:
        """The value of bytes. A serializer without a value for null raises ValueError."""
        ...


class BytesSerializer:
    """Bytes as they are; None is null. What a topic's keys are by default."""

    def dumps(self, value: bytes | None, at: Context) -> bytes | None:
        """See Serializer."""
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"give bytes, not {type(value).__name__}")
        return value

    def loads(self, data: bytes | None, at: Context) -> bytes | None:
        """See Serializer."""
        return data


BYTES = BytesSerializer()


class Topic(Generic[K, V]):
    """A topic with the types of its records: for `send`, and for `Consumer.typed`."""

    __slots__ = ("key", "name", "value")

    @overload
    def __init__(self: Topic[bytes | None, V], name: str, value: Serializer[V]) -> None: ...

    @overload
    def __init__(self, name: str, value: Serializer[V], key: Serializer[K]) -> None: ...

    def __init__(self, name: str, value: Serializer[V], key: Serializer[Any] = BYTES) -> None:
        """Raises UsageError, OptionError for a name that no topic can have."""
        self.name = topic_name(name)
        self.value = value
        self.key: Serializer[K] = key

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.value!r}, {self.key!r})"

    def __str__(self) -> str:
        return self.name

    def dumps(
        self, key: Any, value: Any, headers: Sequence[tuple[str, bytes | None]]
    ) -> tuple[bytes | None, bytes | None]:
        """A record's key and value as bytes. Raises SerializationError."""
        return (
            _dumped(self.key, key, Context(self.name, "key", headers)),
            _dumped(self.value, value, Context(self.name, "value", headers)),
        )

    @property
    def may_block(self) -> bool:
        """True when a serializer may ask another machine."""
        return any(getattr(s, "may_block", False) for s in (self.key, self.value))

    @property
    def may_block_at_send(self) -> bool:
        """True when `dumps` may ask another machine now."""
        return not (
            _is_warm(self.key, Context(self.name, "key"))
            and _is_warm(self.value, Context(self.name, "value"))
        )


def _is_warm(serializer: Any, at: Context) -> bool:
    """True when `dumps` asks nobody."""
    if not getattr(serializer, "may_block", False):
        return True
    is_warm = getattr(serializer, "is_warm", None)
    return is_warm is not None and bool(is_warm(at))


def _dumped(serializer: Serializer[Any], value: Any, at: Context) -> bytes | None:
    try:
        return serializer.dumps(value, at)
    except SerializerUnavailableError:
        raise
    except Exception as error:
        raise SerializationError(
            f"the {at.field} of a record for {at.topic} cannot be serialized: {error}"
        ) from error


class OptionalSerializer(Generic[T]):
    """Null for None, and another serializer for the rest: see `optional`."""

    def __init__(self, inner: Serializer[T]) -> None:
        self._inner = inner
        self.may_block = bool(getattr(inner, "may_block", False))

    def is_warm(self, at: Context) -> bool:
        """See Serializer."""
        return _is_warm(self._inner, at)

    def dumps(self, value: T | None, at: Context) -> bytes | None:
        """See Serializer."""
        return None if value is None else self._inner.dumps(value, at)

    def loads(self, data: bytes | None, at: Context) -> T | None:
        """See Serializer."""
        return None if data is None else self._inner.loads(data, at)


def optional(serializer: Serializer[T]) -> OptionalSerializer[T]:
    """The serializer, for values that may be None: keys that may be absent, tombstones."""
    return OptionalSerializer(serializer)


def some(data: bytes | None) -> bytes:
    """`data`, which is not null. Raises ValueError."""
    if data is None:
        raise ValueError("it is null: declare it as optional(...)")
    return data
