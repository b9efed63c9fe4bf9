"""Whether a topic is deleted, by the metadata store: the cache of a broker may lag behind."""

from __future__ import annotations

import asyncio
from uuid import UUID

from headwater.ports.metadata_store import Create
from headwater.testing.memory_store import MemoryTree
from headwater_broker.metadata import znodes
from headwater_broker.metadata.topic_lookup import TopicLookup

OLD, NEW, ANY = UUID(int=1), UUID(int=2), UUID(int=0)


def test_a_topic_is_deleted_when_its_name_is_gone_or_has_another_id() -> None:
    async def story() -> None:
        store = MemoryTree().connect()
        lookup = TopicLookup(store)
        assert await lookup.is_deleted("t", OLD)
        assert await lookup.is_deleted("t", ANY)
        made = znodes.TopicAssignment(topic_id=NEW, partitions={0: (1,)})
        path = znodes.topic_path("t")
        parents = ["/".join(path.split("/")[:n]) for n in range(2, path.count("/") + 1)]
        await store.multi([*(Create(p, b"") for p in parents), Create(path, made.encode())])
        assert not await lookup.is_deleted("t", NEW)
        assert await lookup.is_deleted("t", OLD), "another topic has the name"
        assert not await lookup.is_deleted("t", ANY)

    asyncio.run(story())


def test_nothing_is_deleted_while_the_store_cannot_tell() -> None:
    async def story() -> None:
        store = MemoryTree().connect()
        store.suspend()
        assert not await TopicLookup(store).is_deleted("t", OLD)

    asyncio.run(story())
