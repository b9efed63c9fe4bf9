"""Broker shutdown: every step runs, in order, whatever fails before it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, cast

import pytest

from headwater_broker.app.lifecycle import Lifecycle
from headwater_broker.app.scheduler import Scheduler
from headwater_broker.app.wiring import BrokerServer


class Done:
    """What may be awaited, or not."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class Part:
    """Any part of a broker: each call is noted; those named in `failing` raise."""

    def __init__(self, name: str, calls: list[str], failing: str) -> None:
        self._name = name
        self._calls = calls
        self._failing = failing

    def __getattr__(self, name: str) -> Part:
        return Part(f"{self._name}.{name}".removeprefix("."), self._calls, self._failing)

    def __call__(self, *_: object, **__: object) -> Done:
        self._calls.append(self._name)
        if self._name == self._failing:
            raise RuntimeError("a defect")
        return Done()


class Whole(Part):
    """A node of such parts, on the running loop."""

    def __init__(self, calls: list[str], failing: str) -> None:
        super().__init__("", calls, failing)
        self.listeners = [Part("listener", calls, failing)]


def stopped(failing: str, *, is_loaded: bool = True) -> list[str]:
    async def run() -> list[str]:
        calls: list[str] = []
        server = cast(BrokerServer, cast(Any, Whole(calls, failing)))
        lifecycle = Lifecycle(server, lambda _: None, Scheduler(asyncio.get_running_loop()))
        if is_loaded:
            lifecycle.load_logs()
        calls.clear()
        await lifecycle.stop()
        return calls

    return asyncio.run(run())


@pytest.mark.parametrize(
    "failing",
    ["listener.close", "services.groups.close", "replicas.close", "controller.stop",
     "controller_channel.close", "registration.stop", "environment.files.sync_all", "logs.close",
     "environment.store.close"],
)  # fmt: skip
def test_a_step_that_fails_is_told_and_keeps_none_from_being_done(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert stopped(failing) == stopped("nothing")
    assert "a defect" in caplog.text


def test_clients_go_first_and_logs_are_closed_before_the_session_ends() -> None:
    calls = stopped("nothing")
    order = ["listener.close", "replicas.close", "controller.stop", "registration.stop",
             "environment.files.sync_all", "logs.close", "environment.store.close"]  # fmt: skip
    assert [call for call in calls if call in order] == order


def test_a_folder_that_was_never_loaded_is_not_marked() -> None:
    assert "logs.close" not in stopped("nothing", is_loaded=False)
