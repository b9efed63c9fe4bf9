"""The partition of an internal topic that a key belongs to: Java's String.hashCode, as in Kafka."""

from __future__ import annotations

from functools import lru_cache

INT_MIN = -(2**31)


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, wrapping at 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


@lru_cache(maxsize=10_000)
def partition_of(key: str, partitions: int) -> int:
    """The partition of `key`; Kafka's Utils.abs maps the smallest int to 0."""
    value = java_hash(key)
    return 0 if value == INT_MIN else abs(value) % partitions
