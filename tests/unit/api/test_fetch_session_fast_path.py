"""Fetch sessions of consumers: the fast path's response equals that of `DelayedFetch`, byte for
byte."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.records.control import ControlType, build_marker
from headwater.testing.clocks import SeededEntropy
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from headwater.wire.schema import decode
from headwater_broker.api.fetch.delayed_fetch import DelayedFetch
from headwater_broker.api.fetch.request_codec import parse_fetch
from headwater_broker.api.fetch_session.cache import FetchSessionCache
from headwater_broker.api.k01_fetch import fetch
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.partition import Partition
from solo_broker import SoloBroker
from unit.api.test_fetch_fast_path import flat, peer_of, placed
from unit.log.harness import batch as log_batch
from unit.network.test_data_plane import batch, serve

VERSIONS = range(7, 19)
TOPICS = ("a", "b", "closed")
PARTITIONS = 4
STEPS = 400


class Rights(AllowAll):
    """Nobody may read "closed" while it is closed."""

    def __init__(self) -> None:
        self.generation = 0
        self.is_closed = False

    def authorize(
        self, requester: Requester, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return not (operation is Operation.READ and name == "closed" and self.is_closed)

    def close(self, is_closed: bool) -> None:
        self.is_closed = is_closed
        self.generation += 1


class Client:
    """One consumer with a session, as one way of answering sees it."""

    def __init__(self, broker: SoloBroker, *, is_fast: bool) -> None:
        services = broker.services
        sessions = FetchSessionCache(10, services.clock, SeededEntropy(5))
        self.peer = peer_of(broker)
        self.peer.services = replace(services, sessions=sessions)
        self.peer.spawn = lambda work: self.tasks.append(asyncio.ensure_future(work))
        self.tasks: list[asyncio.Future[None]] = []
        self.is_fast = is_fast

    def ask(self, request: FetchRequest, version: int) -> Answer:
        """The answer, perhaps a parked one."""
        view, at, end = placed(request, version)
        if self.is_fast:
            return fetch(self.peer, view, at, end, version, 77)  # type: ignore[no-any-return]
        for session in self.peer.services.sessions:
            for item in session.items.values():
                item.located = None  # so that it is read, whatever is known of it
        return DelayedFetch(
            self.peer, parse_fetch(view[:end], at, end, version), version, 77
        ).start()

    async def response(self, answer: Answer) -> bytes:
        """The bytes of the response, once it is there."""
        if isinstance(answer, ParkedReply):
            while answer.parts is None:
                await asyncio.sleep(0)
            answer = list(answer.parts)
        found = flat(answer)
        assert found is not None
        return found


class Walk:
    """Random requests of one consumer, and random events around them."""

    def __init__(self, broker: SoloBroker, rights: Rights, version: int) -> None:
        self.broker = broker
        self.rights = rights
        self.version = version
        self.chance = random.Random(version)
        self.ids = {t: broker.create_topic(t, PARTITIONS, replicas=(1, 2)) for t in TOPICS}
        self.epochs = dict.fromkeys(TOPICS, 0)
        self.clients = (Client(broker, is_fast=True), Client(broker, is_fast=False))
        self.session_id = self.epoch = 0
        self.is_wild = False
        """Errors come, too."""
        self.read: list[tuple[str, int]] = []
        """Partitions of which the last response had records or an error: a consumer goes on."""
        self.sequences: dict[tuple[str, int], int] = {}

    def topics(self, named: Iterable[tuple[str, int]]) -> tuple[FetchTopic, ...]:
        rows: dict[str, list[FetchPartition]] = {}
        for topic, index in named:
            rows.setdefault(topic, []).append(self.partition(topic, index))
        by_id = self.version >= 13
        return tuple(
            FetchTopic(
                topic="" if by_id else topic,
                topic_id=self.ids[topic] if by_id else UUID(int=0),
                partitions=tuple(parts),
            )
            for topic, parts in rows.items()
        )

    def partition(self, topic: str, index: int) -> FetchPartition:
        """One that has been read is asked for at its end, others anywhere."""
        chance, hosted = self.chance, self.hosted(topic, index)
        end = hosted.log.log_end_offset if hosted else 0
        stable = hosted.last_stable_offset if hosted else 0
        offsets = [hosted.high_watermark if hosted else 0, stable, max(stable - 1, 0)] * 5
        offsets += [0, end, end + 1, chance.randrange(-1, end + 2)] * self.is_wild
        at_end = hosted is not None and (topic, index) in self.read
        return FetchPartition(
            partition=index,
            fetch_offset=hosted.high_watermark if at_end and hosted else chance.choice(offsets),
            partition_max_bytes=chance.choice([0, 200, 1 << 20, 1 << 20]),
            current_leader_epoch=chance.choice([-1, self.epochs[topic]] * 20 + [0] * self.is_wild),
            last_fetched_epoch=chance.choice([-1] * 50 + [0] * self.is_wild)
            if self.version >= 12
            else -1,
        )

    def hosted(self, topic: str, index: int) -> Partition | None:
        return self.broker.replicas.partitions.get((topic, index))

    def request(self) -> FetchRequest:
        chance = self.chance
        if not self.session_id:
            named = [(t, p) for t in TOPICS for p in range(PARTITIONS)]
            wait_ms = 0
        else:
            named = [place for place in self.read if chance.random() < 0.9]
            named += [
                (chance.choice(TOPICS), chance.randrange(PARTITIONS + self.is_wild))
                for _ in range(chance.choice([0, 0, 0, 1, 2]))
            ]
            wait_ms = chance.choice([0, 0, 1])
        forgotten: tuple[ForgottenTopic, ...] = ()
        if self.session_id and chance.random() < 0.03:
            topic = chance.choice(TOPICS)
            row = ForgottenTopic(
                topic="" if self.version >= 13 else topic,
                topic_id=self.ids[topic] if self.version >= 13 else UUID(int=0),
                partitions=(chance.randrange(PARTITIONS),),
            )
            forgotten = (row,)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=chance.choice([0, 1, 1, 1, 1000]),
            max_bytes=chance.choice([100, 1 << 20, 1 << 20]),
            isolation_level=chance.choice([0, 0, 1]),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=self.topics(dict.fromkeys(named)),
            forgotten_topics_data=forgotten,
        )

    def happen(self) -> None:
        """Something that a consumer's next response may have to tell."""
        chance = self.chance
        topic, index = chance.choice(TOPICS), chance.randrange(PARTITIONS)
        hosted = self.hosted(topic, index)
        kind = chance.choice(
            ["append", "replicate"] * 10
            + ["begin", "end", "shorten"]
            + ["close", "move", "again"] * self.is_wild
        )
        if kind == "close":
            self.rights.close(not self.rights.is_closed and chance.random() < 0.3)
        elif kind == "move":
            self.epochs[topic] += 1
            leader = chance.choice([1, 1, 2])
            self.broker.create_topic(
                topic, PARTITIONS, (1, 2), leader=leader, epoch=self.epochs[topic]
            )
        elif kind == "again":
            self.broker.move_away(topic)
            self.broker.delete_topic(topic)
            self.epochs[topic] = 0
            self.ids[topic] = self.broker.create_topic(topic, PARTITIONS, replicas=(1, 2))
            for place in [place for place in self.sequences if place[0] == topic]:
                del self.sequences[place]
        elif hosted is not None and hosted.is_leader:
            self.happen_in(hosted, kind)

    def happen_in(self, hosted: Partition, kind: str) -> None:
        log, place = hosted.log, (hosted.topic, hosted.partition)
        now_ms = 1_795_000_000_000
        if kind == "append":
            count = self.chance.randint(1, 3)
            hosted.append(memoryview(bytearray(batch(count, 60))), 1, now_ms)
        elif kind == "replicate":
            start, end = log.log_start_offset, log.log_end_offset
            now = self.broker.services.clock.monotonic()
            hosted.update_follower(2, 7, self.chance.choice([end, max(end - 1, start)]), now)
        elif kind == "shorten":
            log.delete_records_before(self.chance.randint(0, hosted.high_watermark))
        elif kind == "begin":
            sequence = self.sequences.get(place, 0)
            data = log_batch(producer_id=9, epoch=0, sequence=sequence, transactional=True)
            hosted.append(data, 1, now_ms, AppendOrigin.COORDINATOR)
            self.sequences[place] = sequence + 1
        elif kind == "end" and place in self.sequences:
            kind_of_end = self.chance.choice((ControlType.COMMIT, ControlType.ABORT))
            end = build_marker(
                kind_of_end, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=now_ms
            )
            hosted.append(memoryview(end), 1, now_ms, AppendOrigin.COORDINATOR)

    async def step(self) -> FetchResponse:
        """One request, both answers. Both wait or none does."""
        request = self.request()
        asked = [client.ask(request, self.version) for client in self.clients]
        assert len({isinstance(answer, ParkedReply) for answer in asked}) == 1, request
        if isinstance(asked[0], ParkedReply):
            for _ in range(self.chance.randrange(3)):
                self.happen()
        short, whole = [
            await client.response(answer)
            for client, answer in zip(self.clients, asked, strict=True)
        ]
        decoded, expected = self.decode(short), self.decode(whole)
        assert decoded == expected, request
        assert short == whole
        names = {topic_id: topic for topic, topic_id in self.ids.items()}
        self.read = [
            (names.get(t.topic_id, t.topic), p.partition_index)
            for t in decoded.responses
            for p in t.partitions
            if (p.records or p.error_code) and names.get(t.topic_id, t.topic)
        ]
        return decoded

    def decode(self, response: bytes) -> FetchResponse:
        body = memoryview(response)[9 if self.version >= 12 else 8 :]
        return decode(FetchResponse, self.version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_answers_as_a_fetch_job_does_that_reads_all(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    go_on = DelayedFetch.go_on

    def counted(job: DelayedFetch, *args: Any) -> Answer:
        jobs.append(1)
        return go_on(job, *args)

    monkeypatch.setattr(DelayedFetch, "go_on", counted)
    rights = Rights()

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        walk = Walk(broker, rights, version)
        incremental = with_records = 0
        for number in range(STEPS):
            walk.is_wild = number > STEPS / 2
            for _ in range(walk.chance.randrange(3)):
                walk.happen()
            response = await walk.step()
            incremental += walk.session_id != 0
            with_records += any(p.records for t in response.responses for p in t.partitions)
            if response.error_code or not response.session_id or walk.chance.random() < 0.03:
                walk.session_id = walk.epoch = 0
            else:
                walk.session_id, walk.epoch = response.session_id, walk.epoch + 1
        assert with_records > 100
        assert incremental - len(jobs) > 30, "some need no DelayedFetch"

    serve(tmp_path, scenario, authorizer=rights)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_one_partition_with_records_needs_no_fetch_job(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[DelayedFetch] = []
    go_on = DelayedFetch.go_on

    def counted(job: DelayedFetch, *args: Any) -> Answer:
        jobs.append(job)
        return go_on(job, *args)

    monkeypatch.setattr(DelayedFetch, "go_on", counted)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        ids = {topic: broker.create_topic(topic, 2) for topic in ("a", "b")}

        def named(**offsets: int) -> tuple[FetchTopic, ...]:
            return tuple(
                FetchTopic(
                    topic="" if version >= 13 else topic,
                    topic_id=ids[topic] if version >= 13 else UUID(int=0),
                    partitions=tuple(
                        FetchPartition(
                            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                        for index in ((0, 1) if offset == 0 else (0,))
                    ),
                )
                for topic, offset in offsets.items()
            )

        async def fetch(topics: tuple[FetchTopic, ...], session: int, epoch: int) -> FetchResponse:
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=session,
                session_epoch=epoch,
                topics=topics,
            )
            return await c.call(request, FetchResponse, version=version)

        session = (await fetch(named(a=0, b=0), 0, 0)).session_id
        assert session
        for epoch in (1, 2, 3):
            hosted = broker.replicas.partitions["a", 0]
            hosted.append(memoryview(bytearray(batch(1, 60))), 1, 1_795_000_000_000)
            response = await fetch(named(a=epoch - 1) if epoch > 1 else (), session, epoch)
            [topic] = response.responses
            [row] = topic.partitions
            assert (row.partition_index, row.high_watermark) == (0, epoch) and row.records
        assert len(jobs) <= 1, "the first one, which finds where the partitions are"

    serve(tmp_path, scenario)
