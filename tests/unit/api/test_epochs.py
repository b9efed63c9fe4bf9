"""Epoch transactions through one broker: join, write, commit, abort, prepare, and readers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k18_api_versions as k18
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k10000_allocate_epoch_ticket as k10000
from headwater.wire.apis import k10006_describe_sinks as k10006
from headwater.wire.apis import k10007_delete_sinks as k10007
from headwater.wire.apis import k10008_take_over_sink as k10008
from headwater.wire.epoch_values import EpochStatus
from solo_broker import SoloBroker
from unit.api.epoch_requests import NEWER_RUN, RUN, Writer, ticket, write
from unit.api.test_transactions import SMALL, TRANSACTIONAL_ID, Acls, add, described, init, settled
from unit.api.test_transactions_to_their_end import stable
from unit.network.test_data_plane import serve

E = ErrorCode
Story = Callable[[SoloBroker, Connection], Awaitable[None]]


def tell(tmp_path: Path, story: Story, *, acls: AllowAll | None = None) -> None:
    async def with_topics(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        await story(broker, c)

    serve(tmp_path, with_topics, authorizer=acls or AllowAll(), **SMALL)


def test_tickets_rise(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        first = await ticket(c)
        assert await ticket(c) > first

    tell(tmp_path, story)


def test_a_committed_epoch_is_read_whole_and_an_aborted_one_not(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one, two = await writer.join(0), await writer.join(1, 1, 0)
        assert (one.error_code, one.status, two.slot) == (E.NONE, EpochStatus.OPEN, 1)
        assert await write(c, one) is E.NONE
        assert await write(c, two) is E.NONE
        assert await stable(c) == (2, 0, []), "an open epoch holds readers up"
        done = await writer.commit(one, two)
        assert (done.error_code, done.status) == (E.NONE, EpochStatus.COMMITTED)
        assert (done.last_epoch, done.is_complete) == (0, True)
        assert await stable(c) == (4, 4, [])

        again = writer.but(ticket=await ticket(c), epoch=1)
        three = await again.join(0)
        assert (three.slot, three.producer_id) == (one.slot, one.producer_id)
        assert three.producer_epoch == one.producer_epoch + 1
        assert await write(c, three) is E.NONE
        assert (await again.abort()).status == EpochStatus.ABORTED
        await settled(broker)
        assert await stable(c) == (6, 6, [4])
        assert (await again.commit(three)).status == EpochStatus.ABORTED
        assert (await writer.commit(one, two)).status == EpochStatus.COMMITTED

    tell(tmp_path, story)


def test_a_late_batch_of_an_ended_epoch_is_refused(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        await write(c, one)
        await writer.commit(one)
        assert await write(c, one, sequence=1) is E.INVALID_PRODUCER_EPOCH
        assert await write(c, one, index=1) is E.INVALID_PRODUCER_EPOCH, "where it wrote nothing"

    tell(tmp_path, story)


def test_a_newer_run_fences_the_one_before(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = Writer(c, await ticket(c))
        one = await old.join()
        await write(c, one)
        new = old.but(run=NEWER_RUN, ticket=await ticket(c))
        assert (await new.join()).status == EpochStatus.OPEN
        assert (await old.join(1)).status == EpochStatus.FENCED
        assert (await old.commit(one)).status == EpochStatus.FENCED
        assert (await old.abort()).status == EpochStatus.FENCED
        assert await old.heartbeat() is EpochStatus.FENCED
        assert await new.heartbeat() is EpochStatus.OPEN
        late = old.but(ticket=await ticket(c))
        assert (await late.join()).status == EpochStatus.FENCED, "a zombie with a fresh ticket"

    tell(tmp_path, story)


def test_a_prepared_epoch_waits_for_its_decision(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = Writer(c, await ticket(c))
        one = await old.join()
        await write(c, one)
        assert (await old.prepare(one)).status == EpochStatus.PREPARED
        assert await write(c, one, index=1) is not E.NONE, "it takes no more partitions"
        new = old.but(run=NEWER_RUN, ticket=await ticket(c))
        assert (await new.join()).status == EpochStatus.PREPARED
        assert (await new.commit()).status == EpochStatus.PREPARED
        assert (await new.commit(is_prepared=True)).status == EpochStatus.COMMITTED
        assert await stable(c) == (2, 2, [])
        assert (await new.join()).status == EpochStatus.COMMITTED
        assert (await old.abort()).status == EpochStatus.COMMITTED

    tell(tmp_path, story)


def test_plain_requests_cannot_touch_a_participant(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        assert (await init(c, one.transactional_id)).error_code == (
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        assert await write(c, one) is E.NONE
        ending = k26.EndTxnRequest(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            committed=True,
        )
        for version in (4, 5):
            ended = await c.call(ending, k26.EndTxnResponse, version=version)
            assert ended.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        added = await add(
            c,
            (one.producer_id, one.producer_epoch),
            ("flights", 1),
            transactional_id=one.transactional_id,
        )
        assert added == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        (row,) = await described(c, one.transactional_id)
        assert row.transaction_state == "Ongoing"
        assert [(t.topic, t.partitions) for t in row.topics] == [("flights", (0,))]

    tell(tmp_path, story)


def test_an_operator_cannot_abort_one_partition_of_an_epoch(tmp_path: Path) -> None:
    """Its coordinator claims the producer until the epoch is complete."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        assert await write(c, one) is E.NONE

        async def aborted() -> int:
            topic = k27.WritableTxnMarkerTopic(name="flights", partition_indexes=(0,))
            marker = k27.WritableTxnMarker(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                transaction_result=False,
                topics=(topic,),
                coordinator_epoch=0,
            )
            request = k27.WriteTxnMarkersRequest(markers=(marker,))
            reply = await c.call(request, k27.WriteTxnMarkersResponse, version=1)
            return reply.markers[0].topics[0].partitions[0].error_code

        assert await aborted() == E.TRANSACTION_COORDINATOR_FENCED
        await writer.prepare(one)
        assert await aborted() == E.TRANSACTION_COORDINATOR_FENCED
        await writer.commit(is_prepared=True)
        assert await stable(c) == (2, 2, [])

    tell(tmp_path, story)


