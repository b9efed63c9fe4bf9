"""`headwater.ports.remote_log` over Delta: a proxy of niced worker processes.

Imports neither pyarrow nor deltalake: those live in `python -m headwater_tier.worker` only.
"""

from __future__ import annotations

from headwater.ports.remote_log import RemoteSlice, TieredRange, TieredTopic

CACHE_BYTES_MAX = 1 << 30


class DeltaRemoteLog:
    """`RemoteLog` whose work happens in a worker process; rebuilt segments live in `cache_dir`."""

    def __init__(self, cache_dir: str, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        """Starts nothing; the first call starts the worker. `cache_dir` is ours, and emptied."""
        raise NotImplementedError

    async def ranges(self, topic: TieredTopic) -> dict[int, TieredRange]:
        """See the port."""
        raise NotImplementedError

    async def read(
        self, topic: TieredTopic, partition: int, offset: int, max_bytes: int
    ) -> RemoteSlice:
        """See the port."""
        raise NotImplementedError

    async def close(self) -> None:
        """See the port."""
        raise NotImplementedError
