"""Which partition a record goes to: murmur2 of the key as Java's client, sticky without a key."""

from __future__ import annotations

from collections.abc import Callable

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned, as `org.apache.kafka.common.utils.Utils.murmur2`."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if whole < length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Java's default partitioner: the hash's low 31 bits modulo the count, leaderless included."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyChoice:
    """Keyless records stay on one partition until it took `switch_bytes`, then move (KIP-794).

    `pick(n)` is any uniform choice below n.
    """

    __slots__ = ("_left", "_pick", "_switch_bytes", "partition")

    def __init__(self, switch_bytes: int, pick: Callable[[int], int]) -> None:
        self._pick = pick
        self._switch_bytes = switch_bytes
        self._left = switch_bytes
        self.partition = -1

    def choose(self, available: list[int], partitions: int) -> int:
        """Another partition: among those with a leader, or among all when none has one."""
        among = available or list(range(partitions))
        others = [p for p in among if p != self.partition] or among
        self.partition = others[self._pick(len(others))]
        self._left = self._switch_bytes
        return self.partition

    def took(self, size_bytes: int) -> bool:
        """Account for a record; True when it is time to choose again."""
        self._left -= size_bytes
        return self._left <= 0
