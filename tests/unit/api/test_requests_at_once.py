"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit that are answered without a
codec: with the codec as the oracle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, ResourceType
from headwater.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k28_txn_offset_commit as k28
from headwater.wire.framing import decode_response
from headwater.wire.schema import Message, encoder
from headwater_broker.api.k24_add_partitions_to_txn import add_at_once
from headwater_broker.api.k25_add_offsets_to_txn import add_at_once as add_offsets_at_once
from headwater_broker.api.k26_end_txn import end_at_once
from headwater_broker.api.k28_txn_offset_commit import commit_at_once
from headwater_broker.api.raw_connection import Peer
from headwater_broker.network.request_timer import TIMED_FIRST
from headwater_broker.security.session import Session
from solo_broker import SoloBroker
from unit.api.test_transactions import SMALL, described, end, init, producer_of, settled
from unit.api.test_transactions_to_their_end import V2, write
from unit.network.test_data_plane import serve

E = ErrorCode
END, COMMIT = 26, 28
VERSION = 5
CORRELATION_ID = 77
GROUP = "g"
R = TypeVar("R", bound=Message)
Story = Callable[[SoloBroker, Connection], Awaitable[None]]
AtOnce = Callable[..., bytes | None]


def tell(tmp_path: Path, story: Story) -> None:
    async def with_topics(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic(OFFSETS_TOPIC, 1)
        broker.create_topic("flights", 2)
        await story(broker, c)

    serve(tmp_path, with_topics, offset_metadata_max_bytes="10", **SMALL)


class Asked:
    """A connection as `at_once` sees it, with all rights; `remembers`: they were asked before."""

    def __init__(self, broker: SoloBroker, *, remembers: bool = True) -> None:
        self.session = Session(AllowAll(), listener="PLAINTEXT")
        if remembers:
            self.session.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
            self.session.allows(Operation.READ, ResourceType.GROUP, GROUP)
            self.session.allows(Operation.READ, ResourceType.TOPIC, "flights")
            self.session.allows(Operation.WRITE, ResourceType.TOPIC, "flights")
            self.session.allows(Operation.WRITE, ResourceType.TOPIC, OFFSETS_TOPIC)
        self._peer = SimpleNamespace(services=broker.services, session=self.session)

    def bytes_of(
        self, at_once: AtOnce, body: bytes, *, version: int = VERSION, before: bytes = b""
    ) -> bytes | None:
        """What it answers to a body at some place of the receive buffer."""
        view, end_at = memoryview(before + body), len(before) + len(body)
        peer = cast(Peer, self._peer)
        return at_once(peer, view, len(before), end_at, version, CORRELATION_ID)

    def reply(self, at_once: AtOnce, request: Message, cls: type[R], version: int = VERSION) -> R:
        """The decoded reply; all of its bytes are of it."""
        body = body_of(request, version)
        found = self.bytes_of(at_once, body, version=version, before=b"header")
        assert found is not None and int.from_bytes(found[:4], "big") == len(found) - 4
        reply = decode_response(cls, version, found[4:], CORRELATION_ID)
        assert found.endswith(encoder(cls, version)(reply))
        return reply


def body_of(request: Message, version: int = VERSION) -> bytes:
    return encoder(type(request), version)(request)


def end_request(
    producer: tuple[int, int], *, commit: bool = True, transactional_id: str = "t"
) -> k26.EndTxnRequest:
    return k26.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )


def offsets_request(
    producer: tuple[int, int], *partitions: int, offset: int = 9, metadata: str | None = "m",
    topic: str = "flights", **more: Any,
) -> k28.TxnOffsetCommitRequest:  # fmt: skip
    rows = tuple(
        k28.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index in partitions
    )
    topics = (k28.TxnOffsetCommitRequestTopic(name=topic, partitions=rows),)
    fields = {"transactional_id": "t", "group_id": GROUP, "topics": topics, **more}
    return k28.TxnOffsetCommitRequest(producer_id=producer[0], producer_epoch=producer[1], **fields)


async def committed(c: Connection) -> list[tuple[int, str]]:
    """The offsets of flights-0 and flights-1."""
    topic = k09.OffsetFetchRequestTopics(name="flights", partition_indexes=(0, 1))
    group = k09.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
    request = k09.OffsetFetchRequest(groups=(group,), require_stable=True)
    reply = await c.call(request, k09.OffsetFetchResponse, version=8)
    return [
        (ErrorCode(p.error_code), "") if p.error_code else (p.committed_offset, p.metadata or "")
        for p in reply.groups[0].topics[0].partitions
    ]


