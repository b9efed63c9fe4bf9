"""The SDK for type checkers and editors: exports, and wrong options."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import headwater
import headwater.serializers
from headwater.exports import EXPORTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "platform" / "headwater"

WRONG = """
from headwater import Admin, CheckpointedProducer, CheckpointState, Consumer, ConsumerRecord
from headwater import PreparedTransaction, Producer, RecordMetadata, ShareConsumer, TopicPartition
from headwater import Topic
from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer
from headwater.serializers import ModelSerializer, StringSerializer

producer = Producer("a:1", linger=5)  # wrong: "linger"
producer = Producer("a:1", linger_ms="5")  # wrong: "linger_ms"
producer = Producer("a:1", acks="al")  # wrong: "acks"
producer = Producer("a:1", compression_type="brotli")  # wrong: "compression_type"
producer = Producer({"bootstrap.servers": "a:1"})  # wrong: "Producer"
producer.send("t", b"v", timestamp="now")  # wrong: No overload variant
consumer = Consumer("t", group_id=3)  # wrong: "group_id"
consumer = Consumer("t", enable_auto_commit="false")  # wrong: "enable_auto_commit"
consumer = Consumer("t", auto_offset_reset="begin")  # wrong: "auto_offset_reset"
consumer = Consumer("t", partition_assignment_strategy=["stick"])  # wrong: List item
consumer = Consumer("t", groupid="g")  # wrong: "groupid"
producer = Producer("a:1", transactional_id=5)  # wrong: "transactional_id"
producer.send_offsets({}, "group")  # wrong: "send_offsets"
handle: str = producer.prepare()  # wrong: assignment
sink = CheckpointedProducer("a:1")  # wrong: "transactional_id_prefix"
sink = CheckpointedProducer("a:1", transactional_id_prefix="job", linger=5)  # wrong: "linger"
sink = CheckpointedProducer("a:1", transactional_id_prefix="j", acks="al")  # wrong: "acks"
sink.pre_commit("7")  # wrong: "pre_commit"
admin = Admin("a:1", request_timeout=1)  # wrong: "request_timeout"
admin.describe_configs("topics")  # wrong: Literal['topics']
admin.elect_leaders("fair")  # wrong: Literal['fair']
record: ConsumerRecord = consumer.poll()  # wrong: assignment
sender = AsyncProducer("a:1", linger=5)  # wrong: "linger"
sender = AsyncProducer("a:1", acks="al")  # wrong: "acks"
reader = AsyncConsumer("t", groupid="g")  # wrong: "groupid"
reader = AsyncConsumer("t", engine="fork")  # wrong: "engine"
pack = ShareConsumer("t", group_id=3)  # wrong: "group_id"
pack = ShareConsumer("t", group_id="g", clientid="x")  # wrong: "clientid"
pack = ShareConsumer("t", group_id="g", share_acquire_mode="all")  # wrong: "share_acquire_mode"
packer = AsyncShareConsumer("t", group_id="g", poll_records=1)  # wrong: "poll_records"


words = Topic("t", StringSerializer())
keyed = Topic("t", ModelSerializer(TopicPartition), StringSerializer())
producer.send(words, 5)  # wrong: Cannot infer
producer.send(keyed, TopicPartition("t", 0), 5)  # wrong: Cannot infer
number: int = consumer.typed(words).poll()[0].value  # wrong: assignment
producer.send(words, "v", b"k")
producer.send(keyed, TopicPartition("t", 0), "k")
word: str = consumer.typed(words).poll()[0].value
where: str = next(iter(consumer.typed(keyed))).value.topic


async def wrong_use() -> None:
    metadata: RecordMetadata = await sender.send("t", b"v")  # wrong: assignment
    await sender.send("t", value=5)  # wrong: No overload variant
    await AsyncAdmin("a:1").describe_configs("topics")  # wrong: "describe_configs"

producer = Producer(["a:1"], linger_ms=5, acks=1, compression_type="zstd", on_error=print)
consumer = Consumer("t", bootstrap_servers="a:1", group_id="g", auto_offset_reset="earliest")
pack = ShareConsumer("t", group_id="g", share_acknowledgement_mode="explicit")
rows: dict[TopicPartition, list[ConsumerRecord]] = consumer.poll(100)
with Producer("a:1", transactional_id="x", transaction_timeout_ms=1) as transactional:
    with transactional.transaction():
        transactional.send_offsets(None, consumer)
        transactional.send_offsets({("t", 0): 5}, consumer.group_metadata())
    prepared: PreparedTransaction = transactional.prepare()
    prepared.commit("a:1")
sink = CheckpointedProducer("a:1", transactional_id_prefix="job", linger_ms=5)
sink.recover([sink.pre_commit(7), sink.pre_commit(8).to_json()])
state: CheckpointState = sink.pre_commit(9)


async def right_use() -> None:
    async with AsyncProducer("a:1", linger_ms=5, sasl_mechanism="PLAIN", engine="thread") as out:
        metadata: RecordMetadata = await (await out.send("t", b"v", headers={"a": b"1"}))
        out.try_send("t", metadata.topic)
        async with out.transaction():
            await out.send_offsets({("t", 0): 5}, consumer.group_metadata())
    async with AsyncConsumer("t", group_id="g") as source:
        async for row in source:
            await source.commit({(row.topic, row.partition): row.offset + 1})
    async with AsyncAdmin("a:1") as operator:
        names: list[str] = await operator.list_topics()
        print(names)
"""


def test_mypy_sees_wrong_options_and_wrong_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    expected = {
        number: line.partition("# wrong: ")[2]
        for number, line in enumerate(WRONG.splitlines(), 1)
        if "# wrong: " in line
    }
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if ": error: " in line:
            place, _, message = line.partition(": error: ")
            found[int(place.rpartition(":")[2])] = message
    assert found.keys() == expected.keys(), done.stdout
    for number, part in expected.items():
        assert part in found[number], (part, found[number])


def test_the_stub_declares_what_the_package_exports() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert declared == EXPORTS
    (listed,) = (n for n in ast.walk(tree) if isinstance(n, ast.Assign))
    assert set(ast.literal_eval(listed.value)) == set(headwater.__all__)
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_of_the_serializers_declares_what_they_are() -> None:
    tree = ast.parse((PACKAGE / "serializers.pyi").read_text())
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == headwater.serializers.EXPORTS


def test_each_exported_name_can_be_imported() -> None:
    for name, module in EXPORTS.items():
        assert getattr(headwater, name) is getattr(importlib.import_module(module), name)
        assert name in dir(headwater)


def test_all_public_errors_are_exported() -> None:
    errors = importlib.import_module("headwater.client.errors")
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__ == errors.__name__
        and not name.startswith("_")
    }
    assert public <= EXPORTS.keys()


def test_importing_the_package_does_not_load_the_client() -> None:
    code = "import headwater, sys; print([m for m in sys.modules if m.startswith('headwater.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ast.literal_eval(done.stdout) == ["headwater.exports"]
