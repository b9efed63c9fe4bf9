"""Share consumers of the SDK and `headwater share-groups`, against this broker and Apache Kafka
(KIP-932)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peers import KafkaPeer
from click.testing import CliRunner

from headwater import (
    AcknowledgementResult,
    AcknowledgeType,
    Admin,
    DeadLetter,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    ShareRecord,
    Topic,
    TypedRecord,
)
from headwater.aio import AsyncShareConsumer
from headwater.cli.share_groups import share_groups
from headwater.serializers import JsonSerializer
from whole_cluster import ServedCluster

PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.record.lock.duration.ms": "1000",
}
EXPLICIT: Any = {"share_acknowledgement_mode": "explicit"}
POLLS = 100
PAGE = Path(__file__).resolve().parents[2] / "docs" / "share-groups.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module", params=["headwater", pytest.param("kafka", marks=pytest.mark.long)])
def bootstrap(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    if request.param == "headwater":
        with ServedCluster(tmp_path_factory.mktemp("share"), 1, **PROPERTIES) as cluster:
            yield cluster.bootstrap
        return
    peer = KafkaPeer(tmp_path_factory.mktemp("share") / "kafka", properties=PROPERTIES)
    try:
        yield peer.start().bootstrap
    finally:
        peer.stop()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as client:
        yield client


def make(admin: Admin, bootstrap: str, name: str, *values: bytes, partitions: int = 1) -> str:
    """A topic with these records, whose share group of the same name begins at the first one."""
    admin.create_topics([NewTopic(name, partitions, 1)])
    admin.alter_configs("group", name, {"share.auto.offset.reset": "earliest"})
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(name, value, partition=number % partitions)
    return name


def member(bootstrap: str, name: str, **options: Any) -> ShareConsumer:
    return ShareConsumer(name, bootstrap_servers=bootstrap, group_id=name, **options)


def taken(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until there are so many records, which one poll need not bring."""
    rows: list[ShareRecord] = []
    for _ in range(POLLS):
        rows += [row for polled in consumer.poll(500).values() for row in polled]
        if len(rows) >= count:
            return rows
    raise AssertionError(f"{len(rows)} records of {count}")


def lags(admin: Admin, name: str) -> list[int | None]:
    """How many records of each partition are not settled. Kafka moves start offsets later."""
    return [at.lag for at in admin.list_share_group_offsets(name).values()]


def test_members_share_one_partition_and_each_record_goes_to_one(
    admin: Admin, bootstrap: str
) -> None:
    name = make(admin, bootstrap, "shared", *(b"%d" % n for n in range(200)))
    limits: Any = {"share_acquire_mode": "record_limit", "max_poll_records": 20}
    seen: list[int] = []
    with member(bootstrap, name, **limits) as one, member(bootstrap, name, **limits) as two:
        counts = [0, 0]
        for _ in range(POLLS):
            for index, consumer in enumerate((one, two)):
                rows = [row for polled in consumer.poll(300).values() for row in polled]
                counts[index] += len(rows)
                seen += [row.offset for row in rows]
            if len(seen) >= 200:
                break
        assert not any(error for c in (one, two) for error in c.commit().values())
    assert sorted(seen) == list(range(200))
    assert min(counts) > 0
    assert lags(admin, name) == [0]


def test_each_acknowledgement_type_does_what_it_says(admin: Admin, bootstrap: str) -> None:
    name = make(admin, bootstrap, "kinds", b"accepted", b"released", b"rejected", b"renewed")
    told: list[AcknowledgementResult] = []
    with member(bootstrap, name, **EXPLICIT) as consumer:
        consumer.set_acknowledgement_commit_callback(told.extend)
        rows = taken(consumer, 4)
        assert consumer.acquisition_lock_timeout_ms() == 30_000
        for row, kind in zip(rows, AcknowledgeType, strict=True):
            consumer.acknowledge(row, kind)
        assert list(consumer.commit().values()) == [None]
        assert [(r.offsets, r.error) for r in told] == [([0, 1, 2, 3], None)]
        (again,) = taken(consumer, 1)
        assert (again.value, again.delivery_count) == (b"released", 2)
        consumer.acknowledge(again)
        consumer.acknowledge(rows[3])
        assert list(consumer.commit().values()) == [None]
        assert consumer.statistics().records_held == 0
    assert lags(admin, name) == [0]


def test_close_releases_what_was_not_acknowledged(admin: Admin, bootstrap: str) -> None:
    name = make(admin, bootstrap, "closed", *(b"%d" % n for n in range(6)))
    with member(bootstrap, name, **EXPLICIT) as consumer:
        rows = taken(consumer, 6)
        for row in rows[:2]:
            consumer.acknowledge(row)
    with member(bootstrap, name, consumer_timeout_ms=20_000) as consumer:
        found = []
        for record in consumer:
            found.append((record.offset, record.delivery_count))
            if len(found) == 4:
                break
    assert found == [(2, 2), (3, 2), (4, 2), (5, 2)]