def add_request(
    producer: tuple[int, int],
    *topics: tuple[str, tuple[int, ...]],
    transactional_id: str = "t",
) -> k24.AddPartitionsToTxnRequest:
    return k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=tuple(
            k24.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics
        ),
    )


@pytest.mark.parametrize("version", [0, 2, 3])
def test_partitions_are_added_as_by_the_codecs(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("weather", 1)
        producer = await producer_of(c)
        asked = Asked(broker)
        request = add_request(producer, ("flights", (1, 0)), ("weather", (0,)))
        body = body_of(request, version)
        assert asked.bytes_of(add_at_once, body, version=version) is None, "a right is not known"
        asked.session.allows(Operation.WRITE, ResourceType.TOPIC, "weather")
        reply = asked.reply(add_at_once, request, k24.AddPartitionsToTxnResponse, version)
        assert reply.throttle_time_ms == 0
        assert [
            (t.name, [(p.partition_index, p.partition_error_code) for p in t.results_by_partition])
            for t in reply.results_by_topic_v3_and_below
        ] == [("flights", [(1, 0), (0, 0)]), ("weather", [(0, 0)])]
        (row,) = await described(c, "t")
        assert row.transaction_state == "Ongoing"
        assert {(t.topic, tuple(sorted(t.partitions))) for t in row.topics} == {
            ("flights", (0, 1)),
            ("weather", (0,)),
        }
        assert asked.bytes_of(add_at_once, body, version=version) is None, "no record is written"

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [1, 3])
def test_unusual_additions_are_left_to_the_handler(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        usual = body_of(add_request(producer, ("flights", (0,))), version)
        assert asked.bytes_of(add_at_once, usual + b"\0", version=version) is None
        assert Asked(broker, remembers=False).bytes_of(add_at_once, usual, version=version) is None
        flights = ("flights", (0,))
        for request in (
            add_request(producer),
            add_request(producer, ("flights", ())),
            add_request(producer, ("flights", (0, 0))),
            add_request(producer, ("flights", (2,))),
            add_request(producer, ("weather", (0,))),
            add_request(producer, flights, flights),
            add_request(producer, (OFFSETS_TOPIC, (0,))),
            add_request(producer, flights, transactional_id=""),
            add_request(producer, flights, transactional_id="other"),
            add_request(producer, flights, transactional_id="t" * 200),
            add_request((producer[0], producer[1] + 1), flights),
            add_request((producer[0] + 1, producer[1]), flights),
        ):
            body = body_of(request, version)
            assert asked.bytes_of(add_at_once, body, version=version) is None, request
        sinks = "__hw.sink.1"
        asked.session.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, sinks)
        of_sink = body_of(add_request(producer, flights, transactional_id=sinks), version)
        assert asked.bytes_of(add_at_once, of_sink, version=version) is None
        (row,) = await described(c, "t")
        assert row.transaction_state == "Empty", "none of them did anything"
        assert asked.bytes_of(add_at_once, usual, version=version) is not None

    tell(tmp_path, story)


