"""ACLs written and followed: one suite over the store in memory and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from conformance.zookeepers import running_zookeeper
from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.ports.metadata_store import Check, Create, Delete, MetadataStore, Set
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater.testing.clocks import ManualClock
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater_broker.controller.zk.acl_writer import add_acls, remove_acls
from headwater_broker.metadata import acl_znodes
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.metadata.store_zk import ZooKeeperStore
from headwater_broker.security.audit_log import AuditLog
from headwater_broker.security.standard_authorizer import (
    ResourcePattern,
    StandardAuthorizer,
    pattern_of,
)

Tell = Callable[[MetadataStore, MetadataStore, Check], Awaitable[None]]
FENCE = "/fence"
READ = Operation.READ


def acl(
    name: str = "t",
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", READ, PermissionType.ALLOW)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with running_zookeeper(folder) as servers:
        yield servers
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.integration)])
def play(request: pytest.FixtureRequest) -> Callable[[Tell], None]:
    """Runs a story with two sessions, of a controller and of a broker, and the fence."""
    tree = MemoryTree()
    name = request.node.name.replace("[", "-").replace("]", "")
    servers = request.getfixturevalue("zookeeper") if request.param == "zookeeper" else ""

    async def connect() -> MetadataStore:
        if not servers:
            return tree.connect()
        store = ZooKeeperStore(f"{servers}/{name}", 60_000)
        await store.start(120_000)
        return store

    def run(tell: Tell) -> None:
        async def go() -> None:
            writer, reader = await connect(), await connect()
            await writer.multi([Create(FENCE)])
            try:
                await tell(writer, reader, Check(FENCE, 0))
            finally:
                for store in (writer, reader):
                    await store.close()  # type: ignore[attr-defined]

        asyncio.run(go())

    return run


def follower(store: MetadataStore) -> AclStore:
    return AclStore(store, StandardAuthorizer(frozenset({"User:admin"}), AuditLog(ManualClock())))


def held(acls: AclStore) -> list[AclBinding]:
    return acls.authorizer.acls(AclFilter())


async def until(acls: AclStore, rows: list[AclBinding]) -> None:
    async with asyncio.timeout(30):
        while held(acls) != sorted(rows):
            await asyncio.sleep(0.005)


def test_a_written_acl_is_followed_and_removed(play: Callable[[Tell], None]) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        before = follower(reader)
        await before.start()
        rows = [acl(), acl("g/1", pattern=PatternType.PREFIXED, kind=ResourceType.GROUP)]
        await add_acls(writer, fence, rows)
        await until(before, rows)
        late = follower(writer)
        await late.start()
        assert held(late) == sorted(rows)
        wanted = [AclFilter(principal="User:alice"), AclFilter(ResourceType.TOPIC)]
        assert await remove_acls(writer, fence, wanted) == [sorted(rows), [rows[0]]]
        await until(before, [])
        await before.close()
        await late.close()

    play(tell)


def test_the_layout_is_kafkas(play: Callable[[Tell], None]) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        await follower(reader).start()
        await add_acls(writer, fence, [acl(), acl("p", pattern=PatternType.PREFIXED)])
        node = await writer.get("/kafka-acl/Topic/t")
        row = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read"}
        assert json.loads(node.data) == {"version": 1, "acls": [{**row, "host": "*"}]}
        await writer.get("/kafka-acl-extended/prefixed/Topic/p")
        change = await writer.get("/kafka-acl-changes/acl_changes_0000000000")
        assert change.data == b"TOPIC:t"

    play(tell)


def test_an_old_tool_that_writes_at_the_same_time_loses_nothing(
    play: Callable[[Tell], None],
) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        acls = follower(reader)
        await acls.start()
        many = [acl(principal=f"User:{n}") for n in range(6)]
        await asyncio.gather(
            *(
                add_acls(store, fence, [a])
                for a, store in zip(many, [writer, reader] * 3, strict=True)
            )
        )
        await until(acls, many)
        await acls.close()

    play(tell)


def test_a_deposed_controller_changes_nothing(play: Callable[[Tell], None]) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        await follower(reader).start()
        await writer.multi([Set(FENCE, b"")])
        with pytest.raises(KafkaError, match="no longer the controller"):
            await add_acls(writer, fence, [acl()])
        assert await writer.children("/kafka-acl/Topic") == []

    play(tell)


def test_a_node_that_is_not_valid_denies_its_resource(play: Callable[[Tell], None]) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        acls = follower(reader)
        await acls.start()
        await add_acls(writer, fence, [acl()])
        prefix, change = acl_znodes.change_of(pattern_of(acl()))
        await writer.multi(
            [Set("/kafka-acl/Topic/t", b"{"), Create(prefix, change, sequential=True)]
        )
        await until(acls, [acl_znodes.denial(pattern_of(acl()))])
        await acls.close()

    play(tell)


def test_removed_change_nodes_are_made_good_by_a_full_read(play: Callable[[Tell], None]) -> None:
    async def tell(writer: MetadataStore, reader: MetadataStore, fence: Check) -> None:
        acls = follower(reader)
        await acls.start()
        await add_acls(writer, fence, [acl("a"), acl("b")])
        await writer.multi([Delete("/kafka-acl-changes/acl_changes_0000000000")])
        await acls.catch_up()
        assert held(acls) == [acl("a"), acl("b")]
        await acls.close()

    play(tell)


def test_what_changed_while_the_connection_was_lost_is_read_after() -> None:
    async def tell() -> None:
        tree = MemoryTree()
        writer, reader = tree.connect(), tree.connect()
        assert isinstance(reader, MemoryStore)
        await writer.multi([Create(FENCE)])
        acls = follower(reader)
        await acls.start()
        reader.suspend()
        await add_acls(writer, Check(FENCE, 0), [acl()])
        assert held(acls) == []
        reader.resume()
        await until(acls, [acl()])
        await remove_acls(writer, Check(FENCE, 0), [AclFilter()])
        reader.expire()
        await until(acls, [])
        await acls.close()

    asyncio.run(tell())


def test_a_lost_reply_is_no_second_change() -> None:
    async def tell() -> None:
        tree = MemoryTree()
        store = tree.connect()
        await store.multi([Create(FENCE)])
        await follower(store).start()
        store.lose_next_reply()
        await add_acls(store, Check(FENCE, 0), [acl()])
        assert len(await store.children("/kafka-acl-changes")) == 1

    asyncio.run(tell())


@pytest.mark.parametrize("name", ["t", "a/b", ".", "..", "100%", "a%2Fb", "x\ny", "ä", "%2E", "*"])
def test_names_survive_as_nodes(name: str) -> None:
    node = acl_znodes.quoted(name)
    assert "/" not in node
    assert node not in (".", "..")
    assert acl_znodes.unquoted(node) == name
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        pattern = ResourcePattern(ResourceType.GROUP, name, pattern_type)
        prefix, data = acl_znodes.change_of(pattern)
        assert acl_znodes.decode_change(prefix.rsplit("/", 1)[0], data) == pattern


def test_a_name_that_another_tool_wrote_stands_as_it_is() -> None:
    assert acl_znodes.unquoted("a%20b") == "a%20b"


@pytest.mark.parametrize("name", ["50%", "a%2fb", "g%20x", "%", "%%25", "a%zz"])
def test_a_name_that_kafka_wrote_with_a_percent_sign_is_found(name: str) -> None:
    """Kafka writes names as they are: an ACL that denies must not be lost."""
    assert acl_znodes.unquoted(name) == name
    assert acl_znodes.quoted(name) == name


@pytest.mark.parametrize("name", ["100%25", "a%2Fb", "%2E", "%2E%2E", "a/b%2F", ".", "..", "%25"])
def test_a_name_that_looks_quoted_is_quoted_again(name: str) -> None:
    node = acl_znodes.quoted(name)
    assert node != name
    assert acl_znodes.unquoted(node) == name
