"""Reads the controller's state from ZooKeeper, hundreds of nodes per request.

Invalid nodes are left out and logged (`znode_validation`).
"""

from __future__ import annotations

import logging
from asyncio import gather
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from headwater.ports.metadata_store import MetadataStore, Node, NoNodeError
from headwater_broker.controller.events import ChangedTopic, RegisteredBroker, TopicChange
from headwater_broker.controller.zk import znode_validation
from headwater_broker.controller.zk.group_config_reader import read_all_group_configs
from headwater_broker.controller.zk.quota_reader import read_client_quotas
from headwater_broker.controller.zk.state_loader import Snapshot, StoredTopic
from headwater_broker.controller.zk.znode_validation import ReportFault
from headwater_broker.metadata import token_znodes, znodes
from headwater_broker.security.delegation_tokens import DelegationToken

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def read_snapshot(store: MetadataStore, report: ReportFault = logger.error) -> Snapshot:
    """The whole state. The caller sets its watches first."""
    topic_names = await store.children(znodes.TOPICS)
    (
        registered,
        last_registrations,
        (deletions, unreadable_deletions),
        block,
        (configs, quotas, groups, overridden),
        (stored, unusable),
    ) = await gather(
        read_registered(store, report),
        _read_last_registrations(store, report),
        read_deletions(store, report),
        read_node(store, znodes.PRODUCER_IDS),
        gather(
            _read_broker_configs(store, report),
            read_client_quotas(store),
            read_all_group_configs(store),
            store.children(znodes.TOPIC_CONFIGS),
        ),
        _read_topics(store, topic_names, report),
    )
    topics, copies = znode_validation.without_copies(stored, deletions)
    for name, fault in copies.items():
        unusable[name] = _unusable(name, fault, report)
    return Snapshot(
        registered=registered,
        topics=topics,
        unusable=unusable,
        stray_configs=frozenset(overridden) - {topic.name for topic in topics},
        deletions=tuple(deletions),
        unreadable_deletions=frozenset(unreadable_deletions),
        last_registrations={
            broker_id: last for broker_id, last in last_registrations.items() if last is not None
        },
        unreadable_registrations=frozenset(
            broker_id for broker_id, last in last_registrations.items() if last is None
        ),
        producer_ids=znode_validation.read_producer_ids(block, report) if block else None,
        broker_configs=configs,
        client_quotas=quotas,
        group_configs=groups,
        tokens=await _read_tokens(store, report),
    )


async def _read_tokens(store: MetadataStore, report: ReportFault) -> tuple[DelegationToken, ...]:
    """The delegation tokens. Nodes that are not valid are left out."""
    names = await store.children(token_znodes.TOKENS)
    nodes = await store.get_many([token_znodes.token_path(name) for name in names])
    found = []
    for name, node in zip(names, nodes, strict=True):
        try:
            if node is not None:
                found.append(token_znodes.decode_token(name, node.data))
        except znodes.ZnodeError as e:
            report(f"a delegation token is ignored until its node is mended or removed: {e}")
    return tuple(found)


async def read_registered(store: MetadataStore, report: ReportFault) -> dict[int, RegisteredBroker]:
    """All registrations. Invalid ones, and those that go meanwhile, are left out."""
    names = sorted(await store.children(znodes.BROKERS))
    nodes = await _all(read_node(store, f"{znodes.BROKERS}/{name}") for name in names)
    registered = {}
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            broker_id, registration = znode_validation.read_registration(name, node.data)
        except znodes.NewerVersionError:
            raise
        except znodes.ZnodeError as e:
            report(f"a registration is ignored until it is mended or removed: {e}")
        else:
            registered[broker_id] = RegisteredBroker(node.czxid, registration)
    return registered


async def read_found_topics(
    store: MetadataStore,
    names: Iterable[str],
    report: ReportFault,
    owners: Mapping[UUID, str] = MappingProxyType({}),
) -> TopicChange:
    """The named topics, which the controller does not know. `owners`: topic id -> name of the
    topics that it knows."""
    taken = dict(owners)
    rows = []
    unusable: dict[str, str] = {}
    for name in sorted(names):
        node = await read_node(store, znodes.topic_path(name))
        if node is None:
            continue
        assignment = _assignment(name, node, unusable, report)
        if assignment is None:
            continue
        topic_id = assignment.topic_id
        if fault := znode_validation.copy_fault(name, topic_id, taken):
            unusable[name] = _unusable(name, fault, report)
            continue
        if topic_id != znodes.NO_DIRECTORY:
            taken[topic_id] = name
        config = await read_node(store, znodes.topic_config_path(name))
        configs = _overrides(name, config, report, was_tiered=assignment.is_tiered)
        rows.append(ChangedTopic(name, assignment, node.version, configs, config is not None))
    return TopicChange(tuple(rows), unusable)


def _assignment(
    topic: str, node: Node, unusable: dict[str, str], report: ReportFault
) -> znodes.TopicAssignment | None:
    """The assignment in a topic's node; None if it is not valid."""
    try:
        return znode_validation.read_assignment(topic, node.data)
    except znodes.ZnodeError as e:
        unusable[topic] = _unusable(topic, e, report)
        return None


def _unusable(topic: str, fault: znodes.ZnodeError, report: ReportFault) -> str:
    """Report why the topic cannot be used, and return it. Raises NewerVersionError."""
    if isinstance(fault, znodes.NewerVersionError):
        raise fault
    report(f"topic {topic!r} is ignored until its node is mended or removed: {fault}")
    return str(fault)


