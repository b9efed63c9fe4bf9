"""Control calls of a broker to itself stay on its loop; other calls use the network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ports.control import ControlUnavailableError
from headwater.wire.control import (
    ControlledShutdownReply,
    ControlledShutdownRequest,
    StatusReply,
    StatusRequest,
)
from headwater.wire.schema import Message
from headwater_broker.controller.loopback_channel import LoopbackControlCalls


class Others:
    """Counts calls over the network."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, address: str, _request: Any, reply: Any, _timeout_ms: int) -> Any:
        self.asked.append(address)
        return reply()

    async def close(self) -> None: ...


class Port:
    port = 0

    def start(self) -> int:
        return 4711

    async def stop_async(self, grace_s: float = 0.5) -> None: ...


async def _status(_request: Message) -> Message:
    return StatusReply(broker_id=7)


async def _hang(_request: Message) -> Message:
    await asyncio.Event().wait()
    return ControlledShutdownReply()


def test_own_calls_need_no_network_while_the_port_is_open() -> None:
    async def run() -> None:
        others = Others()
        calls = LoopbackControlCalls("here:1", others)
        port = calls.serve({StatusRequest: _status}, Port())
        await calls.call("here:1", StatusRequest(), StatusReply, 1000)
        assert others.asked == ["here:1"], "not open yet"
        assert port.start() == port.port == 4711
        assert (await calls.call("here:1", StatusRequest(), StatusReply, 1000)).broker_id == 7
        await calls.call("there:1", StatusRequest(), StatusReply, 1000)
        await calls.call("here:1", ControlledShutdownRequest(), ControlledShutdownReply, 1000)
        assert others.asked == ["here:1", "there:1", "here:1"], "others, and what is not handled"
        await port.stop_async()
        await calls.call("here:1", StatusRequest(), StatusReply, 1000)
        assert others.asked[3:] == ["here:1"], "closed"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (KafkaError(ErrorCode.STALE_BROKER_EPOCH, "12, not 11"), KafkaError),
        (HeadwaterError("stopping"), ControlUnavailableError),
        (RuntimeError("a defect of the handler"), ControlUnavailableError),
    ],
)
def test_errors_are_those_of_the_network(raised: Exception, seen: type[Exception]) -> None:
    async def refuse(_request: Message) -> Message:
        raise raised

    async def run() -> None:
        calls = LoopbackControlCalls("here:1", Others())
        calls.serve({StatusRequest: refuse}, Port()).start()
        with pytest.raises(seen):
            await calls.call("here:1", StatusRequest(), StatusReply, 1000)

    asyncio.run(run())


def test_no_answer_in_time_is_unavailable() -> None:
    async def run() -> None:
        calls = LoopbackControlCalls("here:1", Others())
        calls.serve({ControlledShutdownRequest: _hang}, Port()).start()
        with pytest.raises(ControlUnavailableError, match="within 10 ms"):
            await calls.call("here:1", ControlledShutdownRequest(), ControlledShutdownReply, 10)

    asyncio.run(run())