def test_a_lock_that_timed_out_is_told_and_the_record_comes_again(
    admin: Admin, bootstrap: str
) -> None:
    name = make(admin, bootstrap, "late", b"slow")
    admin.alter_configs("group", name, {"share.record.lock.duration.ms": "1000"})
    with member(bootstrap, name, **EXPLICIT) as one, member(bootstrap, name, **EXPLICIT) as two:
        (row,) = taken(one, 1)
        (again,) = taken(two, 1)
        assert again.delivery_count == 2
        one.acknowledge(row)
        (error,) = one.commit().values()
        assert isinstance(error, KafkaError)
        assert error.code.name == "INVALID_RECORD_STATE"
        two.acknowledge(again)
        assert list(two.commit().values()) == [None]


def test_typed_records_and_dead_letters(admin: Admin, bootstrap: str) -> None:
    name = make(admin, bootstrap, "typed", b'{"n": 1}', b"{", b'{"n": 2}')
    admin.create_topics([NewTopic("typed-dead", 1, 1)])
    orders = Topic(name, JsonSerializer())
    with ShareConsumer(bootstrap_servers=bootstrap, group_id=name) as consumer:
        reader = consumer.typed(orders, on_undecodable=DeadLetter("typed-dead"))
        found: list[TypedRecord[Any, Any]] = []
        for _ in range(POLLS):
            found += reader.poll(500)
            if len(found) == 2:
                break
        assert [(r.value, r.delivery_count) for r in found] == [({"n": 1}, 1), ({"n": 2}, 1)]
        assert list(consumer.commit().values()) == [None]
    assert lags(admin, name) == [0]
    (end,) = admin.list_offsets({("typed-dead", 0): -1}).values()
    assert end.offset == 1


@pytest.mark.parametrize("engine", ["loop", "thread"])
def test_cancelled_tasks_lose_no_record(admin: Admin, bootstrap: str, engine: Any) -> None:
    count = 300
    name = make(
        admin, bootstrap, f"cancelled-{engine}", *(b"%d" % n for n in range(count)), partitions=2
    )
    found: list[bytes | None] = []

    async def work() -> None:
        async with AsyncShareConsumer(
            name, bootstrap_servers=bootstrap, group_id=name, engine=engine, max_poll_records=7
        ) as consumer:

            async def read_on() -> None:
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == count:
                        return

            turns = 0
            while len(found) < count:
                task = asyncio.create_task(read_on())
                for _ in range(turns % 5):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 2:
                    task.cancel()
                await asyncio.wait([task])
            assert not any((await consumer.commit()).values())

    asyncio.run(asyncio.wait_for(work(), 60))
    assert sorted(map(int, filter(None, found))) == list(range(count))
    assert lags(admin, name) == [0, 0]


def test_the_command_line(admin: Admin, bootstrap: str) -> None:
    name = make(admin, bootstrap, "tool", b"a", b"b")

    def run(*words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(
            share_groups, [*words, "--json", "--bootstrap-server", bootstrap], standalone_mode=False
        )
        assert done.exception is None, done.output
        assert done.return_value == code
        return json.loads(done.stdout)

    with member(bootstrap, name) as consumer:
        taken(consumer, 2)
        consumer.commit()
        (described,) = run("describe", name)
        assert described["state"] == "Stable"
        (row,) = described["members"]
        assert row["assignment"] == [{"topic": name, "partition": 0}]
    (described,) = run("describe", name)
    assert (described["state"], described["members"]) == ("Empty", [])
    (row,) = described["partitions"]
    assert (row["topic"], row["partition"], row["lag"]) == (name, 0, 0)
    assert {"group": name, "state": "Empty"} in run("list", "--state", "empty")
    planned = run("reset-offsets", name, "--all-topics", "--to-earliest")
    assert planned["executed"] is False
    done = run("reset-offsets", name, "--topic", f"{name}:0", "--to-earliest", "--execute")
    (row,) = done["offsets"]
    assert (row["partition"], row["offset"], row["error"]) == (0, 0, None)
    with member(bootstrap, name) as consumer:
        assert [row.value for row in taken(consumer, 2)] == [b"a", b"b"]
    assert run("delete-offsets", name, "--topic", name) == [{"topic": name, "error": None}]
    gone = run("delete", name, "no-such-group", code=1)
    assert gone["deleted"] == [name]
    assert [row["group"] for row in gone["failed"]] == ["no-such-group"]


@pytest.fixture(scope="module")
def orders(bootstrap: str) -> str:
    """The topic that the page's examples read, and its groups, which begin at the first record."""
    with Admin(bootstrap) as admin:
        make(admin, bootstrap, "orders", b"12", b"none", b"13")
        for group in ("packers", "checkers", "shippers"):
            admin.alter_configs("group", group, {"share.auto.offset.reset": "earliest"})
    return bootstrap


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(
    orders: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLES[number].replace("127.0.0.1:9092", orders)
    code = compile(text, f"{PAGE.name}, example {number + 1}", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})
    assert capsys.readouterr().out
    assert len(EXAMPLES[0].splitlines()) <= 10