class OnlySink(AllowAll):
    """Transactional ids: only the sink `alerts`."""

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return resource is not ResourceType.TRANSACTIONAL_ID or name == "__hw.alerts"


class NoTransactions(AllowAll):
    """No rights on any transactional id."""

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        return resource is not ResourceType.TRANSACTIONAL_ID


def test_the_rights_on_a_sink_are_those_on_its_participants(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join()
        assert await write(c, one) is E.NONE
        assert (await writer.commit(one)).status == EpochStatus.COMMITTED
        keys = ("__hw", "__hw.alerts", one.transactional_id, "__hw.others.0")
        request = k10.FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=keys)
        reply = await c.call(request, k10.FindCoordinatorResponse, version=4)
        assert [row.error_code for row in reply.coordinators] == [
            E.NONE,
            E.NONE,
            E.NONE,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ]
        foreign = writer.but(sink="others")
        for code in (
            (await foreign.join()).error_code,
            (await foreign.commit()).error_code,
            (await foreign.prepare()).error_code,
            (await foreign.abort()).error_code,
        ):
            assert code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    tell(tmp_path, story, acls=OnlySink())


def test_no_ticket_without_a_right_to_write_transactions(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        request = k10000.AllocateEpochTicketRequest()
        reply = await c.call(request, k10000.AllocateEpochTicketResponse, version=0)
        assert reply.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    tell(tmp_path, story, acls=NoTransactions())


def test_only_topics_that_a_client_may_write_are_enlisted(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        joined = await Writer(c, await ticket(c)).join(0, 0, 7)
        assert joined.error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    tell(tmp_path, story)

    async def denied(broker: SoloBroker, c: Connection) -> None:
        joined = await Writer(c, await ticket(c)).join(0, 0, 0)
        assert joined.error_code == E.TOPIC_AUTHORIZATION_FAILED

    tell(tmp_path / "denied", denied, acls=Acls((Operation.WRITE, ResourceType.TOPIC)))


def test_malformed_requests_are_refused(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        for wrong in (
            writer.but(sink="a b"),
            writer.but(sink="a.7"),
            writer.but(owner=""),
            writer.but(ticket=-1),
            writer.but(epoch=-1),
            writer.but(kind=9),
        ):
            joined = await wrong.join()
            assert joined.error_code == E.INVALID_REQUEST
            assert joined.error_message

    tell(tmp_path, story)


def test_sinks_are_described_taken_over_and_deleted(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        writer = Writer(c, await ticket(c))
        one = await writer.join(0, 0, 1)
        for names in (None, ("alerts",)):
            request = k10006.DescribeSinksRequest(sinks=names)
            reply = await c.call(request, k10006.DescribeSinksResponse, version=0)
            [row] = reply.sinks
            assert (row.sink, row.owner, row.run, row.last_epoch) == ("alerts", "query", RUN, -1)
            assert row.epochs[0].participants[0].partitions == ("flights-1",)
        request = k10006.DescribeSinksRequest(sinks=("unknown",))
        reply = await c.call(request, k10006.DescribeSinksResponse, version=0)
        assert reply.sinks[0].error_code == E.RESOURCE_NOT_FOUND
        assert await delete(c) == E.INVALID_REQUEST
        await writer.commit(one)
        takeover = k10008.TakeOverSinkRequest(sink="alerts", owner="another", last_epoch=4)
        before = await c.call(takeover, k10008.TakeOverSinkResponse, version=0)
        assert (before.previous_owner, before.previous_last_epoch) == ("query", 0)
        assert (await writer.join()).status == EpochStatus.SINK_OWNED
        assert await delete(c) == E.NONE
        assert await delete(c) == E.RESOURCE_NOT_FOUND

    tell(tmp_path, story)


async def delete(c: Connection) -> int:
    request = k10007.DeleteSinksRequest(sinks=("alerts",))
    reply = await c.call(request, k10007.DeleteSinksResponse, version=0)
    return reply.sinks[0].error_code


def test_only_our_own_clients_are_told_of_our_keys(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        for name, is_own in (("headwater", True), ("apache-kafka-java", False)):
            request = k18.ApiVersionsRequest(client_software_name=name, client_software_version="1")
            reply = await c.call(request, k18.ApiVersionsResponse, version=3)
            keys = {row.api_key for row in reply.api_keys}
            assert ({*range(10_000, 10_009)} <= keys) is is_own
            assert (max(keys) < 10_000) is not is_own

    tell(tmp_path, story)
