"""Calls from a broker to the controller, whichever broker that is.

The `/controller` node names it. If it is this broker, the call goes to the local service. Calls
that meet NOT_CONTROLLER or an unreachable controller are repeated until the deadline: an election
takes some tens of milliseconds, so callers see a short delay and no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeVar
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.control import ControlCalls, ControlHandler, ControlUnavailableError
from headwater.ports.metadata_store import (
    ConnectionLostError,
    MetadataStore,
    NoNodeError,
    SessionState,
    StoreError,
)
from headwater.wire.control import (
    AllocateProducerIdsReply,
    AllocateProducerIdsRequest,
    AlterPartitionReply,
    AlterPartitionRequest,
    AssignReplicasToDirsReply,
    AssignReplicasToDirsRequest,
    Control,
    ControlledShutdownReply,
    ControlledShutdownRequest,
    ForwardReply,
    ForwardRequest,
)
from headwater_broker.metadata import znodes

CALL_TIMEOUT_MS = 30_000
UNREACHED_TIMEOUT_S = 15.0
"""A call fails when no controller answers for this long, whatever the caller's limit: clients wait
30 s by default."""
STORE_LOOK_S = 1.0
"""How often a call in flight checks the connection to the metadata store."""
RETRY_DELAY_S = 0.02
RETRY_DELAY_MAX_S = 0.5

R = TypeVar(
    "R",
    AlterPartitionReply,
    AllocateProducerIdsReply,
    AssignReplicasToDirsReply,
    ControlledShutdownReply,
    ForwardReply,
)


class LocalController(Protocol):
    """The controller service of this process."""

    def handlers(self) -> dict[type[Control], ControlHandler]:
        """Its control handlers by request class. On standby they answer NOT_CONTROLLER."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    broker_id: int
    address: str


class ControllerChannel:
    """Finds the controller and calls it."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        store: MetadataStore,
        calls: ControlCalls,
        local: LocalController,
        clock: Clock,
        *,
        store_look_s: float = STORE_LOOK_S,
    ) -> None:
        self._store_look_s = store_look_s
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._store = store
        self._calls = calls
        self._local = local
        self._clock = clock
        self._target: _Target | None = None
        self._assignments = count(1)
        self._unwatch = store.watch(znodes.CONTROLLER, self._forget)
        self._store_is_away = False
        store.on_session(self._session_changed)

    def close(self) -> None:
        """Stop watching."""
        self._unwatch()

    def _forget(self, _path: str) -> None:
        self._target = None

    def _session_changed(self, state: SessionState) -> None:
        self._store_is_away = state is not SessionState.CONNECTED

    async def alter_partition(
        self, request: AlterPartitionRequest, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> AlterPartitionReply:
        """Propose ISRs (KIP-497). Raises KafkaError(REQUEST_TIMED_OUT): the outcome is unknown."""
        return await self._call(request, AlterPartitionReply, timeout_ms)

    async def assign_directory(
        self, topic_id: UUID, partition: int, directory_id: UUID, timeout_ms: int
    ) -> ErrorCode:
        """Report the data folder that a replica of this broker is about to move to (KIP-858).

        NONE: the controller has stored it. Raises KafkaError(REQUEST_TIMED_OUT): the outcome is
        unknown.
        """
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topic_id=topic_id,
            partition=partition,
            directory_id=directory_id,
            sequence=next(self._assignments),
        )
        reply = await self._call(request, AssignReplicasToDirsReply, timeout_ms)
        return ErrorCode(reply.error_code)

    async def forward(
        self,
        api_key: int,
        version: int,
        body: bytes,
        principal: str = "User:ANONYMOUS",
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> bytes:
        """Run an admin request on the controller: encoded body in, encoded reply body out.

        Raises KafkaError(REQUEST_TIMED_OUT) when no controller answered in time.
        """
        request = ForwardRequest(
            forwarded_key=api_key, forwarded_version=version, principal=principal, body=body
        )
        reply = await self._call(request, ForwardReply, timeout_ms)
        if reply.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(reply.error_code), f"forwarded request of key {api_key}")
        return bytes(reply.body)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """A new block of producer ids: (start, length)."""
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        reply = await self._call(request, AllocateProducerIdsReply, CALL_TIMEOUT_MS)
        if reply.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(reply.error_code), "producer id block")
        return reply.start, reply.length

    async def controlled_shutdown(self, timeout_ms: int = CALL_TIMEOUT_MS) -> int:
        """Have the controller move this broker's leaderships; how many are left."""
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        reply = await self._call(request, ControlledShutdownReply, timeout_ms)
        if reply.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(reply.error_code), "controlled shutdown")
        return reply.remaining

    async def _call(self, request: Control, reply: type[R], timeout_ms: int) -> R:
        began = self._clock.monotonic()
        deadline = began + timeout_ms / 1000
        delay = RETRY_DELAY_S
        fault = "no controller is elected"
        while (left := deadline - self._clock.monotonic()) > 0:
            try:
                call = self._call_once(request, reply, int(left * 1000) + 1)
                answer = await self._unless_away(call, began + UNREACHED_TIMEOUT_S)
                if answer.error_code != ErrorCode.NOT_CONTROLLER:
                    return answer
                fault = "the broker that was the controller is not any more"
            except NoNodeError:
                fault = "no controller is elected"
            except znodes.ZnodeError as e:
                fault = f"/controller cannot be read: {e}"
            except ControlUnavailableError as e:
                fault = f"it does not answer ({e})"
            except StoreError as e:
                fault = f"the metadata store (ZooKeeper) does not answer: {e}"
            self._target = None
            if self._clock.monotonic() - began >= UNREACHED_TIMEOUT_S:
                break
            await asyncio.sleep(min(delay, left))
            delay = min(delay * 2, RETRY_DELAY_MAX_S)
        took = self._clock.monotonic() - began
        text = f"the controller did not answer within {took:.0f} s: {fault}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    async def _unless_away(self, call: Coroutine[Any, Any, R], until: float) -> R:
        """The call's reply. Raises ConnectionLostError if the store is unreachable after `until`.

        Without the store the controller cannot decide, and keeps its callers waiting.
        """
        task = asyncio.get_running_loop().create_task(call)
        try:
            while not (await asyncio.wait((task,), timeout=self._store_look_s))[0]:
                if self._store_is_away and self._clock.monotonic() >= until:
                    raise ConnectionLostError("this broker has lost its connection")
            return task.result()
        finally:
            task.cancel()

    async def _call_once(self, request: Control, reply: type[R], timeout_ms: int) -> R:
        target = self._target or await self._find()
        self._target = target
        if target.broker_id != self._broker_id:
            return await self._calls.call(target.address, request, reply, timeout_ms)
        handler = self._local.handlers()[type(request)]
        answer = await _within(handler(request), timeout_ms)
        if not isinstance(answer, reply):
            text = f"the reply is a {type(answer).__name__}, not a {reply.__name__}"
            raise ControlUnavailableError(text)
        return answer

    async def _find(self) -> _Target:
        node = await self._store.get(znodes.CONTROLLER)
        claim = znodes.ControllerClaim.decode(node.data)
        return _Target(claim.broker_id, claim.control_address)


async def _within(work: Awaitable[object], timeout_ms: int) -> object:
    try:
        return await asyncio.wait_for(work, timeout_ms / 1000)
    except TimeoutError as e:
        raise ControlUnavailableError(f"no answer within {timeout_ms} ms") from e
