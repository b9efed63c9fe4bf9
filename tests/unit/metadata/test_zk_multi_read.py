"""ZooKeeper's multi-read request, and single reads where the server is too old for it."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest
from kazoo import exceptions as kx
from kazoo.protocol.serialization import GetData, MultiHeader
from kazoo.protocol.states import ZnodeStat

from headwater.ports.metadata_store import Node, StoreError
from headwater_broker.metadata.store_zk import READS_MAX, ZooKeeperStore
from headwater_broker.metadata.zk_handler import DirectCallbackHandler
from headwater_broker.metadata.zk_multi_read import MultiRead

STAT = ZnodeStat(11, 12, 1, 2, 3, 0, 0, 77, 5, 0, 11)
END = MultiHeader(-1, True, -1).serialize()


def test_the_request_is_kazoos_own_reads_behind_headers() -> None:
    rows = (MultiHeader(4, False, -1).serialize() + GetData(p, None).serialize() for p in "ab")
    assert MultiRead(("a", "b")).serialize() == b"".join((*rows, END))


def test_found_empty_and_missing_nodes_of_a_reply() -> None:
    stat = struct.pack("!qqqqiiiqiiq", *STAT)
    found = MultiHeader(4, False, 0).serialize()
    reply = b"".join(
        (
            b"head",
            found + struct.pack("!i", 5) + b"hello" + stat,
            MultiHeader(-1, False, -101).serialize() + struct.pack("!i", -101),
            found + struct.pack("!i", -1) + stat,
            END,
        )
    )
    first, second, third = MultiRead.deserialize(reply, 4)
    assert first == (b"hello", STAT)
    assert isinstance(second, kx.NoNodeError)
    assert third == (b"", STAT)


def answered(value: Any, result: Any) -> None:
    if isinstance(value, Exception):
        result.set_exception(value)
    else:
        result.set(value)


class Answering:
    """kazoo's client with these answers; `asked` holds its requests."""

    def __init__(self, answer: Any) -> None:
        self.handler = DirectCallbackHandler()
        self.asked: list[str] = []
        self._answer = answer

    def _call(self, request: Any, result: Any) -> None:
        self.asked.append(type(request).__name__)
        answer = self._answer
        answered(answer(request) if callable(answer) else answer, result)

    def get_async(self, path: str) -> Any:
        self.asked.append(path)
        result = self.handler.async_result()
        answered(kx.NoNodeError() if path == "/gone" else (path.encode(), STAT), result)
        return result


def read(paths: list[str], answer: Any) -> tuple[Any, list[str]]:
    """The result of the second `get_many` with such answers, and the requests of both."""
    client = Answering(answer)

    async def run() -> list[Node | None]:
        store = ZooKeeperStore("nowhere:1", 1000, cast(Any, client))
        await store.get_many(paths)
        return await store.get_many(paths)

    return asyncio.run(run()), client.asked


def test_an_older_server_is_asked_for_each_node_from_then_on() -> None:
    found, asked = read(["/a", "/gone"], kx.UnimplementedError())
    assert [node and node.data for node in found] == [b"/a", None]
    assert asked == ["MultiRead", "/a", "/gone", "/a", "/gone"]


def test_thousands_of_nodes_take_a_request_per_some_hundred() -> None:
    paths = [f"/{n}" for n in range(2 * READS_MAX + 1)]
    found, asked = read(paths, lambda request: [(path.encode(), STAT) for path in request.paths])
    assert [node.data.decode() for node in found] == paths
    assert asked == ["MultiRead"] * 6


@pytest.mark.parametrize("error", [kx.ConnectionLoss(), kx.NoAuthError()])
def test_other_errors_are_raised(error: Exception) -> None:
    with pytest.raises(StoreError):
        read(["/a"], error)
    with pytest.raises(StoreError):
        read(["/a"], [error])
