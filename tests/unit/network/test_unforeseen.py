"""Internal errors: UNKNOWN_SERVER_ERROR where a response can carry it, else a closed connection."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.apis.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.schema import Message
from headwater_broker.api.fetch.delayed_fetch import DelayedFetch
from headwater_broker.api.produce.answer import ProduceReply
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve


def breaks(*_: Any) -> Message:
    raise RuntimeError("a bug")


async def breaks_later(*_: Any) -> Message:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("handler", [breaks, breaks_later])
def test_a_bug_is_told_where_the_reply_can_tell_it(tmp_path: Path, handler: Any) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        rows = broker.listener.rows
        rows[60] = dataclasses.replace(rows[60], handler=handler)
        reply = await c.call(DescribeClusterRequest(), DescribeClusterResponse)
        assert reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert reply.error_message == "internal error: RuntimeError('a bug')"
        await c.call(ApiVersionsRequest(), ApiVersionsResponse)  # the connection goes on

    serve(tmp_path, scenario)


@pytest.mark.parametrize("handler", [breaks, breaks_later])
@pytest.mark.parametrize("begins_at_once", [True, False])
def test_a_bug_in_end_txn_is_retriable(
    tmp_path: Path, handler: Any, *, begins_at_once: bool
) -> None:
    """franz-go takes UNKNOWN_SERVER_ERROR as the success of a commit."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        rows = broker.listener.rows
        rows[26] = dataclasses.replace(rows[26], handler=handler, begins_at_once=begins_at_once)
        request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0)
        reply = await c.call(request, EndTxnResponse, version=5)
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    serve(tmp_path, scenario)


@pytest.mark.parametrize("handler", [breaks, breaks_later])
def test_a_bug_closes_the_connection_where_it_cannot(tmp_path: Path, handler: Any) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        rows = broker.listener.rows
        row = rows[19]
        rows[18] = dataclasses.replace(rows[18], response=row.response, handler=handler)
        with pytest.raises(ConnectionError):
            await c.call(ApiVersionsRequest(), ApiVersionsResponse)

    serve(tmp_path, scenario)


def test_a_bug_in_work_beside_a_kept_place_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else all replies behind that place waited for ever."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        (served,) = broker.listener.connections
        served.park()
        behind = asyncio.create_task(c.call(ApiVersionsRequest(), ApiVersionsResponse))
        while served.in_flight < 2:
            await asyncio.sleep(0)
        served.spawn(breaks_later())  # type: ignore[arg-type]
        with pytest.raises(ConnectionError):
            await behind

    serve(tmp_path, scenario)
    assert "a bug" in caplog.text


@pytest.mark.parametrize("wait_ms", [1, 2**31 - 1])
def test_a_parked_fetch_that_cannot_be_answered_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_ms: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        monkeypatch.setattr(DelayedFetch, "_encode", breaks)
        other = await open_connection("127.0.0.1", broker.port)
        parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=wait_ms))
        while not broker.services.purgatories.fetch.parked and not parked.done():
            await asyncio.sleep(0)
        if wait_ms > 1:
            await produce(other, "t", batch())
        with pytest.raises(ConnectionError):
            await parked
        await produce(other, "t", batch())
        other.close()

    serve(tmp_path, scenario)


def test_a_parked_produce_that_cannot_be_answered_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        monkeypatch.setattr(ProduceReply, "completed", breaks)
        with pytest.raises(ConnectionError):
            await produce(c, "t", batch(), acks=-1, timeout_ms=1)

    serve(tmp_path, scenario)
