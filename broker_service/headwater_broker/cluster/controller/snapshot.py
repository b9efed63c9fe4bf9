"""Reads from the store what a new controller needs, all reads in flight at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from headwater.ports.metadata_store import MetadataStore, Node, NoNodeError
from headwater_broker.cluster import znodes
from headwater_broker.cluster.controller.events import FoundTopic, Registered
from headwater_broker.cluster.controller.loading import Snapshot, StoredTopic

T = TypeVar("T")


async def read_snapshot(store: MetadataStore) -> Snapshot:
    """Everything. Watches must be set before."""
    topic_names = await store.children(znodes.TOPICS)
    registered, lives, deletions, block, configs, topics = await asyncio.gather(
        read_registered(store),
        _read_lives(store),
        _read_deletions(store),
        _maybe(store, znodes.PRODUCER_IDS),
        _read_broker_configs(store),
        _all(_read_topic(store, name) for name in topic_names),
    )
    return Snapshot(
        registered=registered,
        topics=tuple(t for t in topics if t is not None),
        deletions=tuple(deletions),
        lives=lives,
        producer_ids=znodes.ProducerIdBlock.decode(block.data) if block else None,
        broker_configs=configs,
    )


async def read_registered(store: MetadataStore) -> dict[int, Registered]:
    """All registrations; those that vanish meanwhile are left out."""
    names = await store.children(znodes.BROKERS)
    ids = sorted(int(name) for name in names if name.isdigit())
    nodes = await _all(_maybe(store, znodes.broker_path(b)) for b in ids)
    return {
        broker_id: Registered(node.czxid, znodes.BrokerRegistration.decode(broker_id, node.data))
        for broker_id, node in zip(ids, nodes, strict=True)
        if node is not None
    }


async def read_found_topics(store: MetadataStore, names: Iterable[str]) -> list[FoundTopic]:
    """Topics that the controller does not know."""
    found = []
    for name in sorted(names):
        node = await _maybe(store, znodes.topic_path(name))
        if node is None:
            continue
        configs = await read_overrides(store, name)
        assignment = znodes.TopicAssignment.decode(name, node.data)
        row = FoundTopic(name, assignment, node.version, configs or {}, configs is not None)
        found.append(row)
    return found


async def read_overrides(store: MetadataStore, topic: str) -> dict[str, str] | None:
    """A topic's overrides; None without a node."""
    path = znodes.topic_config_path(topic)
    node = await _maybe(store, path)
    return znodes.decode_overrides(path, node.data) if node else None


async def read_broker_configs(store: MetadataStore, name: str) -> dict[str, str]:
    """The dynamic configs of one broker, or with an empty name of all."""
    path = znodes.broker_config_path(name)
    node = await _maybe(store, path)
    return znodes.decode_overrides(path, node.data) if node else {}


async def _read_broker_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    nodes = await store.children(znodes.BROKER_CONFIGS)
    names = [name for name in map(znodes.broker_of_config, sorted(nodes)) if name is not None]
    rows = await _all(read_broker_configs(store, name) for name in names)
    return dict(zip(names, rows, strict=True))


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*work))


async def _maybe(store: MetadataStore, path: str) -> Node | None:
    try:
        return await store.get(path)
    except NoNodeError:
        return None


async def _read_lives(store: MetadataStore) -> dict[int, znodes.BrokerLife]:
    names = [n for n in await store.children(znodes.LIVES) if n.isdigit()]
    nodes = await _all(store.get(znodes.life_path(int(n))) for n in names)
    return {
        int(name): znodes.BrokerLife.decode(znodes.life_path(int(name)), node.data)
        for name, node in zip(names, nodes, strict=True)
    }


async def _read_deletions(store: MetadataStore) -> list[znodes.Deletion]:
    paths = [f"{znodes.DELETIONS}/{n}" for n in await store.children(znodes.DELETIONS)]
    nodes = await _all(_maybe(store, path) for path in paths)
    rows = zip(paths, nodes, strict=True)
    return [znodes.Deletion.decode(path, node.data) for path, node in rows if node]


async def _read_topic(store: MetadataStore, name: str) -> StoredTopic | None:
    node, configs, folders = await asyncio.gather(
        _maybe(store, znodes.topic_path(name)),
        read_overrides(store, name),
        _read_folders(store, name),
    )
    if node is None:
        return None
    indexes = sorted(folders or ())
    states = await _all(_maybe(store, znodes.state_path(name, i)) for i in indexes)
    records = {
        index: (
            znodes.PartitionRecord.decode(znodes.state_path(name, index), state.data),
            state.version,
        )
        for index, state in zip(indexes, states, strict=True)
        if state is not None
    }
    return StoredTopic(
        name=name,
        assignment=znodes.TopicAssignment.decode(name, node.data),
        version=node.version,
        configs=configs,
        has_folder=folders is not None,
        folders=frozenset(indexes),
        records=records,
    )


async def _read_folders(store: MetadataStore, name: str) -> set[int] | None:
    try:
        names = await store.children(znodes.partitions_path(name))
    except NoNodeError:
        return None
    return {int(n) for n in names if n.isdigit()}
