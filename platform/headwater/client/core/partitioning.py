"""Partitioners: murmur2 of the key, as Java's producer has it, and sticky without a key. Pure."""

from __future__ import annotations

from collections.abc import Callable

MURMUR2_SEED = 0x9747B28C
MURMUR2_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
KEY_CACHE_MAX = 65_536


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned, as `org.apache.kafka.common.utils.Utils.murmur2`."""
    length = len(data)
    h = (MURMUR2_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = (k * MURMUR2_M) & _MASK
        k ^= k >> 24
        k = (k * MURMUR2_M) & _MASK
        h = ((h * MURMUR2_M) & _MASK) ^ k
    if whole < length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * MURMUR2_M) & _MASK
    h ^= h >> 13
    h = (h * MURMUR2_M) & _MASK
    return h ^ (h >> 15)


class KeyPartitioner:
    """Java's default partitioner of records with a key: murmur2's low 31 bits modulo the number of
    partitions, those without a leader included. Hashes of recent keys are kept."""

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}

    def partition(self, key: bytes, partitions: int) -> int:
        """The partition of a key among so many."""
        hashed = self._hashes.get(key)
        if hashed is None:
            if len(self._hashes) >= KEY_CACHE_MAX:
                self._hashes.clear()
            hashed = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return hashed % partitions


class StickyPartitioner:
    """Keyless records stay on one partition for `switch_bytes`, then move to another (KIP-794).

    `pick(n)` is a uniform random choice of 0 to n - 1.
    """

    __slots__ = ("_pick", "_switch_bytes", "left", "partition")

    def __init__(self, switch_bytes: int, pick: Callable[[int], int]) -> None:
        self._pick = pick
        self._switch_bytes = switch_bytes
        self.left = switch_bytes
        """Bytes until it is time to switch. `send` counts its records here."""
        self.partition = -1

    def switch(self, available: list[int], partitions: int) -> int:
        """Another partition: one of those with a leader, or any one when none has a leader."""
        among = available or list(range(partitions))
        others = [p for p in among if p != self.partition] or among
        self.partition = others[self._pick(len(others))]
        self.left = self._switch_bytes
        return self.partition
