"""The kernel's page cache, probed before the loop reads a file: a thread waits for the disk.

`preadv2(RWF_NOWAIT)` reads only what is in memory and fails with EAGAIN otherwise. Files of file
systems without it (tmpfs: EOPNOTSUPP) count as cached.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from concurrent.futures import Executor

from headwater_broker.api.api_config import COLD_PROBE_BYTES, WARM_BYTES_MAX
from headwater_broker.api.replies import FilePart

RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class PageCache:
    """The kernel's page cache. Implements `api.page_cache_port.Warmer`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool
        self._scratch = bytearray(1)
        self.cold_reads_total = 0

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        """Probe one byte per read-ahead window, and the last byte."""
        if not RWF_NOWAIT:
            return False
        scratch = [self._scratch]
        end = min(size, WARM_BYTES_MAX)
        last = position + end - 1
        at = position
        try:
            while at < last:
                if os.preadv(fd, scratch, at, RWF_NOWAIT) == 0:
                    return False  # past the end of the file: sending it fails
                at += COLD_PROBE_BYTES
            os.preadv(fd, scratch, last, RWF_NOWAIT)
        except BlockingIOError:
            self.cold_reads_total += 1
            return True
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return False
            raise
        return False

    async def warm(self, parts: Sequence[FilePart]) -> None:
        """Read the start of each part in a thread of the pool."""
        jobs = [(part.fd, part.position, min(part.size, WARM_BYTES_MAX)) for part in parts]
        await self._loop.run_in_executor(self._pool, _read_all, jobs)


def _read_all(jobs: list[tuple[int, int, int]]) -> None:
    for fd, position, size in jobs:
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        os.pread(fd, size, position)
