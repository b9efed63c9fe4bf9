"""Where the logs of restored topics begin, as ZooKeeper says it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headwater.ids import id_text
from headwater.ports.metadata_store import Create
from headwater.testing.memory_store import MemoryTree
from headwater_broker.metadata.restored_ends import RestoredEnds, read_restored_ends
from headwater_broker.metadata.znodes import ZnodeError

A, B = UUID(int=0xA), UUID(int=0xB)


def read(*nodes: tuple[str, bytes]) -> RestoredEnds:
    async def story() -> RestoredEnds:
        store = MemoryTree().connect()
        if nodes:
            await store.ensure_path("/headwater/restored")
            rows = [Create(f"/headwater/restored/{name}", data) for name, data in nodes]
            await store.multi(rows)
        return await read_restored_ends(store)

    return asyncio.run(story())


def test_a_cluster_that_was_never_restored_has_none() -> None:
    assert read() == {}


def test_each_partition_has_its_own() -> None:
    found = read(
        (id_text(A), b'{"version":1,"topic":"a","ends":{"0":7,"1":10000600}}'),
        (id_text(B), b'{"version":1,"topic":"b","ends":{"0":9},"later":true}'),
    )
    assert found == {(A, 0): 7, (A, 1): 10_000_600, (B, 0): 9}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":2,"ends":{}}', b'{"ends":{"0":"x"}}'])
def test_a_node_that_cannot_be_read_keeps_the_broker_from_starting(data: bytes) -> None:
    """Without its end a log would assign offsets a second time."""
    with pytest.raises(ZnodeError, match=f"/headwater/restored/{id_text(A)}"):
        read((id_text(A), data))
