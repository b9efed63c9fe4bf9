"""A SoloBroker on a loop of its own, for blocking clients; its port can be closed and opened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headwater.client.loop_thread import LoopThread
from headwater_broker.app.data_plane import build_listener
from solo_broker import SoloBroker

T = TypeVar("T")
CALL_S = 30.0


class ServedBroker:
    """One broker without a controller: `do` runs on its loop what a controller would do."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.broker = SoloBroker(folder, **properties)
        self._thread = LoopThread("served-broker")

    def __enter__(self) -> ServedBroker:
        self._thread.call(self.broker.start(), CALL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.call(self.broker.stop(), CALL_S)
        self._thread.stop()

    @property
    def bootstrap(self) -> str:
        """`bootstrap_servers` of a client."""
        return f"127.0.0.1:{self.broker.port}"

    def do(self, work: Callable[[SoloBroker], T]) -> T:
        """The result of `work`, run on the broker's loop."""

        async def run() -> T:
            return work(self.broker)

        return self._thread.call(run(), CALL_S)

    def close_port(self) -> None:
        """Refuse connections and drop those that are open."""
        self._thread.call(self.broker.listener.close(), CALL_S)

    def open_port(self) -> None:
        """Accept connections again, at the same port."""

        async def run() -> None:
            broker = self.broker
            broker.listener = build_listener(broker.dynamic, broker.services, "PLAINTEXT")
            await broker.listener.start("127.0.0.1", broker.port)

        self._thread.call(run(), CALL_S)


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again and again; the test's time limit ends a wait in vain."""
    pause = threading.Event()
    while not holds():
        pause.wait(0.01)
