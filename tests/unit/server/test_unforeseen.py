"""An error nobody foresaw: told where the reply can tell it, else the connection closes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.schema import Message
from solo_broker import SoloBroker
from unit.server.test_data_plane import serve


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
def test_a_bug_closes_the_connection_where_it_cannot(tmp_path: Path, handler: Any) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        rows = broker.listener.rows
        row = rows[19]
        rows[18] = dataclasses.replace(rows[18], response=row.response, handler=handler)
        with pytest.raises(ConnectionError):
            await c.call(ApiVersionsRequest(), ApiVersionsResponse)

    serve(tmp_path, scenario)
