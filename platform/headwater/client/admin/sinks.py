"""Admin calls about the sinks of epoch transactions (docs/epochs.md): their requests, on the loop.

Only Headwater's brokers serve them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from headwater.client.admin import arguments
from headwater.client.cluster import KEY_TYPE_TRANSACTION, Cluster
from headwater.client.epoch_errors import EpochsUnsupportedError, refusal
from headwater.client.errors import kafka_error
from headwater.client.sink_values import (
    EpochWriter,
    SinkDescription,
    SinkTakeover,
    sink_description,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10002_commit_epoch import CommitEpochRequest, CommitEpochResponse
from headwater.wire.apis.k10003_abort_epoch import AbortEpochRequest, AbortEpochResponse
from headwater.wire.apis.k10006_describe_sinks import DescribeSinksRequest, DescribeSinksResponse
from headwater.wire.apis.k10007_delete_sinks import DeleteSinksRequest, DeleteSinksResponse
from headwater.wire.apis.k10008_take_over_sink import TakeOverSinkRequest, TakeOverSinkResponse
from headwater.wire.epoch_values import KEEP_LAST_EPOCH, EpochState, EpochStatus, SinkKind
from headwater.wire.schema import Message
from headwater.wire.sink_names import sink_key

T = TypeVar("T")
R = TypeVar("R", bound=Message)


class SinkCalls:
    """Each method is one admin call, with retries, to the coordinators of sinks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> list[SinkDescription]:
        """DescribeSinks at every broker."""
        cluster, request = self._cluster, DescribeSinksRequest(sinks=None)

        async def ask(node: int) -> list[SinkDescription]:
            async def attempt() -> list[SinkDescription]:
                reply = await self._call(node, request, DescribeSinksResponse)
                if reply.error_code:
                    raise kafka_error(reply.error_code, reply.error_message or f"broker {node}")
                return [sink_description(row, node) for row in reply.sinks]

            return await cluster.retrying("list sinks", attempt)

        await cluster.refresh(())
        answers = await asyncio.gather(*(ask(node) for node in cluster.cache.brokers))
        return sorted((row for rows in answers for row in rows), key=lambda row: row.sink)

    async def describe(self, names: Iterable[str]) -> dict[str, SinkDescription]:
        """DescribeSinks at each coordinator. Raises KafkaError(RESOURCE_NOT_FOUND)."""
        wanted = list(names)
        found = await asyncio.gather(*(self._describe(name) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _describe(self, name: str) -> SinkDescription:
        def result(reply: DescribeSinksResponse, node: int) -> SinkDescription:
            _raise(reply.error_code, reply.error_message, name)
            [row] = reply.sinks
            _raise(row.error_code, None, name)
            return sink_description(row, node)

        request = DescribeSinksRequest(sinks=(name,))
        return await self._at(name, "describe", request, DescribeSinksResponse, result)

    async def delete(self, names: Iterable[str]) -> None:
        """DeleteSinks at each coordinator. Raises KafkaError of the first sink that fails."""

        async def one(name: str) -> None:
            def result(reply: DeleteSinksResponse, _node: int) -> None:
                _raise(reply.error_code, reply.error_message, name)
                [row] = reply.sinks
                _raise(row.error_code, row.error_message, name)

            request = DeleteSinksRequest(sinks=(name,))
            await self._at(name, "delete", request, DeleteSinksResponse, result)

        outcomes = await asyncio.gather(*map(one, names), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def take_over(self, name: str, owner: str | None, last_epoch: int | None) -> SinkTakeover:
        """TakeOverSink; None keeps what the sink has."""
        before = await self._describe(name)
        request = TakeOverSinkRequest(
            sink=name,
            owner=before.owner if owner is None else owner,
            # Not the epoch described: a commit in between would be rewound and written again.
            last_epoch=KEEP_LAST_EPOCH if last_epoch is None else last_epoch,
        )

        def result(reply: TakeOverSinkResponse, _node: int) -> None:
            _raise(reply.error_code, reply.error_message, name)

        await self._at(name, "take over", request, TakeOverSinkResponse, result)
        # A repeated request would be answered with what the first one has set.
        return SinkTakeover(name, before.owner, before.last_epoch)

    async def end_prepared(self, name: str, epoch: int, *, commit: bool) -> None:
        """CommitEpoch or AbortEpoch of a prepared epoch, in the name of the sink's present run.

        A repeated call succeeds. Raises KafkaError(INVALID_TXN_STATE) when the epoch is not
        prepared, EpochError.
        """
        sink = await self._describe(name)
        is_prepared = any(
            e.epoch == epoch and e.state == EpochState.PREPARED.label for e in sink.epochs
        )
        if not is_prepared and not (commit and sink.last_epoch == epoch):
            last = "none" if sink.last_epoch is None else sink.last_epoch
            text = f"epoch {epoch} of sink {name} is not prepared; its last committed one is {last}"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        kind = SinkKind[sink.kind.upper()]
        writer = EpochWriter(name, sink.owner, sink.run, sink.ticket, epoch, kind)
        wanted = EpochStatus.COMMITTED if commit else EpochStatus.ABORTED

        def result(reply: CommitEpochResponse | AbortEpochResponse, _node: int) -> None:
            _raise(reply.error_code, reply.error_message, name)
            if reply.status != wanted:
                raise refusal(
                    EpochStatus(reply.status),
                    sink=name,
                    epoch=epoch,
                    owner=sink.owner,
                    last_epoch=reply.last_epoch,
                    detail=reply.error_message or "",
                )

        if commit:
            commits = CommitEpochRequest(
                **writer.fields(),
                kind=writer.kind,
                is_prepared=True,
                participants=(),
            )
            await self._at(name, "commit an epoch of", commits, CommitEpochResponse, result)
        else:
            aborts = AbortEpochRequest(
                **writer.fields(),
                kind=writer.kind,
                is_prepared=True,
            )
            await self._at(name, "abort an epoch of", aborts, AbortEpochResponse, result)

    async def _at(
        self,
        name: str,
        what: str,
        request: Message,
        reply_type: type[R],
        result: Callable[[R, int], T],
    ) -> T:
        """The result of the sink's coordinator."""

        async def attempt() -> T:
            node = await self._cluster.coordinator(sink_key(name), KEY_TYPE_TRANSACTION)
            return result(await self._call(node, request, reply_type), node)

        return await self._cluster.retrying(f"{what} sink {name}", attempt)

    async def _call(self, node: int, request: Message, reply_type: type[R]) -> R:
        try:
            return await self._cluster.call(node, request, reply_type)
        except KafkaError as e:
            if e.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise EpochsUnsupportedError(
                f"broker {node} has no epoch transactions: it is Apache Kafka or an older Headwater"
            ) from e


class SinkVerbs:
    """The methods of `Admin` about sinks."""

    _sinks: SinkCalls

    async def list_sinks(self) -> list[SinkDescription]:
        """The sinks of every coordinator, by name. Raises EpochsUnsupportedError, as do all calls
        about sinks."""
        return await self._sinks.list()

    async def describe_sinks(self, sinks: Iterable[str]) -> dict[str, SinkDescription]:
        """Owner, run, last committed epoch and open epochs of sinks.

        Raises KafkaError(RESOURCE_NOT_FOUND).
        """
        return await self._sinks.describe(arguments.names("sinks", sinks))

    async def delete_sinks(self, sinks: Iterable[str]) -> None:
        """Forget sinks. A query that goes on with a deleted sink begins it anew: epochs that it
        repeats from its checkpoint are written a second time.

        Raises KafkaError: RESOURCE_NOT_FOUND, INVALID_REQUEST while an epoch is not complete. The
        other sinks are deleted all the same.
        """
        await self._sinks.delete(arguments.names("sinks", sinks))

    async def take_over_sink(
        self, sink: str, *, owner: str | None = None, last_epoch: int | None = None
    ) -> SinkTakeover:
        """Hand a sink to another query or another checkpoint; its present run is fenced.

        `owner`: the query that owns it from now on; "": the next one that writes; None: as before.
        `last_epoch`: the last committed epoch from now on, which is that of the owner's checkpoint;
        -1: none; None: as before. Raises KafkaError: RESOURCE_NOT_FOUND, INVALID_REQUEST while an
        epoch is prepared.
        """
        name = arguments.name("sink", sink)
        after = None if last_epoch is None else arguments.epoch("last_epoch", last_epoch, least=-1)
        return await self._sinks.take_over(name, owner, after)

    async def commit_prepared_epoch(self, sink: str, epoch: int) -> None:
        """Commit an epoch that a run has prepared and not decided. A repeated call succeeds.

        Raises KafkaError: RESOURCE_NOT_FOUND, INVALID_TXN_STATE (it is not prepared).
        """
        name, number = arguments.name("sink", sink), arguments.epoch("epoch", epoch)
        await self._sinks.end_prepared(name, number, commit=True)

    async def abort_prepared_epoch(self, sink: str, epoch: int) -> None:
        """Abort an epoch that a run has prepared and not decided. Raises as above."""
        name, number = arguments.name("sink", sink), arguments.epoch("epoch", epoch)
        await self._sinks.end_prepared(name, number, commit=False)


def _raise(code: int, message: str | None, sink: str) -> None:
    if code:
        raise kafka_error(code, message or f"sink {sink}")
