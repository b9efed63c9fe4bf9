"""The Persister of share states, over this broker's own coordinators and the brokers'
connections (Kafka's `DefaultStatePersister` and `PersisterStateManager`).

What goes to the same coordinator in the same turn of the loop shares a request. Every request may
be repeated: a write that arrives twice, or late, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater.topic_names import SHARE_STATE_TOPIC
from headwater.wire.apis import k83_initialize_share_group_state as k83
from headwater.wire.apis import k84_read_share_group_state as k84
from headwater.wire.apis import k85_write_share_group_state as k85
from headwater.wire.apis import k86_delete_share_group_state as k86
from headwater.wire.apis import k87_read_share_group_state_summary as k87
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.coordinator.share_state.service import ShareStateService, coordinator_key
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.share.ports import (
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    StateBatch,
)

BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0
GIVE_UP_S = 20.0
"""A request that no coordinator has answered by then fails: longer than an election takes."""
RETRIED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

A = TypeVar("A")
"""One share partition in a request."""
R = TypeVar("R")
"""The share partition in the reply."""


class _Kind(NamedTuple, Generic[A, R]):
    """One of the requests between brokers."""

    version: int
    request: type[Any]
    reply: type[Any]
    topics: Callable[[Sequence[tuple[SharePartitionKey, A]]], tuple[Any, ...]]
    """The partitions asked about -> the topics of the request."""
    result: Callable[[Any, A], R]
    """(a partition's row of the reply, what was asked) -> the answer."""
    here: Callable[[ShareStateService, SharePartitionKey, A], Awaitable[R]]
    """Asks this broker's own shards."""


@dataclass(slots=True)
class _Asked(Generic[A]):
    key: SharePartitionKey
    argument: A
    answer: asyncio.Future[Any]


_Batch = tuple[int, str, str]
"""(broker, kind, group id): what shares a request."""


class ShareStateChannel:
    """Implements `replica.share.ports.Persister`. All methods run on the broker's loop."""

    def __init__(
        self,
        broker_id: int,
        view: MetadataCache,
        local: ShareStateService,
        connections: BrokerConnections,
        clock: Clock,
        *,
        create_topic: Callable[[], None],
    ) -> None:
        """`create_topic()` has the controller create the coordinators' topic."""
        self._broker_id = broker_id
        self._view = view
        self._local = local
        self._connections = connections
        self._clock = clock
        self._create_topic = create_topic
        self._asked: dict[_Batch, list[_Asked[Any]]] = {}
        self._tasks = OrderedSet[asyncio.Task[None]]()

    # -- Persister

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See `Persister`."""
        await self._call("initialize", key, (state_epoch, start_offset))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """See `Persister`."""
        state: ShareState = await self._call("read", key, leader_epoch)
        return state

    async def write(self, key: SharePartitionKey, state: ShareState) -> None:
        """See `Persister`."""
        await self._call("write", key, state)

    async def delete(self, key: SharePartitionKey) -> None:
        """See `Persister`."""
        await self._call("delete", key, None)

    async def read_summary(self, key: SharePartitionKey) -> ShareStateSummary:
        """See `Persister`."""
        summary: ShareStateSummary = await self._call("read_summary", key, None)
        return summary

    async def close(self) -> None:
        """Close the connections; what waits for an answer fails."""
        await self._connections.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- ways to the coordinator

    async def _call(self, kind: str, key: SharePartitionKey, argument: Any) -> Any:
        """The coordinator's answer; while there is none, or the error is one that passes, it is
        asked again."""
        give_up_at = self._clock.monotonic() + GIVE_UP_S
        pause_s = BACKOFF_S
        while True:
            try:
                return await self._ask(kind, key, argument)
            except KafkaError as error:
                if not self._may_pass(error, key) or self._clock.monotonic() >= give_up_at:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    def _may_pass(self, error: KafkaError, key: SharePartitionKey) -> bool:
        """The metadata of the coordinator may lag behind ours."""
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic = self._view.topic_by_id.get(key.topic_id)
            return topic is not None and key.partition in topic.partitions
        return error.code in RETRIED

    async def _ask(self, kind: str, key: SharePartitionKey, argument: Any) -> Any:
        broker_id = self._coordinator(key)
        if broker_id == self._broker_id:
            return await KINDS[kind].here(self._local, key, argument)
        batch = (broker_id, kind, key.group_id)
        asked = self._asked.get(batch)
        if asked is None:
            asked = self._asked[batch] = []
            asyncio.get_running_loop().call_soon(self._flush, batch)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked.append(_Asked(key, argument, answer))
        return await answer

    def _coordinator(self, key: SharePartitionKey) -> int:
        """Raises COORDINATOR_NOT_AVAILABLE."""
        if SHARE_STATE_TOPIC not in self._view.topics and self._view.is_complete:
            self._create_topic()
        partition = self._local.coordinator.partition_of(coordinator_key(key))
        state = self._view.partition(SHARE_STATE_TOPIC, partition)
        if state is None or state.leader_id not in self._view.brokers:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{SHARE_STATE_TOPIC}-{partition} has no live leader now",
            )
        return state.leader_id

    def _flush(self, batch: _Batch) -> None:
        """One request; what names a share partition a second time goes into the next one."""
        later = self._asked.pop(batch)
        while later:
            rows, later = _distinct(later)
            task = asyncio.get_running_loop().create_task(self._send(batch, rows))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: _Batch, rows: Sequence[_Asked[Any]]) -> None:
        broker_id, name, group_id = batch
        kind = KINDS[name]
        failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "this broker stops")
        try:
            topics = kind.topics([(row.key, row.argument) for row in rows])
            request = kind.request(group_id=group_id, topics=topics)
            reply = await self._connections.call(broker_id, request, kind.version, kind.reply)
            _settle(group_id, rows, reply, kind)
            failure = KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} left share partitions out"
            )
        except (OSError, TimeoutError, HeadwaterError) as error:
            failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}: {error}")
        finally:
            for row in rows:
                if not row.answer.done():
                    row.answer.set_exception(failure)


def _distinct(asked: Sequence[_Asked[Any]]) -> tuple[list[_Asked[Any]], list[_Asked[Any]]]:
    """(the first row of each share partition, the others)."""
    first: dict[SharePartitionKey, _Asked[Any]] = {}
    others = [row for row in asked if first.setdefault(row.key, row) is not row]
    return list(first.values()), others


def _settle(group_id: str, rows: Sequence[_Asked[Any]], reply: Any, kind: _Kind[Any, Any]) -> None:
    asked = {row.key: row for row in rows}
    for topic in reply.results:
        for result in topic.partitions:
            row = asked.get(SharePartitionKey(group_id, topic.topic_id, result.partition))
            if row is None or row.answer.done():
                continue
            if result.error_code:
                code = ErrorCode(result.error_code)
                row.answer.set_exception(KafkaError(code, result.error_message or code.name))
            else:
                row.answer.set_result(kind.result(result, row.argument))


def _by_topic(
    data: Callable[..., Any],
    row: Callable[[int, A], Any],
    rows: Sequence[tuple[SharePartitionKey, A]],
) -> tuple[Any, ...]:
    """The topics of a request: `data` of each topic, with `row` of each partition."""
    topics: dict[UUID, list[Any]] = {}
    for key, argument in rows:
        topics.setdefault(key.topic_id, []).append(row(key.partition, argument))
    return tuple(data(topic_id=name, partitions=tuple(found)) for name, found in topics.items())


def _begun(partition: int, begin: tuple[int, int]) -> k83.PartitionData:
    state_epoch, start_offset = begin
    return k83.PartitionData(
        partition=partition, state_epoch=state_epoch, start_offset=start_offset
    )


def _read(partition: int, leader_epoch: int) -> k84.PartitionData:
    return k84.PartitionData(partition=partition, leader_epoch=leader_epoch)


def _written(partition: int, state: ShareState) -> k85.PartitionData:
    return k85.PartitionData(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=tuple(
            k85.StateBatch(
                first_offset=b.first_offset,
                last_offset=b.last_offset,
                delivery_state=b.delivery_state,
                delivery_count=b.delivery_count,
            )
            for b in state.batches
        ),
        holds=state.holds,
    )


def _deleted(partition: int, _argument: None) -> k86.PartitionData:
    return k86.PartitionData(partition=partition)


def _summarised(partition: int, _argument: None) -> k87.PartitionData:
    return k87.PartitionData(partition=partition, leader_epoch=-1)


def _state(row: k84.PartitionResult, leader_epoch: int) -> ShareState:
    return ShareState(
        state_epoch=row.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=row.start_offset,
        batches=tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in row.state_batches
        ),
        holds=row.holds,
    )


def _summary(row: k87.PartitionResult, _argument: None) -> ShareStateSummary:
    return ShareStateSummary(
        row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count
    )


def _nothing(_row: Any, _argument: Any) -> None:
    return None


KINDS: Mapping[str, _Kind[Any, Any]] = {
    "initialize": _Kind(
        0,
        k83.InitializeShareGroupStateRequest,
        k83.InitializeShareGroupStateResponse,
        partial(_by_topic, k83.InitializeStateData, _begun),
        _nothing,
        lambda local, key, begin: local.initialize(key, *begin),
    ),
    "read": _Kind(
        0,
        k84.ReadShareGroupStateRequest,
        k84.ReadShareGroupStateResponse,
        partial(_by_topic, k84.ReadStateData, _read),
        _state,
        lambda local, key, leader_epoch: local.read(key, leader_epoch),
    ),
    "write": _Kind(
        1,
        k85.WriteShareGroupStateRequest,
        k85.WriteShareGroupStateResponse,
        partial(_by_topic, k85.WriteStateData, _written),
        _nothing,
        lambda local, key, state: local.write(key, state),
    ),
    "delete": _Kind(
        0,
        k86.DeleteShareGroupStateRequest,
        k86.DeleteShareGroupStateResponse,
        partial(_by_topic, k86.DeleteStateData, _deleted),
        _nothing,
        lambda local, key, _: local.delete(key),
    ),
    "read_summary": _Kind(
        1,
        k87.ReadShareGroupStateSummaryRequest,
        k87.ReadShareGroupStateSummaryResponse,
        partial(_by_topic, k87.ReadStateSummaryData, _summarised),
        _summary,
        lambda local, key, _: local.read_summary(key),
    ),
}
