"""A broker that finds no controller answers in time, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.control import ControlCalls
from headwater.ports.metadata_store import ConnectionLostError, MetadataStore, SessionState
from headwater.testing.clocks import ManualClock
from headwater_broker.metadata.controller_channel import UNREACHED_TIMEOUT_S, ControllerChannel

LOOK_S = 4.0


class StoreAway:
    """An unreachable metadata store; each attempt takes some time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def watch(self, _path: str, _changed: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None

    def on_session(self, notify: Callable[[SessionState], None]) -> None:
        notify(SessionState.SUSPENDED)

    async def get(self, path: str) -> Any:
        self._clock.advance(int(LOOK_S * 1000))
        raise ConnectionLostError(path)


class StoreHangs(StoreAway):
    """Like ZooKeeper's client while it is disconnected: calls wait."""

    async def get(self, path: str) -> Any:
        self._clock.advance(int(UNREACHED_TIMEOUT_S * 1000))
        await asyncio.Event().wait()


@pytest.mark.parametrize(("store", "seconds"), [(StoreAway, 16), (StoreHangs, 15)])
def test_a_missing_controller_is_reported_before_clients_give_up(
    store: type[StoreAway], seconds: int
) -> None:
    clock = ManualClock()
    calls = ControllerChannel(
        1,
        lambda: 7,
        cast(MetadataStore, store(clock)),
        cast(ControlCalls, None),
        cast(Any, None),
        clock,
        store_look_s=0.01,
    )
    text = rf"controller did not answer within {seconds} s.*ZooKeeper"
    with pytest.raises(KafkaError, match=text) as refused:
        asyncio.run(calls.forward(19, 7, b"", timeout_ms=60_000))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