def test_tagged_fields_and_requests_of_brokers_are_left_to_the_handler(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        body = body_of(add_request(producer, ("flights", (0,))), 3)
        for at in (-1, -2):  # those of the request, those of its topic
            tagged = bytearray(body)
            tagged[at] = 1
            assert asked.bytes_of(add_at_once, bytes(tagged), version=3) is None
        assert asked.bytes_of(add_at_once, body, version=4) is None

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_a_transaction_of_version_1_is_ended_on_its_connection(
    tmp_path: Path, version: int
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        older, asked = Asked(broker), Asked(broker)
        begin = add_request(producer, ("flights", (0,)))
        asked.reply(add_at_once, begin, k24.AddPartitionsToTxnResponse, 3)
        request = end_request(producer)
        late = older.bytes_of(end_at_once, body_of(request, version), version=version)
        assert late is None, "the transaction began on a newer connection"
        reply = asked.reply(end_at_once, request, k26.EndTxnResponse, version)
        assert (reply.error_code, reply.throttle_time_ms) == (E.NONE, 0)
        await settled(broker)
        (row,) = await described(c, "t")
        assert (row.transaction_state, row.producer_epoch) == ("CompleteCommit", producer[1])

    tell(tmp_path, story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_as_by_the_codecs(tmp_path: Path, commit: bool) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        assert await write(c, producer, V2) is E.NONE
        reply = Asked(broker).reply(
            end_at_once, end_request(producer, commit=commit), k26.EndTxnResponse
        )
        assert (reply.error_code, reply.throttle_time_ms) == (E.NONE, 0)
        assert (reply.producer_id, reply.producer_epoch) == (producer[0], producer[1] + 1)
        await settled(broker)
        (row,) = await described(c, "t")
        assert row.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        again = await end(c, producer, commit=commit)
        assert (again.error_code, again.producer_epoch) == (E.NONE, producer[1] + 1)

    tell(tmp_path, story)


def test_what_is_unusual_is_left_to_the_handler(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        request = end_request(producer)
        asked = Asked(broker)
        assert asked.bytes_of(end_at_once, body_of(request)) is None, "no transaction is open"
        await write(c, producer, V2)
        body = body_of(request)
        for rest in (b"\0", b"more"):
            assert asked.bytes_of(end_at_once, body + rest) is None
        assert asked.bytes_of(end_at_once, body[:-1] + b"\1") is None, "tagged fields"
        with pytest.raises(IndexError):  # as the codec does
            asked.bytes_of(end_at_once, b"")
        assert Asked(broker, remembers=False).bytes_of(end_at_once, body) is None
        for other in (
            end_request((producer[0], producer[1] + 1)),
            end_request((producer[0] + 1, producer[1])),
            end_request(producer, transactional_id="other"),
            end_request(producer, transactional_id="__hw.sink.1"),
            end_request(producer, transactional_id=""),
            end_request(producer, transactional_id="t" * 200),
        ):
            assert asked.bytes_of(end_at_once, body_of(other)) is None, other
        (row,) = await described(c, "t")
        assert row.transaction_state == "Ongoing", "none of them did anything"
        assert asked.bytes_of(end_at_once, body) is not None

    tell(tmp_path, story)


def test_offsets_are_committed_as_by_the_codecs(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        request = offsets_request(producer, 1, 0)
        reply = asked.reply(commit_at_once, request, k28.TxnOffsetCommitResponse)
        (topic,) = reply.topics
        assert topic.name == "flights"
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(1, 0), (0, 0)]
        unstable = (E.UNSTABLE_OFFSET_COMMIT, "")
        assert await committed(c) == [unstable, unstable]
        (row,) = await described(c, "t")
        assert [t.topic for t in row.topics] == [OFFSETS_TOPIC], "it is enlisted"
        more = offsets_request(producer, 1, offset=10, metadata="")
        assert asked.bytes_of(commit_at_once, body_of(more)) is not None
        large = offsets_request(producer, 0, 1, offset=11, metadata="")
        assert asked.bytes_of(commit_at_once, body_of(large)) is not None
        assert (await end(c, producer)).error_code == E.NONE
        await settled(broker)
        assert await committed(c) == [(11, ""), (11, "")]

    tell(tmp_path, story)


def group_request(
    producer: tuple[int, int], *, transactional_id: str = "t", group_id: str = GROUP
) -> k25.AddOffsetsToTxnRequest:
    return k25.AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_a_group_is_added_as_by_the_codecs(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        for request in (
            group_request(producer, transactional_id=""),
            group_request(producer, transactional_id="other"),
            group_request(producer, transactional_id="t" * 200),
            group_request(producer, group_id=""),
            group_request(producer, group_id="h"),
            group_request((producer[0], producer[1] + 1)),
        ):
            body = body_of(request, version)
            assert asked.bytes_of(add_offsets_at_once, body, version=version) is None, request
        usual = body_of(group_request(producer), version)
        longer = asked.bytes_of(add_offsets_at_once, usual + b"\0", version=version)
        assert longer is None
        (row,) = await described(c, "t")
        assert row.transaction_state == "Empty", "none of them did anything"
        reply = asked.reply(
            add_offsets_at_once, group_request(producer), k25.AddOffsetsToTxnResponse, version
        )
        assert (reply.error_code, reply.throttle_time_ms) == (E.NONE, 0)
        (row,) = await described(c, "t")
        assert [(t.topic, t.partitions) for t in row.topics] == [(OFFSETS_TOPIC, (0,))]

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [3, 4])
def test_offsets_of_a_transaction_of_version_1_need_their_partition_enlisted(
    tmp_path: Path, version: int
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        request = offsets_request(producer, 0, 1)
        body = body_of(request, version)
        assert asked.bytes_of(commit_at_once, body, version=version) is None, "none is open"
        asked.reply(add_offsets_at_once, group_request(producer), k25.AddOffsetsToTxnResponse, 4)
        reply = asked.reply(commit_at_once, request, k28.TxnOffsetCommitResponse, version)
        assert [p.error_code for p in reply.topics[0].partitions] == [0, 0]
        asked.reply(end_at_once, end_request(producer), k26.EndTxnResponse, 4)
        await settled(broker)
        assert await committed(c) == [(9, "m"), (9, "m")]

    tell(tmp_path, story)


def test_a_code_of_one_partition_is_answered(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        rows = tuple(
            k28.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=9, committed_metadata="m" * size
            )
            for index, size in ((0, 11), (1, 10))
        )
        topic = k28.TxnOffsetCommitRequestTopic(name="flights", partitions=rows)
        request = k28.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=(topic,),
        )
        reply = Asked(broker).reply(commit_at_once, request, k28.TxnOffsetCommitResponse)
        codes = [p.error_code for p in reply.topics[0].partitions]
        assert codes == [E.OFFSET_METADATA_TOO_LARGE, E.NONE]

    tell(tmp_path, story)


def test_unusual_commits_are_left_to_the_handler(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        asked = Asked(broker)
        usual = body_of(offsets_request(producer, 0))
        assert asked.bytes_of(commit_at_once, usual, version=2) is None
        assert asked.bytes_of(commit_at_once, usual, version=6) is None
        assert asked.bytes_of(commit_at_once, usual + b"more") is None
        assert Asked(broker, remembers=False).bytes_of(commit_at_once, usual) is None
        for request in (
            offsets_request(producer, 0, metadata=None),
            offsets_request(producer, 0, metadata="m" * 200),
            offsets_request(producer),
            offsets_request(producer, *range(200)),
            offsets_request(producer, 2),
            offsets_request(producer, 0, topic="weather"),
            offsets_request(producer, 0, generation_id=1, member_id="m"),
            offsets_request(producer, 0, member_id="m"),
            offsets_request(producer, 0, group_instance_id="i"),
            offsets_request(producer, 0, group_id=""),
            offsets_request(producer, 0, transactional_id=""),
            offsets_request(producer, 0, transactional_id="other"),
            offsets_request((producer[0], producer[1] + 1), 0),
            offsets_request(producer, 0, topics=()),
        ):
            assert asked.bytes_of(commit_at_once, body_of(request)) is None, request
        assert await committed(c) == [(-1, ""), (-1, "")]

    tell(tmp_path, story)


def test_many_transactions_of_a_connection_are_counted_and_hold(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer, times = await producer_of(c), TIMED_FIRST * 2
        for number in range(times):
            assert await write(c, producer, V2) is E.NONE
            request = offsets_request(producer, 0, 1, offset=number)
            reply = await c.call(request, k28.TxnOffsetCommitResponse, version=VERSION)
            assert [p.error_code for p in reply.topics[0].partitions] == [0, 0]
            ended = await end(c, producer)
            assert ended.error_code == E.NONE
            assert ended.producer_epoch == producer[1] + 1
            producer = ended.producer_id, ended.producer_epoch
        await settled(broker)
        assert await committed(c) == [(times - 1, "m"), (times - 1, "m")]
        meters = broker.services.meters
        assert (meters.api(END).requests, meters.api(COMMIT).requests) == (times, times)

    tell(tmp_path, story)


def test_whoever_waits_for_markers_comes_first(tmp_path: Path) -> None:
    """A request whose transaction's markers are on their way waits; none passes it meanwhile."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        await write(c, producer, V2)
        asked = Asked(broker)
        assert asked.bytes_of(end_at_once, body_of(end_request(producer))) is not None
        following = (producer[0], producer[1] + 1)
        for request in (end_request(following), end_request(following, commit=False)):
            assert asked.bytes_of(end_at_once, body_of(request)) is None, "markers are on their way"
        offsets = body_of(offsets_request(following, 0))
        assert asked.bytes_of(commit_at_once, offsets) is None
        await settled(broker)
        assert asked.bytes_of(commit_at_once, offsets) is not None
        reply = await init(c)
        assert reply.error_code == E.NONE, "it aborts the transaction of the offsets"
        assert await committed(c) == [(-1, ""), (-1, "")]

    tell(tmp_path, story)
