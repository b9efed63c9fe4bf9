"""The requests that coordinators answer, of transactions and of groups."""

from __future__ import annotations

import time
from dataclasses import dataclass

from differential.session import NO_ID, PATIENCE_S, RETRY_S, Answer, Session, Step, Who, name_of
from headwater.errors import ErrorCode
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k28_txn_offset_commit as k28
from headwater.wire.apis import k65_describe_transactions as k65
from headwater.wire.apis import k66_list_transactions as k66

TIMEOUT_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Init(Step):
    """InitProducerId. `said`: the identity that the producer claims (KIP-360)."""

    tid: str | None = "t"
    version: int = 4
    timeout_ms: int = TIMEOUT_MS
    slot: str = "p"
    said: Who | None = None
    two_phase: bool = False
    keep: bool = False

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = (NO_ID, -1) if self.said is None else session.identity(self.said)
        request = k22.InitProducerIdRequest(
            transactional_id=None if self.tid is None else session.transactional_id(self.tid),
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=self.two_phase,
            keep_prepared_txn=self.keep,
        )
        reply = session.exchange.ask(request, k22.InitProducerIdResponse, self.version)
        if reply.error_code == ErrorCode.NONE:
            session.slots[self.slot] = (reply.producer_id, reply.producer_epoch)
        answer = {
            "error": name_of(reply.error_code),
            "producer": session.symbol(reply.producer_id),
            "epoch": reply.producer_epoch,
        }
        if self.version >= 6:
            ongoing = session.symbol(reply.ongoing_txn_producer_id)
            answer["ongoing"] = f"{ongoing}/{reply.ongoing_txn_producer_epoch}"
        return answer


@dataclass(frozen=True, kw_only=True)
class Add(Step):
    """AddPartitionsToTxn; version 4 and later is what brokers send."""

    partitions: tuple[int, ...] = (0,)
    who: Who = Who()
    tid: str = "t"
    version: int = 3
    verify_only: bool = False
    topic: str | None = None

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        topics = (
            k24.AddPartitionsToTxnTopic(
                name=self.topic or session.topic, partitions=self.partitions
            ),
        )
        tid = session.transactional_id(self.tid)
        if self.version >= 4:
            transaction = k24.AddPartitionsToTxnTransaction(
                transactional_id=tid,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=self.verify_only,
                topics=topics,
            )
            request = k24.AddPartitionsToTxnRequest(transactions=(transaction,))
        else:
            request = k24.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=tid,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        reply = session.exchange.ask(request, k24.AddPartitionsToTxnResponse, self.version)
        if self.version >= 4:
            results = {
                session.short(row.transactional_id): _by_partition(row.topic_results)
                for row in reply.results_by_transaction
            }
            return {"error": name_of(reply.error_code), "transactions": results}
        return _by_partition(reply.results_by_topic_v3_and_below)


def _by_partition(topics: tuple[k24.AddPartitionsToTxnTopicResult, ...]) -> dict[str, str]:
    return {
        str(row.partition_index): name_of(row.partition_error_code)
        for topic in topics
        for row in sorted(topic.results_by_partition, key=lambda row: row.partition_index)
    }


@dataclass(frozen=True, kw_only=True)
class AddOffsets(Step):
    """AddOffsetsToTxn."""

    group: str = "g"
    who: Who = Who()
    tid: str = "t"
    version: int = 3

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        request = k25.AddOffsetsToTxnRequest(
            transactional_id=session.transactional_id(self.tid),
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=session.transactional_id(self.group),
        )
        reply = session.exchange.ask(request, k25.AddOffsetsToTxnResponse, self.version)
        return name_of(reply.error_code)


@dataclass(frozen=True, kw_only=True)
class End(Step):
    """EndTxn; from version 5 on the slot takes the identity of the answer."""

    commit: bool = True
    who: Who = Who()
    tid: str = "t"
    version: int = 4
    follows: bool = True
    """False: the reply is lost, the slot keeps its identity."""

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        request = k26.EndTxnRequest(
            transactional_id=session.transactional_id(self.tid),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.commit,
        )
        reply = session.exchange.ask(request, k26.EndTxnResponse, self.version)
        if self.version < 5:
            return name_of(reply.error_code)
        if reply.error_code == ErrorCode.NONE and self.follows:
            session.slots[self.who.slot] = (reply.producer_id, reply.producer_epoch)
        return {
            "error": name_of(reply.error_code),
            "producer": session.symbol(reply.producer_id),
            "epoch": reply.producer_epoch,
        }


