"""Faults on demand of a broker in a test, each where the fault would strike a real one.

Replies are lost between handler and connection, the loop stands as a stopped process does, a
partition loses its leader by the controller's own decision about a failed disk.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable
from typing import Any

from headwater.errors import ErrorCode, UsageError
from headwater.wire.control import LeaderAndIsrReply, PartitionError
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.replies import CloseConnectionError, ParkedReply
from headwater_broker.app.wiring import BrokerServer
from headwater_broker.controller.controller_loop import ControllerLoop
from headwater_broker.controller.events import LeaderAndIsrResponseReceived, Tick
from headwater_broker.metadata.znodes import NO_DIRECTORY
from headwater_broker.network.connection_ports import ServedRequests
from headwater_broker.network.send_queue import release_parts

LEAST_S = 0.001
"""The clock is moved by whole milliseconds."""
DROPPED = "a test dropped the reply (drop_next_ack)"


class LostReplies:
    """Handles a request as always, and closes the connection instead of the reply.

    Lives on the broker's loop. `arm` replaces the handler of one API in the table of this broker's
    connections; the handler is put back with the last reply to lose.
    """

    def __init__(self, server: BrokerServer) -> None:
        self._tables: list[dict[int, ApiRow]] = []
        self._left: dict[int, int] = {}
        """API key -> how many replies are still to be lost."""
        for listener in server.listeners:
            table = dict(listener.rows)
            listener.served = ServedRequests(table, listener.served.request_bytes_max)
            self._tables.append(table)

    def key_of(self, api: str) -> int:
        """The key of an API by its name, as Produce or EndTxn. Raises UsageError."""
        names = {
            row.request.__name__.removesuffix("Request"): key
            for key, row in self._tables[0].items()
        }
        if api not in names:
            raise UsageError(f"there is no API {api!r}: it is one of {', '.join(sorted(names))}")
        return names[api]

    def arm(self, key: int, count: int) -> None:
        """Lose the next `count` replies of an API."""
        fresh = key not in self._left
        self._left[key] = self._left.get(key, 0) + count
        if not fresh:
            return
        for table in self._tables:
            row = table[key]
            table[key] = self._losing(row)

    def _losing(self, row: ApiRow) -> ApiRow:
        if row.raw is not None:
            return dataclasses.replace(row, raw=self._losing_raw(row.raw, row.key))
        return dataclasses.replace(row, handler=self._losing_general(row.handler, row.key))

    def _take(self, key: int) -> bool:
        """Whether this reply is to be lost."""
        if self._left.get(key, 0) <= 0:
            return False
        self._left[key] -= 1
        return True

    def _losing_general(self, handler: Any, key: int) -> Callable[..., Any]:
        async def handle(context: Any, request: Any) -> Any:
            response = handler(context, request)
            if inspect.isawaitable(response):
                response = await response
            if self._take(key):
                raise CloseConnectionError(DROPPED)
            return response

        return handle

    def _losing_raw(self, raw: Any, key: int) -> Callable[..., Any]:
        def handle(peer: Any, *frame: Any) -> Any:
            if not self._take(key):
                return raw(peer, *frame)
            lost = _Unanswered(peer)
            answer = raw(lost, *frame)
            if answer is None:  # no reply is due (acks=0): the next one is lost
                self._left[key] += 1
                return None
            place: ParkedReply = peer.park()  # replies behind it wait until the connection is gone
            if isinstance(answer, ParkedReply):
                place.on_gone = answer.abandon
            else:
                release_parts(answer if isinstance(answer, list) else [answer])
                lost.lose()
            return place

        return handle


class _Unanswered:
    """A connection as a raw handler sees it; the reply that it parks closes it."""

    def __init__(self, peer: Any) -> None:
        self.__dict__["_peer"] = peer

    def park(self) -> ParkedReply:
        """A place for a reply, which is not sent."""
        return ParkedReply(self.lose)

    def lose(self) -> None:
        """Close the connection at once, as when the network is cut."""
        self._peer.accepted.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._peer, name, value)


class Standstill:
    """Stops the broker's loop, as SIGSTOP stops a process: connections stay open, nothing runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._go = threading.Event()
        self._go.set()

    @property
    def is_still(self) -> bool:
        """True while the loop stands."""
        return not self._go.is_set()

    def begin(self) -> None:
        """Returns once the loop stands. Does nothing while it stands already."""
        if self.is_still:
            return
        self._go.clear()
        stands = threading.Event()

        def stand() -> None:
            stands.set()
            self._go.wait()

        self._loop.call_soon_threadsafe(stand)
        stands.wait()

    def end(self) -> None:
        """Let it go on."""
        self._go.set()


async def next_lock_end_s(server: BrokerServer) -> float:
    """How long the lock that ends next lasts yet; 0: no share group has locked a record."""
    now = server.environment.clock.monotonic()
    machines = [led.machine for led in server.services.shares if led.machine is not None]
    ends = [end for machine in machines if (end := machine.next_deadline()) is not None]
    return max(min(ends) - now, LEAST_S) if ends else 0.0


async def lose_leader(server: BrokerServer, topic: str, partition: int | None) -> None:
    """The partitions have no leader once this returns: their disk fails, says their broker."""
    chosen = _partitions(server, topic, partition)
    topic_id = server.view.topics[topic].topic_id
    rows = tuple(
        PartitionError(
            topic_id=topic_id,
            partition=index,
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            directory_id=NO_DIRECTORY,
        )
        for index in chosen
    )
    _controller(server).post(
        LeaderAndIsrResponseReceived(
            server.config.broker_id,
            server.broker_epoch(),
            LeaderAndIsrReply(error_code=ErrorCode.NONE, partitions=rows),
        )
    )
    await _until_led(server, topic, chosen, led=False)


async def restore_leader(server: BrokerServer, topic: str, partition: int | None) -> None:
    """The disk works again: the broker leads the partitions, in a new leader epoch."""
    chosen = _partitions(server, topic, partition)
    loop = _controller(server)
    assert loop.machine is not None
    topic_id = server.view.topics[topic].topic_id
    mended = {((topic_id, index), server.config.broker_id) for index in chosen}
    loop.machine.state.storage_faults -= mended
    loop.post(Tick())
    await _until_led(server, topic, chosen, led=True)


def _controller(server: BrokerServer) -> ControllerLoop:
    loop = server.controller.controller_loop
    if loop is None or loop.machine is None:
        raise UsageError("the broker is not the controller: it has not started, or has lost itself")
    return loop


def _partitions(server: BrokerServer, topic: str, partition: int | None) -> list[int]:
    known = server.view.topics.get(topic)
    if known is None:
        raise UsageError(f"there is no topic {topic!r}: create it before it can lose its leader")
    if partition is None:
        return sorted(known.partitions)
    if partition not in known.partitions:
        raise UsageError(f"{topic} has {len(known.partitions)} partitions, none is {partition}")
    return [partition]


async def _until_led(server: BrokerServer, topic: str, partitions: list[int], *, led: bool) -> None:
    """Return when the broker's metadata says so, and its replicas know."""

    def is_so(index: int) -> bool:
        told = server.view.partition(topic, index)
        replica = server.replicas.partitions.get((topic, index))
        assert told is not None and replica is not None
        return (told.leader_id >= 0) is led and replica.is_leader is led

    while not all(is_so(index) for index in partitions):
        await asyncio.sleep(0.001)
