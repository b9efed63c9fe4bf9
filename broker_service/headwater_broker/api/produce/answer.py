"""The response of a Produce request: at once, or when its appends are replicated or confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import ErrorCode
from headwater_broker.api.leadership_confirmation import confirm
from headwater_broker.api.produce.response_codec import Row, encode_rows, encode_single
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, CloseConnectionError, ParkedReply
from headwater_broker.replica.delayed_operations import DelayedProduce, any_pending

ACKS_ALL = -1
ACKS_NONE = 0


def answer(
    peer: Peer,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    rows: list[Row],
    reply: ParkedReply | None = None,
) -> Answer:
    """The response, or the place of one that is not ready: `reply`, if it is parked already.

    acks=0 has no response. Raises CloseConnectionError if an append failed: a closed connection
    makes the client refresh its metadata.
    """
    if acks == ACKS_NONE:
        if (text := failure(rows)) is not None:
            raise CloseConnectionError(text)
        return None
    if any(row.is_out_of_order for row in rows):
        reply = reply or peer.park()
        peer.spawn(confirmed(peer, reply, version, correlation_id, acks, timeout_ms, rows))
        return reply
    return settle(peer, reply, version, correlation_id, acks, timeout_ms, rows)


def failure(rows: Sequence[Row]) -> str | None:
    """The first error of an acks=0 request, as text; None: no error."""
    failed = next((row for row in rows if row.code), None)
    if failed is None or failed.code is None:
        return None
    where = f"{failed.name}-{failed.index}"
    return f"acks=0 produce to {where} failed: {failed.code.name} {failed.message}"


def settle(
    peer: Peer,
    reply: ParkedReply | None,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    rows: list[Row],
) -> Answer:
    """`answer`, when no leadership has to be confirmed."""
    services = peer.services
    if acks == ACKS_ALL and any_pending(rows):
        waiting = ProduceReply(peer, reply or peer.park(), version, correlation_id, rows)
        waiting.start(timeout_ms)
        return waiting.reply
    data = encode_rows(services, peer.session.listener, version, correlation_id, rows)
    if reply is None:
        return data
    reply.resolve([data])
    return reply


async def confirmed(
    peer: Peer,
    reply: ParkedReply,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    rows: list[Row],
) -> None:
    """Respond when the metadata store has confirmed or denied this broker's leadership."""
    gone: list[bool] = []
    reply.on_gone = lambda: gone.append(True)
    await confirm(peer.services, [row.unconfirmed() for row in rows if row.is_out_of_order])
    if not gone:
        settle(peer, reply, version, correlation_id, acks, timeout_ms, rows)


class ProduceReply(DelayedProduce[Row]):
    """The response of an acks=all request that waits for the high watermarks of its partitions."""

    __slots__ = ("_correlation_id", "_peer", "_version", "reply")

    def __init__(
        self, peer: Peer, reply: ParkedReply, version: int, correlation_id: int, rows: list[Row]
    ) -> None:
        super().__init__(peer.services.purgatories, rows)
        reply.on_gone = self.cancel  # the records stay in the log
        self.reply = reply
        self._peer = peer
        self._version = version
        self._correlation_id = correlation_id

    def on_failure(self, error: Exception) -> None:
        """Close the connection: the producer repeats requests without a response."""
        self._peer.close(f"internal error: {error!r}")

    def completed(self, rows: Sequence[Row]) -> None:
        """Send the response; a row without a code has timed out."""
        peer = self._peer
        for row in rows:
            if row.code is None:
                row.fail(ErrorCode.REQUEST_TIMED_OUT, "not replicated to all in-sync replicas")
            elif row.code and not row.message:
                row.fail(row.code, "after the append")
        row = rows[0]
        if len(rows) == 1 and not row.code:
            data = encode_single(
                self._version,
                self._correlation_id,
                row.field,
                row.index,
                row.base_offset,
                row.append_time_ms,
                row.log_start_offset,
            )
        else:
            data = encode_rows(
                peer.services, peer.session.listener, self._version, self._correlation_id, rows
            )
        self.reply.resolve([data])
