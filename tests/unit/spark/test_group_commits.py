"""The listener that commits queries' progress to a consumer group."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from headwater.client.errors import KafkaTimeoutError
from headwater_spark.source.group_commits import GroupCommits
from headwater_spark.source.positions import Position


class Consumer:
    """The two methods of a consumer that the listener calls."""

    def __init__(self, *, fails: bool = False) -> None:
        self.committed: list[dict[Any, Any]] = []
        self.closed = False
        self.fails = fails

    def commit(self, offsets: dict[Any, Any]) -> None:
        assert not self.closed
        if self.fails:
            raise KafkaTimeoutError("no coordinator")
        self.committed.append(offsets)

    def close(self) -> None:
        self.closed = True


class Streams:
    """A session's queries; `asked` is set once the active ones were listed."""

    def __init__(self, *active: str, asked: threading.Event | None = None) -> None:
        self.listeners: list[Any] = []
        self._active = active
        self._asked = asked or threading.Event()

    @property
    def active(self) -> list[Any]:
        self._asked.set()
        return [SimpleNamespace(runId=run) for run in self._active]

    def removeListener(self, listener: Any) -> None:  # noqa: N802 - Spark's
        self.listeners.remove(listener)


def progress(end: int, name: str | None = None) -> Any:
    text = Position({("a", 0): 0}, {("a", 0): end}, {"a": "id"}).text()
    source = SimpleNamespace(endOffset=text, latestOffset=text)
    return SimpleNamespace(progress=SimpleNamespace(sources=[source], name=name))


def listener(streams: Streams, consumer: Consumer, **more: Any) -> GroupCommits:
    found = GroupCommits(SimpleNamespace(streams=streams), consumer, **more)  # type: ignore[arg-type]
    streams.listeners.append(found)
    return found


def test_each_batch_is_committed_even_after_a_failure() -> None:
    consumer = Consumer(fails=True)
    commits = listener(Streams(), consumer)
    commits.onQueryProgress(progress(5))
    consumer.fails = False
    commits.onQueryProgress(progress(9))
    assert consumer.committed == [{("a", 0): 9}]


def test_only_named_queries_are_committed() -> None:
    consumer = Consumer()
    commits = listener(Streams(), consumer, query_names={"mine"})
    commits.onQueryProgress(progress(5, "mine"))
    commits.onQueryProgress(progress(9, "other"))
    commits.onQueryProgress(progress(9))
    assert consumer.committed == [{("a", 0): 5}]


def test_stop_waits_for_the_last_event_of_an_ended_query_and_not_for_a_running_one() -> None:
    consumer, asked = Consumer(), threading.Event()
    streams = Streams("running", asked=asked)
    commits = listener(streams, consumer)
    for run in ("ended", "running"):
        commits.onQueryStarted(SimpleNamespace(runId=run))

    def deliver() -> None:
        asked.wait()
        commits.onQueryProgress(progress(7))
        commits.onQueryTerminated(SimpleNamespace(runId="ended"))

    spark = threading.Thread(target=deliver)
    spark.start()
    commits.stop()
    assert consumer.closed and streams.listeners == []
    assert consumer.committed == [{("a", 0): 7}]
    spark.join()
