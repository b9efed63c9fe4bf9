"""Fetches of consumers while client quotas are set: no more than may pass (KIP-13, KIP-219)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headwater_broker.api.fetch.codec import FLEXIBLE
from headwater_broker.api.fetch.read import PartitionRead
from headwater_broker.api.fetch_session.cache import NO_SESSION
from headwater_broker.api.k01_fetch import FetchJob
from headwater_broker.api.replies import Answer, Part
from headwater_broker.quota.client_quotas import Limit

_INT32 = struct.Struct(">i")


class LimitedFetch(FetchJob):
    """A fetch that may be over quota; a follower's never is, nor is what its connection does."""

    __slots__ = ()

    def start(self) -> Answer:
        """Ask for no more at once than the windows allow together, or nothing would ever pass."""
        limit = self._limit()
        if limit is not None:
            windows = self._peer.services.quotas.windows
            most = max(int(limit.per_s * windows.seconds * max(windows.count - 1, 1)), 1)
            self._frame.max_bytes = min(self._frame.max_bytes, most)
            self._frame.min_bytes = min(self._frame.min_bytes, self._frame.max_bytes)
        return super().start()

    def _may_replicate(self) -> bool:
        """Asked of followers only."""
        self._peer.is_exempt = super()._may_replicate()
        return self._peer.is_exempt

    def _limit(self) -> Limit | None:
        peer = self._peer
        if self._frame.replica_id >= 0:
            return None
        return peer.services.quotas.of(peer.session.principal.name, peer.client_id).fetch

    def _answer(self, reads: list[PartitionRead]) -> Answer:
        limit = self._limit()
        if limit is not None:
            delay_ms = limit.take(sum(read.slice.size_bytes for read in reads))
            if delay_ms:
                self._peer.mute(delay_ms)
                if self._reply is not None and self._reply.timing is not None:
                    self._reply.timing.throttle_s = delay_ms / 1000
                return self._give(tell_fetch(self._nothing(), self._version, delay_ms))
        return super()._answer(reads)

    def _nothing(self) -> list[Part]:
        """No topics, as Kafka answers: the client asks anew, from where it was. A session that
        this fetch opened is not begun."""
        if not self._is_incremental and self._session is not None:
            self._peer.services.sessions.close(self._session_id)
            self._session_id = NO_SESSION
        return self._blank(self._session_id).build([])

    async def _read_remote(self, read: PartitionRead, max_bytes: int) -> None:
        """What comes from the table was not known before: the next fetch waits for it."""
        await super()._read_remote(read, max_bytes)
        limit = self._limit()
        if limit is not None and read.remote is not None:
            limit.rate.record(read.remote[2], self._peer.services.quotas.now())


def tell_fetch(parts: Sequence[Part], version: int, delay_ms: int) -> list[Part]:
    """The reply with this throttle_time_ms, unless it tells a longer one."""
    first = parts[0]
    assert isinstance(first, bytes)
    at = 9 if version >= FLEXIBLE else 8  # behind size, correlation id, tagged fields
    delay_ms = max(delay_ms, _INT32.unpack_from(first, at)[0])
    return [first[:at] + _INT32.pack(delay_ms) + first[at + 4 :], *parts[1:]]
