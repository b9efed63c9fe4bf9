"""Many new topics at once: the first commits do not wait until every table exists."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater_tier.delta import Change, LogTable
from headwater_tier.service.service import (
    COMMIT_QUEUE_MAX,
    FIND_EVERY_S,
    OPENINGS_MAX,
    REREAD_EVERY_S,
    TURNS_A_STEP,
)
from headwater_tier.service.table_thread import THREADS
from headwater_tier.service.topic_finder import TieredTopic
from unit.tier.service.many_topics import RECORDS, Place

TOPICS = 30
WITHOUT_LEADER = "t-07"
MANY = TURNS_A_STEP + COMMIT_QUEUE_MAX


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.service.close()


@pytest.fixture
def full(place: Place) -> Place:
    """With TOPICS topics."""
    for number in range(TOPICS):
        name = f"t-{number:02d}"
        place.finder.topics[name] = place.finder.topic(name, number + 1)
    return place


def test_tables_are_made_between_the_commits(full: Place) -> None:
    full.drain(full.finder.topics)
    kinds = [kind for kind, _ in full.seen.events]
    # Each thread has at most the openings that are on their way before its first commit.
    assert kinds.index("committed") <= THREADS * OPENINGS_MAX < TOPICS
    assert sorted(name for kind, name in full.seen.events if kind == "committed") == sorted(
        full.finder.topics
    )
    for topic in full.finder.topics.values():
        assert topic.location is not None
        assert LogTable(topic.location).snapshot.ends == {0: RECORDS}


def test_a_topic_without_a_leader_keeps_no_other_from_its_table(full: Place) -> None:
    full.brokers.broken = WITHOUT_LEADER
    full.drain(full.finder.topics)
    assert WITHOUT_LEADER in full.service.topics[WITHOUT_LEADER].error
    committed = [name for kind, name in full.seen.events if kind == "committed"]
    assert sorted(committed) == sorted(full.finder.topics.keys() - {WITHOUT_LEADER})


def test_a_restarted_service_commits_nothing_twice(full: Place) -> None:
    for topic in full.finder.topics.values():
        assert topic.location is not None
        table = LogTable.create(topic.location, 1)
        table.commit(Change("tier", 0, ends={0: RECORDS}, starts={0: 0}))
    full.drain(full.finder.topics)
    assert [kind for kind, _ in full.seen.events] == ["opened"] * TOPICS
    assert all(topic.behind == 0 for topic in full.service.schedule.topics.values())


def named(place: Place, letter: str, count: int, *, is_stuck: bool) -> list[str]:
    """Names of topics whose tables are the first thread's, which gets stuck, or are not."""
    place_of, found = place.service.tables.thread_of, dict[str, TieredTopic]()
    number = 1000 * ord(letter)
    while len(found) < count:
        number += 1
        topic = place.finder.topic(f"{letter}-{number}", number)
        assert topic.location is not None
        if (place_of(topic.location) == 0) == is_stuck:
            found[topic.topic.name] = topic
    place.finder.topics |= found
    return list(found)


@contextmanager
def stuck(place: Place, name: str) -> Iterator[None]:
    """The thread of this open table waits for a disk meanwhile."""
    gate = threading.Event()
    location = place.finder.topics[name].location
    assert location is not None
    place.service.tables.run(location, lambda _table: gate.wait())
    try:
        yield
    finally:
        gate.set()


def test_commits_that_hang_stop_no_other_threads_topics(place: Place) -> None:
    first = named(place, "a", MANY, is_stuck=True)
    others = named(place, "z", 3, is_stuck=False)
    place.drain(place.finder.topics)
    with stuck(place, first[0]):
        place.brokers.ends = dict.fromkeys([*first, *others], 2 * RECORDS)
        place.clock.advance(int(FIND_EVERY_S * 1000) + 1)
        place.drain(others)
        waiting = sum(place.service.topics[name].in_flight for name in first)
        assert waiting <= COMMIT_QUEUE_MAX
    place.drain(first)


def test_topics_that_wait_for_their_tables_keep_no_other_from_its_turn(place: Place) -> None:
    others = named(place, "z", 3, is_stuck=False)
    (held,) = named(place, "h", 1, is_stuck=True)
    place.drain(place.finder.topics)
    with stuck(place, held):
        new = named(place, "a", MANY, is_stuck=True)
        place.brokers.ends = dict.fromkeys(others, 2 * RECORDS)
        place.clock.advance(int(FIND_EVERY_S * 1000) + 1)
        place.drain(others)
        assert sum(place.service.topics[name].is_opening for name in new) < OPENINGS_MAX
    place.drain(new)


def test_tables_that_are_read_again_keep_no_new_topic_from_its_table(place: Place) -> None:
    quiet = named(place, "a", MANY, is_stuck=True)
    place.drain(place.finder.topics)
    with stuck(place, quiet[0]):
        place.clock.advance(int(REREAD_EVERY_S * 1000) + 1)
        place.service.step(0.0)
        assert any(place.service.topics[name].is_opening for name in quiet)
        new = named(place, "z", 2, is_stuck=False)
        place.clock.advance(int(FIND_EVERY_S * 1000) + 1)
        place.drain(new)
