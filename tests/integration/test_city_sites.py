"""The city loses a site: brokers killed mid-day, and every record is at the other one by its id."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from city.clock import CityClock
from city.feeds import feeds_of
from city.fields import DATA_TOPICS, FACES, TOPICS, TRACKS, VEHICLES, WATCH_INSTRUCTIONS
from city.flows import Site
from city.ledger import Ledger
from city.live import LiveService
from city.live_desk import LiveDesk
from city.producers import Producers
from city.sightings import sighting_of
from city.sites import create_own_topics, read_positions
from city.watch_oracle import watched
from city.whole_topics import read_to_end
from city.world import World, WorldPlan, make_world
from headwater import Admin, Consumer, NewTopic, Producer
from headwater.mirror.config import load_config
from headwater.system import SystemClock
from integration.cluster import LocalCluster
from integration.conftest import Start, next_base_port
from mirror_pair import MirrorProcess, properties

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(120)]

DAY_S = 8.0
LOST_AFTER_S = 6.0
WAIT_S = 30
CLOCK = SystemClock()


def create_all(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(t.name, t.partitions, 1, configs=t.configs) for t in TOPICS])


@contextmanager
def live(cluster: LocalCluster) -> Iterator[LiveService]:
    service = LiveService(cluster.bootstrap, {}, CLOCK)
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        assert service.ready.wait(WAIT_S)
        yield service
    finally:
        service.stopping.set()
        thread.join(WAIT_S)


@contextmanager
def site_b(folder: Path) -> Iterator[LocalCluster]:
    """The other site: a broker of a cluster with an id of its own."""
    cluster = LocalCluster(folder, next_base_port(folder), 1)
    cluster.spec = replace(cluster.spec, cluster_id="hwTestClusterBBBBBBBBBB")
    with cluster:
        yield cluster


def has_topics(cluster: LocalCluster) -> bool:
    with Admin(cluster.bootstrap) as admin:
        return set(DATA_TOPICS) <= set(admin.list_topics())


def ids_at(cluster: LocalCluster, topic: str) -> Counter[str]:
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        found = read_to_end(consumer, [topic], CLOCK)
        sightings = [sighting_of(record.topic, record.value) for record in found]
    return Counter(s.record_id for s in sightings if s is not None)


def points_at(cluster: LocalCluster) -> set[str]:
    """The track points that are reported at a site."""
    desk = LiveDesk()
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        for record in read_to_end(consumer, [TRACKS], CLOCK):
            desk.remember(record.value)
    return desk.reported


def instruct(cluster: LocalCluster, world: World, since_ms: int) -> set[str]:
    """Send the instructions of the police; the points that the truth names."""
    expected = set()
    with Producer(cluster.bootstrap) as producer:
        for one in watched(world):
            value = one.since(since_ms).value()
            producer.send(WATCH_INSTRUCTIONS, value, key=one.name).result(WAIT_S)
            letter = "v" if one.topic == VEHICLES else "f"
            expected |= {f"{one.name}/{letter}{row:07d}" for row in one.rows.tolist()}
    return expected


def test_every_record_is_at_the_site_that_takes_over(start_cluster: Start, tmp_path: Path) -> None:
    with site_b(tmp_path / "other") as other:
        lose_a_site(start_cluster(1), other, tmp_path)


def lose_a_site(lost: LocalCluster, other: LocalCluster, tmp_path: Path) -> None:
    """A day of the city, and the loss of its site before the evening."""
    world = make_world(WorldPlan(vehicles=6_000, faces=1_500))
    create_all(lost)
    create_own_topics(other.bootstrap)
    topics = ",".join(DATA_TOPICS)
    given = properties(lost.bootstrap, other.bootstrap, topics=topics, replication_factor="1")
    clock = CityClock(CLOCK, DAY_S)
    ledger = Ledger({feed.topic: len(feed.truth) for feed in feeds_of(world)})
    first = Site("A", lost.bootstrap, tmp_path / "a", is_mirrored=True)
    second = Site("B", other.bootstrap, tmp_path / "b", is_successor=True)
    with MirrorProcess(tmp_path, given) as mirror:
        config = load_config(str(mirror.file))
        try:
            other.wait_until(lambda: has_topics(other), "the mirror has made the data topics")
        except AssertionError as e:
            raise AssertionError(mirror.log.read_text()) from e
        producers = Producers(
            world,
            feeds_of(world),
            clock,
            ledger,
            tmp_path / "spool",
            lambda: read_positions(config),
        )
        with live(lost):
            expected = instruct(lost, world, 0)
            clock.begin()
            producers.start(first)
            threading.Event().wait(LOST_AFTER_S)
            reported_until_ms = clock.now_ms()
        at_a = points_at(lost)
        lost.kill_broker(0)
    passed = {t: sum(p.values()) for t, p in read_positions(config).items()}
    producers.move(second)
    with live(other) as service:
        instruct(other, world, max(0, reported_until_ms - 3_600_000))
        assert producers.join() == []
        other.wait_until(
            lambda: service.desk.reported | at_a == expected, "every point is at A or B", WAIT_S
        )
    for topic, truth in ((VEHICLES, world.vehicles), (FACES, world.faces)):
        assert ledger.acked(topic).all()
        found = ids_at(other, topic)
        assert len(found) == len(truth), (topic, passed)  # each at least once; the table merges
        twice = sum(count - 1 for count in found.values())
        assert twice <= producers.resent_rows
    assert sum(passed.values()) > 0 and at_a < expected
