"""ZooKeeper's multi-read request (3.6 or later): many nodes at once. kazoo lacks it.

kazoo sends the value like its own requests: `serialize` gives the body, `deserialize` reads the
reply's. Jute encoding: big-endian, strings and buffers behind an int32 length.

    request  = (header(4, 0, -1), path, watch)*    header(-1, 1, -1)
    reply    = (header(4, 0, 0), data, stat | header(-1, 0, error), error)*    header(-1, 1, -1)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.states import ZnodeStat

GET_DATA = 4
ERROR = -1

_HEADER = struct.Struct(">i?i")
_INT = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")
_END = _HEADER.pack(ERROR, True, -1)

Read = tuple[bytes, ZnodeStat] | Exception


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Reads the nodes at `paths`, without watches."""

    paths: tuple[str, ...]
    type = 22

    def serialize(self) -> bytes:
        """The request's body."""
        head = _HEADER.pack(GET_DATA, False, -1)
        rows = []
        for path in self.paths:
            name = path.encode()
            rows.append(head + _INT.pack(len(name)) + name + b"\0")
        return b"".join((*rows, _END))

    @staticmethod
    def deserialize(reply: bytes, offset: int) -> list[Read]:
        """Per path: data and stat, or kazoo's exception for the error."""
        found: list[Read] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(reply, offset)
            offset += _HEADER.size
            if is_end:
                return found
            (number,) = _INT.unpack_from(reply, offset)
            offset += _INT.size
            if kind == ERROR:
                found.append(EXCEPTIONS[number]())
                continue
            data = bytes(reply[offset : offset + max(number, 0)])
            offset += len(data)
            found.append((data, ZnodeStat._make(_STAT.unpack_from(reply, offset))))
            offset += _STAT.size