async def read_broker_configs(store: MetadataStore, name: str) -> dict[str, str]:
    """The dynamic configs of one broker, or with an empty name of all brokers."""
    path = znodes.broker_config_path(name)
    node = await read_node(store, path)
    return znodes.decode_overrides(path, node.data) if node else {}


async def _usable_broker_configs(
    store: MetadataStore, name: str, report: ReportFault
) -> dict[str, str]:
    try:
        return await read_broker_configs(store, name)
    except znodes.NewerVersionError:
        raise
    except znodes.ZnodeError as e:
        report(f"{e}: these broker configs are ignored until the node is mended")
        return {}


async def _read_broker_configs(
    store: MetadataStore, report: ReportFault
) -> dict[str, dict[str, str]]:
    nodes = await store.children(znodes.BROKER_CONFIGS)
    names = [name for name in map(znodes.broker_of_config, sorted(nodes)) if name is not None]
    rows = await _all(_usable_broker_configs(store, name, report) for name in names)
    return dict(zip(names, rows, strict=True))


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    return list(await gather(*work))


async def read_node(store: MetadataStore, path: str) -> Node | None:
    """One node; None if it does not exist."""
    try:
        return await store.get(path)
    except NoNodeError:
        return None


async def _read_last_registrations(
    store: MetadataStore, report: ReportFault
) -> dict[int, znodes.LastRegistration | None]:
    """Last registrations by broker id; None stands for a node that is not valid."""
    names = sorted(await store.children(znodes.LAST_REGISTRATIONS))
    ids = [
        broker_id
        for name in names
        if (broker_id := znode_validation.broker_id_of(name)) is not None
    ]
    paths = [znodes.last_registration_path(broker_id) for broker_id in ids]
    nodes = await _all(read_node(store, path) for path in paths)
    last_registrations: dict[int, znodes.LastRegistration | None] = {}
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        try:
            last_registrations[broker_id] = znodes.LastRegistration.decode(
                znodes.last_registration_path(broker_id), node.data
            )
        except znodes.NewerVersionError:
            raise
        except znodes.ZnodeError as e:
            report(f"{e}: broker {broker_id} counts as one that never ran before")
            last_registrations[broker_id] = None
    return last_registrations


async def read_deletions(
    store: MetadataStore, report: ReportFault
) -> tuple[list[znodes.Deletion], list[UUID]]:
    """The pending deletions, and the topic ids of nodes that are not valid."""
    names = sorted(await store.children(znodes.DELETIONS))
    nodes = await _all(read_node(store, f"{znodes.DELETIONS}/{name}") for name in names)
    deletions, bad = [], []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            deletions.append(znode_validation.read_deletion(name, node.data))
        except znodes.NewerVersionError:
            raise
        except znodes.ZnodeError as e:
            report(f"{e}: this deletion does not go on until the node is mended or removed")
            with suppress(znodes.ZnodeError):  # the node's name is no topic id
                bad.append(znodes.uuid_from_text(name))
    return deletions, bad


async def _read_topics(
    store: MetadataStore, names: Sequence[str], report: ReportFault
) -> tuple[list[StoredTopic], dict[str, str]]:
    """The topics that exist, and the reasons why some cannot be used. It takes few requests,
    however many topics and partitions there are."""
    nodes = await store.get_many([znodes.topic_path(name) for name in names])
    unusable: dict[str, str] = {}
    usable: dict[str, tuple[znodes.TopicAssignment, Node]] = {}
    for name, node in zip(names, nodes, strict=True):
        row = _assignment(name, node, unusable, report) if node is not None else None
        if node is not None and row is not None:
            usable[name] = (row, node)
    keys = [(name, index) for name, (row, _) in usable.items() for index in sorted(row.partitions)]
    configs, folders, states = await gather(
        store.get_many([znodes.topic_config_path(name) for name in usable]),
        store.get_many([znodes.partitions_path(name) for name in usable]),
        store.get_many([znodes.state_path(*key) for key in keys]),
    )
    state_of = dict(zip(keys, states, strict=True))
    # A partition without a state may still have its parent node.
    bare = [key for key, node in state_of.items() if node is None]
    bare_folders = await store.get_many([znodes.partition_path(*key) for key in bare])
    empty = {key for key, node in zip(bare, bare_folders, strict=True) if node is not None}
    topics = []
    for (name, (assignment, topic_node)), config, folder in zip(
        usable.items(), configs, folders, strict=True
    ):
        at = {index: state_of[name, index] for index in assignment.partitions}
        try:
            records = {i: _record(name, i, node) for i, node in at.items() if node is not None}
        except znodes.ZnodeError as e:
            unusable[name] = _unusable(name, e, report)
            continue
        topics.append(
            StoredTopic(
                name=name,
                assignment=assignment,
                version=topic_node.version,
                czxid=topic_node.czxid,
                configs=_overrides(name, config, report, was_tiered=assignment.is_tiered),
                has_config=config is not None,
                has_folder=folder is not None,
                folders=frozenset(i for i, node in at.items() if node or (name, i) in empty),
                records=records,
            )
        )
    return topics, unusable


def _overrides(
    topic: str, node: Node | None, report: ReportFault, *, was_tiered: bool
) -> dict[str, str]:
    data = node.data if node is not None else None
    return znode_validation.usable_overrides(topic, data, report, was_tiered=was_tiered)


def _record(topic: str, index: int, node: Node) -> tuple[znodes.PartitionRecord, int]:
    return znode_validation.read_record(topic, index, node.data), node.version