@dataclass(frozen=True, kw_only=True)
class CommitOffset(Step):
    """TxnOffsetCommit of one partition."""

    offset: int = 5
    group: str = "g"
    who: Who = Who()
    tid: str = "t"
    version: int = 4
    generation: int = -1
    member: str = ""
    instance: str | None = None
    partition: int = 0
    topic: str | None = None

    def ask(self, session: Session) -> Answer:
        producer_id, epoch = session.identity(self.who)
        partition = k28.TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=self.offset, committed_metadata="m"
        )
        topic = k28.TxnOffsetCommitRequestTopic(
            name=self.topic or session.topic, partitions=(partition,)
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=session.transactional_id(self.tid),
            group_id=session.transactional_id(self.group),
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=self.generation,
            member_id=self.member,
            group_instance_id=self.instance,
            topics=(topic,),
        )
        reply = session.exchange.ask(request, k28.TxnOffsetCommitResponse, self.version)
        return [name_of(row.error_code) for topic in reply.topics for row in topic.partitions]


@dataclass(frozen=True, kw_only=True)
class PlainCommit(Step):
    """OffsetCommit outside of any transaction."""

    offset: int = 3
    group: str = "g"
    version: int = 8

    def ask(self, session: Session) -> Answer:
        partition = k08.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata="m"
        )
        topic = k08.OffsetCommitRequestTopic(name=session.topic, partitions=(partition,))
        request = k08.OffsetCommitRequest(
            group_id=session.transactional_id(self.group), topics=(topic,)
        )
        reply = session.exchange.ask(request, k08.OffsetCommitResponse, self.version)
        return name_of(reply.topics[0].partitions[0].error_code)


@dataclass(frozen=True, kw_only=True)
class Offset(Step):
    """OffsetFetch of one partition."""

    group: str = "g"
    stable: bool = False
    version: int = 8

    def ask(self, session: Session) -> Answer:
        topic = k09.OffsetFetchRequestTopics(name=session.topic, partition_indexes=(0,))
        group = k09.OffsetFetchRequestGroup(
            group_id=session.transactional_id(self.group), topics=(topic,)
        )
        request = k09.OffsetFetchRequest(groups=(group,), require_stable=self.stable)
        reply = session.exchange.ask(request, k09.OffsetFetchResponse, self.version).groups[0]
        if reply.error_code:
            return name_of(reply.error_code)
        row = reply.topics[0].partitions[0]
        return {"error": name_of(row.error_code), "offset": row.committed_offset}


@dataclass(frozen=True, kw_only=True)
class State(Step):
    """DescribeTransactions of one id."""

    tid: str = "t"

    def ask(self, session: Session) -> Answer:
        row = describe(session, self.tid)
        return {
            "error": name_of(row.error_code),
            "state": row.transaction_state,
            "timeout": row.transaction_timeout_ms,
            "began": row.transaction_start_time_ms > 0,
            "producer": session.symbol(row.producer_id),
            "epoch": row.producer_epoch,
            "partitions": sorted(
                f"{topic.topic if topic.topic != session.topic else ''}-{index}"
                for topic in row.topics
                for index in topic.partitions
                if topic.topic != "__consumer_offsets"
            ),
        }


def describe(session: Session, tid: str) -> k65.TransactionState:
    """One row of DescribeTransactions."""
    request = k65.DescribeTransactionsRequest(transactional_ids=(session.transactional_id(tid),))
    reply = session.exchange.ask(request, k65.DescribeTransactionsResponse, 0)
    return reply.transaction_states[0]


@dataclass(frozen=True, kw_only=True)
class Settle(Step):
    """Wait until no marker is on its way and, unless it `may_stay_open`, no transaction is open."""

    tid: str = "t"
    may_stay_open: bool = False

    def ask(self, session: Session) -> Answer:
        end = time.monotonic() + PATIENCE_S
        settled = ("Empty", "CompleteCommit", "CompleteAbort", "")
        while time.monotonic() < end:
            state = describe(session, self.tid).transaction_state
            if state in settled or (self.may_stay_open and state == "Ongoing"):
                return state
            time.sleep(RETRY_S)
        return f"still {state} after {PATIENCE_S:.0f} s"


@dataclass(frozen=True, kw_only=True)
class Listed(Step):
    """ListTransactions, of this case's ids."""

    version: int = 1
    states: tuple[str, ...] = ()
    of: tuple[Who, ...] = ()
    longer_than_ms: int = -1
    pattern: str | None = None

    def ask(self, session: Session) -> Answer:
        pattern = None
        if self.pattern is not None:
            pattern = self.pattern.replace("@", session.name.replace(".", "\\."))
        request = k66.ListTransactionsRequest(
            state_filters=self.states,
            producer_id_filters=tuple(session.identity(who)[0] for who in self.of),
            duration_filter=self.longer_than_ms,
            transactional_id_pattern=pattern,
        )
        reply = session.exchange.ask(request, k66.ListTransactionsResponse, self.version)
        return {
            "error": name_of(reply.error_code),
            "unknown": sorted(reply.unknown_state_filters),
            "listed": sorted(
                f"{session.short(row.transactional_id)} {session.symbol(row.producer_id)} "
                f"{row.transaction_state}"
                for row in reply.transaction_states
                if row.transactional_id.startswith(f"{session.name}.")
            ),
        }
