"""A broker that finds no controller says so in time, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.control import ControlCalls
from headwater.ports.metadata_store import ConnectionLostError, MetadataStore
from headwater.testing.clocks import ManualClock
from headwater_broker.cluster.controller_calls import UNREACHED_TIMEOUT_S, ControllerCalls

LOOK_S = 4.0


class StoreAway:
    """A metadata store that nobody reaches; each try takes its time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def watch(self, _path: str, _changed: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None

    async def get(self, path: str) -> Any:
        self._clock.advance(int(LOOK_S * 1000))
        raise ConnectionLostError(path)


def test_no_controller_is_told_before_clients_give_up() -> None:
    clock = ManualClock()
    calls = ControllerCalls(
        1,
        lambda: 7,
        cast(MetadataStore, StoreAway(clock)),
        cast(ControlCalls, None),
        cast(Any, None),
        clock,
    )
    with pytest.raises(KafkaError, match=r"did not answer within 16 s.*ZooKeeper") as refused:
        asyncio.run(calls.forward(19, 7, b"", timeout_ms=60_000))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert UNREACHED_TIMEOUT_S <= clock.monotonic() < UNREACHED_TIMEOUT_S + LOOK_S
