"""Short fields of usual requests, read in place (compact as in KIP-482, or classic), and a reply.

For `registry.AtOnce`: whatever is not short, or null, is left to the codec. All functions raise as
the codec does where the bytes end too early.
"""

from __future__ import annotations

import struct

from headwater_broker.coordinator.transaction.transaction import ProducerIdentity

SHORT_MAX = 0x7F
"""A compact string or array whose size is below it has one byte of size."""
_unpack_size = struct.Struct(">h").unpack_from
_unpack_count = struct.Struct(">i").unpack_from
_unpack_producer = struct.Struct(">qh").unpack_from
_PRODUCER_BYTES = 10
_pack_classic = struct.Struct(">iiih").pack
_pack_flexible = struct.Struct(">iiBihB").pack
_CLASSIC_BYTES, _FLEXIBLE_BYTES = 10, 12
"""Behind the size."""


def short_text(view: memoryview, at: int, *, flexible: bool = True) -> tuple[str | None, int]:
    """A string of at most 125 bytes and the position behind it; None for any other."""
    if flexible:
        size, at = view[at] - 1, at + 1
    else:
        size, at = _unpack_size(view, at)[0], at + 2
    if not 0 <= size < SHORT_MAX - 1:
        return None, at
    if at + size > len(view):
        raise IndexError(f"a string of {size} bytes runs past the frame")
    return str(view[at : at + size], "utf-8"), at + size


def short_count(view: memoryview, at: int, *, flexible: bool) -> tuple[int, int]:
    """The number of elements of an array, 1 to 125, and the position behind it; 0 for any other."""
    if flexible:
        count, at = view[at] - 1, at + 1
    else:
        count, at = _unpack_count(view, at)[0], at + 4
    return count if 0 < count < SHORT_MAX - 1 else 0, at


def short_producer(view: memoryview, at: int) -> tuple[ProducerIdentity, int]:
    """A producer id with its epoch, and the position behind them."""
    return ProducerIdentity(*_unpack_producer(view, at)), at + _PRODUCER_BYTES


def is_end(view: memoryview, at: int, end: int, *, flexible: bool) -> bool:
    """Whether the body ends here: a flexible one with no tagged fields."""
    return bytes(view[at:end]) == (b"\0" if flexible else b"")


def done(correlation_id: int, *, flexible: bool) -> bytes:
    """The framed response that has throttle_time_ms and an error code, both 0, and nothing else."""
    if flexible:
        return _pack_flexible(_FLEXIBLE_BYTES, correlation_id, 0, 0, 0, 0)
    return _pack_classic(_CLASSIC_BYTES, correlation_id, 0, 0)
