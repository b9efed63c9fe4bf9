"""The catalog's thread in the tier service: new topics wait for their rows, no failure stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from catalog_doubles import A
from headwater.client.blocking.broker_metadata import Topic
from headwater.errors import HeadwaterError, UsageError
from headwater_tier.catalog.keeper import CatalogKeeper
from headwater_tier.catalog.open import CatalogOptions

OPTIONS = CatalogOptions(bootstrap_servers="b:1", zookeeper="zk:1")
TOPIC = Topic("t", "", A, 1, False, (0,), (0,))
WAIT_S = 10.0


class Opened:
    """An open catalog whose writer does as it is told."""

    def __init__(self, tick: Callable[[], int]) -> None:
        self.writer: Any = self
        self.tick = tick
        self.last_error = ""
        self.known = False
        self.is_closed = threading.Event()

    def has_topic(self, _topic: str, _topic_id: object) -> bool:
        return self.known

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.is_closed.set()


def test_a_topic_is_admitted_once_its_row_is_committed() -> None:
    ticked = threading.Event()

    def tick() -> int:
        ticked.set()
        return 0

    opened = Opened(tick)
    keeper = CatalogKeeper(OPTIONS, lambda _options: opened)  # type: ignore[arg-type, return-value]
    assert not keeper.admits(TOPIC), "nothing is known yet"
    keeper.start()
    assert ticked.wait(WAIT_S)
    assert not keeper.admits(TOPIC)
    opened.known = True
    assert keeper.admits(TOPIC)
    keeper.close()
    assert opened.is_closed.is_set()


def test_a_catalog_that_cannot_be_written_stops_no_tiering() -> None:
    ticked = threading.Event()

    def tick() -> int:
        ticked.set()
        return 0

    opened = Opened(tick)
    keeper = CatalogKeeper(OPTIONS, lambda _options: opened)  # type: ignore[arg-type, return-value]
    keeper.start()
    assert ticked.wait(WAIT_S)
    opened.last_error = "the object store does not answer"
    assert keeper.admits(TOPIC)
    keeper.close()


@pytest.mark.parametrize(
    "error",
    [UsageError("headwater.catalog.key.file: no"), HeadwaterError("no broker"), ValueError("x")],
)
def test_what_keeps_it_from_opening_is_its_status(error: Exception) -> None:
    tried = threading.Event()

    def fail(_options: CatalogOptions) -> Any:
        tried.set()
        raise error

    keeper = CatalogKeeper(OPTIONS, fail)
    keeper.start()
    assert tried.wait(WAIT_S)
    keeper.close()
    assert str(error) in keeper.status.last_error
    assert keeper.admits(TOPIC)
