"""Uses of Kafka's own command-line tools against our brokers, one function each.

The rows are the table of docs/kafka-tools.md, which `make docs-tools` writes by running every one;
the integration test runs those that are `tested`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwater import Consumer
from headwater.cli.reassign.throttles import LEADER_LIST, LEADER_RATE
from integration import clients
from integration.acl_tools import OPEN_WITH_AUTHORIZER, change_acls
from integration.clients import CANONICAL, CODECS
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool
from integration.tool_bench import TOOLS, Bench, refused
from integration.transaction_tools import hanging_transaction, live_transaction

PERF_RECORDS = 20_000
SEGMENT_BYTES = 1 << 20


class Use(NamedTuple):
    """One row: the tool by the name of its script, what is done with it, and how."""

    script: str
    what: str
    run: Callable[[Bench], None]
    tested: bool


USES: list[Use] = []


def use(
    script: str, what: str, *, tested: bool = False
) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Enter a function as a row."""

    def enter(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
        USES.append(Use(script, what, run, tested))
        return run

    return enter


NOT_SERVED: tuple[tuple[str, str], ...] = ()
"""Tools whose feature is not there: (script, why)."""


@use("kafka-topics.sh", "create, list, add partitions, describe, delete", tested=True)
def topics(b: Bench) -> None:
    def tool(*arguments: str) -> str:
        return b.tool(f"{TOOLS}.TopicCommand", *arguments)

    tool("--create", "--topic", "by-tool", "--partitions", "2", "--replication-factor", "3")
    assert "by-tool" in tool("--list").split()
    tool("--alter", "--topic", "by-tool", "--partitions", "3")
    described = tool("--describe", "--topic", "by-tool")
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    assert len(re.findall(r"Isr: \d,\d,\d", described)) == 3
    tool("--delete", "--topic", "by-tool")
    refused(lambda: tool("--describe", "--topic", "by-tool"), "does not exist")


@use("kafka-topics.sh", "manual replica assignment; under-replicated and overridden topics")
def topics_by_hand(b: Bench) -> None:
    name = f"{TOOLS}.TopicCommand"
    made = ("--topic", "by-hand", "--replica-assignment", "1:0,2:1", "--config", "segment.ms=9000")
    b.tool(name, "--create", *made)
    assert [b.cluster.describe("by-hand", p).replicas for p in (0, 1)] == [(1, 0), (2, 1)]
    assert b.tool(name, "--describe", "--under-replicated-partitions") == ""
    assert "segment.ms=9000" in b.tool(name, "--describe", "--topics-with-overrides")


@use("kafka-configs.sh", "topics: describe, change, refuse an unknown key", tested=True)
def topic_configs(b: Bench) -> None:
    b.topic("configured", filled=False)

    def tool(*arguments: str) -> str:
        return b.tool("kafka.admin.ConfigCommand", "--topic", "configured", *arguments)

    tool("--alter", "--add-config", "retention.ms=1234567")
    assert "retention.ms=1234567 sensitive=false" in tool("--describe")
    refused(lambda: tool("--alter", "--add-config", "no.such=1"), r"no\.such")
    tool("--alter", "--delete-config", "retention.ms")
    assert "retention.ms=1234567" not in tool("--describe")


@use("kafka-configs.sh", "brokers, while they run: of one, of all (KIP-226)", tested=True)
def broker_configs(b: Bench) -> None:
    def tool(*arguments: str) -> str:
        return b.tool("kafka.admin.ConfigCommand", "--entity-type", "brokers", *arguments)

    tool("--entity-default", "--alter", "--add-config", "log.segment.delete.delay.ms=70000")
    tool("--entity-name", "1", "--alter", "--add-config", "log.segment.delete.delay.ms=80000")
    told = tool("--entity-name", "1", "--describe")
    for source in ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "DEFAULT_CONFIG"):
        assert f"{source}:log.segment.delete.delay.ms" in told, told
    assert "log.segment.delete.delay.ms=70000" in tool("--entity-default", "--describe")
    tool("--entity-default", "--alter", "--delete-config", "log.segment.delete.delay.ms")
    tool("--entity-name", "1", "--alter", "--delete-config", "log.segment.delete.delay.ms")


@use("kafka-configs.sh", "levels of a broker's loggers: describe, set, reset", tested=True)
def broker_loggers(b: Bench) -> None:
    def tool(*arguments: str) -> str:
        kind = ("--entity-type", "broker-loggers", "--entity-name", "1")
        return b.tool("kafka.admin.ConfigCommand", *kind, *arguments)

    name = "headwater_broker.log.cleaner"
    assert f"{name}=INFO sensitive=false" in tool("--describe")
    tool("--alter", "--add-config", f"{name}=DEBUG,root=WARN")
    told = tool("--describe")
    assert f"{name}=DEBUG sensitive=false" in told and "root=WARN sensitive=false" in told, told
    tool("--alter", "--delete-config", name)
    tool("--alter", "--add-config", "root=INFO")
    assert f"{name}=INFO sensitive=false" in tool("--describe")
    refused(lambda: tool("--alter", "--add-config", "no.such=INFO"), r"no\.such")


@use("kafka-configs.sh", "quotas of a client: set, describe, refuse, remove (KIP-546)", tested=True)
def client_quotas(b: Bench) -> None:
    def tool(*arguments: str) -> str:
        app = ("--entity-type", "clients", "--entity-name", "app")
        return b.tool("kafka.admin.ConfigCommand", *app, *arguments)

    tool("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    told = tool("--describe")
    assert "client-id 'app'" in told and "producer_byte_rate=1024.0" in told, told
    tool("--alter", "--add-config", "controller_mutation_rate=5")
    keys = "producer_byte_rate,request_percentage,controller_mutation_rate"
    tool("--alter", "--delete-config", keys)
    with b.cluster.admin() as admin:
        assert not any(row.quotas for row in admin.describe_client_quotas())


@use("kafka-configs.sh", "quotas of a user's clients, and of an address (KIP-612)")
def quotas_of_users_and_addresses(b: Bench) -> None:
    def tool(*arguments: str) -> str:
        return b.tool("kafka.admin.ConfigCommand", *arguments)

    pair = ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients")
    tool("--alter", *pair, "--entity-default", "--add-config", "consumer_byte_rate=7")
    told = tool("--describe", *pair, "--entity-default")
    assert "user-principal 'u', the default client-id" in told, told
    host = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    tool("--alter", *host, "--add-config", "connection_creation_rate=5")
    assert "connection_creation_rate=5.0" in tool("--describe", *host)
    tool("--alter", *pair, "--entity-default", "--delete-config", "consumer_byte_rate")
    tool("--alter", *host, "--delete-config", "connection_creation_rate")


@use("kafka-acls.sh", "rights of a producer by prefix, a denial by host: add, list, remove")
def acls(b: Bench) -> None:
    folder = b.folder / "guarded"
    with LocalCluster(folder, next_base_port(b.folder), 1, OPEN_WITH_AUTHORIZER) as own:
        change_acls(Bench(own, b.folder))


@use("kafka-groups.sh", "list groups of every kind")
def all_groups(b: Bench) -> None:
    topic = b.topic("of-group")
    with Consumer(topic, bootstrap_servers=b.cluster.bootstrap, group_id="seen") as consumer:
        consumer.poll(2000)
        assert re.search(r"seen +Classic +consumer", b.tool(f"{TOOLS}.GroupsCommand", "--list"))


@use("kafka-consumer-groups.sh", "list; describe members, state, offsets", tested=True)
def group_descriptions(b: Bench) -> None:
    name = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    topic = b.topic("described")
    with Consumer(topic, bootstrap_servers=b.cluster.bootstrap, group_id="told",
                  auto_offset_reset="earliest") as consumer:  # fmt: skip
        consumer.poll(5000)
        consumer.commit()
        assert "told" in b.tool(name, "--list").split()
        offsets = b.tool(name, "--describe", "--group", "told")
        count = len(CANONICAL)
        assert re.search(rf"told +{topic} +0 +{count} +{count} +0 +\S+", offsets), offsets
        members = b.tool(name, "--describe", "--group", "told", "--members", "--verbose")
        assert re.search(rf"told +\S+ +\S+ .*{topic}", members), members
        assert "Stable" in b.tool(name, "--describe", "--group", "told", "--state")


@use("kafka-consumer-groups.sh", "reset offsets, delete offsets, delete the group")
def group_changes(b: Bench) -> None:
    name = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    topic = b.topic("reset")
    asked = ("--group", "moved", "--topic", topic)
    back = b.tool(name, "--reset-offsets", *asked, "--to-offset", "2", "--execute")
    assert re.search(rf"moved +{topic} +0 +2", back), back
    on = b.tool(name, "--reset-offsets", *asked, "--shift-by", "1", "--execute")
    assert re.search(rf"moved +{topic} +0 +3", on), on
    assert "Successful" in b.tool(name, "--delete-offsets", *asked)
    b.tool(name, "--delete", "--group", "moved")
    assert "moved" not in b.tool(name, "--list").split()


@use("kafka-reassign-partitions.sh", "generate, execute with a throttle, verify, list", tested=True)
def reassignment(b: Bench) -> None:
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    b.tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "moves", "--replica-assignment", "0:1")
    clients.write_confluent(b.cluster.bootstrap, "moves", CANONICAL)
    topics_file = b.file("topics.json", {"version": 1, "topics": [{"topic": "moves"}]})
    made = b.tool(name, "--topics-to-move-json-file", topics_file, "--broker-list", "1,2",
                  "--generate")  # fmt: skip
    proposed = json.loads(made.strip().splitlines()[-1])
    assert sorted(proposed["partitions"][0]["replicas"]) == [1, 2]
    plan = b.file("plan.json", proposed)
    asked = ("--reassignment-json-file", plan)
    told = b.tool(name, *asked, "--execute", "--throttle", "100000000")
    assert "throttle limit was set to 100000000 B/s" in told, told
    assert "Successfully started" in told, told
    wanted = tuple(proposed["partitions"][0]["replicas"])
    b.cluster.wait_until(lambda: b.cluster.describe("moves").replicas == wanted, "moved")
    told = b.tool(name, *asked, "--verify")
    assert "Reassignment of partition moves-0 is completed" in told, told
    assert "Clearing topic-level throttles on topic moves" in told, told
    with b.cluster.admin() as admin:
        assert not admin.describe_configs("topic", "moves")[LEADER_LIST].value
        rates = [admin.describe_configs("broker", str(i))[LEADER_RATE] for i in range(3)]
    assert all(rate.is_default for rate in rates), rates
    assert "No partition reassignments found" in b.tool(name, "--list")


@use("kafka-reassign-partitions.sh", "log_dirs: a replica moves to another folder of its broker")
def reassignment_of_folders(b: Bench) -> None:
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    disks = [str(b.folder / disk) for disk in ("disk-1", "disk-2")]
    with LocalCluster(
        b.folder / "two-folders", next_base_port(b.folder), 1, {"log.dirs": ",".join(disks)}
    ) as own:
        two = Bench(own, b.folder)
        two.topic("between")

        def held() -> list[tuple[str, bool]]:
            told = two.tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "between")
            (broker,) = json.loads(told.strip().splitlines()[-1])["brokers"]
            assert sorted(row["logDir"] for row in broker["logDirs"]) == disks
            return [(d["logDir"], p["isFuture"]) for d in broker["logDirs"]
                    for p in d["partitions"]]  # fmt: skip

        ((here, _),) = held()
        there = next(disk for disk in disks if disk != here)
        row = {"topic": "between", "partition": 0, "replicas": [0], "log_dirs": [there]}
        plan = b.file("folders.json", {"version": 1, "partitions": [row]})
        asked = ("--reassignment-json-file", plan)
        told = two.tool(name, *asked, "--execute")
        assert f"Successfully started moving log directory to {there} for replica between-0" in told
        own.wait_until(lambda: held() == [(there, False)], "moved")
        told = two.tool(name, *asked, "--verify")
        assert re.search("Reassignment of replica between-0-0 completed successfully", told), told


@use("kafka-leader-election.sh", "preferred leaders of all partitions")
def election(b: Bench) -> None:
    name = f"{TOOLS}.LeaderElectionCommand"
    asked = ("--election-type", "preferred", "--all-topic-partitions")
    b.tool(name, *asked)
    b.topic("elected", filled=False)
    one = ("--election-type", "preferred", "--topic", "elected", "--partition", "0")
    assert "Valid replica already elected" in b.tool(name, *one)


@use("kafka-delete-records.sh", "delete records below an offset")
def delete_records(b: Bench) -> None:
    topic = b.topic("shortened")
    rows = [{"topic": topic, "partition": 0, "offset": 3}]
    path = b.file("offsets.json", {"version": 1, "partitions": rows})
    told = b.tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", path)
    assert f"partition: {topic}-0\tlow_watermark: 3" in told, told


@use("kafka-log-dirs.sh", "describe data folders and the replicas in them", tested=True)
def log_dirs(b: Bench) -> None:
    topic = b.topic("sized", replication_factor=3)
    told = b.tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    document = json.loads(told.strip().splitlines()[-1])
    assert [row["broker"] for row in document["brokers"]] == [0, 1, 2]
    for row in document["brokers"]:
        (folder,) = row["logDirs"]
        (partition,) = folder["partitions"]
        assert folder["error"] is None
        assert partition["partition"] == f"{topic}-0" and partition["size"] > 0
        assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


use("kafka-transactions.sh", "list, describe, describe producers, refuse to abort a live one",
    tested=True)(live_transaction)  # fmt: skip
use("kafka-transactions.sh", "find a hanging transaction, abort it")(hanging_transaction)


@use("kafka-get-offsets.sh", "first, last, by time, of the newest record", tested=True)
def offsets(b: Bench) -> None:
    topic = b.topic("shell", partitions=2)

    def at(time: str) -> list[str]:
        return b.tool(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", time).split()

    count = len(CANONICAL)
    assert at("latest") == [f"{topic}:0:{count}", f"{topic}:1:0"]
    assert at("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert at("max-timestamp")[0] == f"{topic}:0:{count - 1}"
    assert at(str(clients.T0 + 21))[0] == f"{topic}:0:3"


@use("kafka-broker-api-versions.sh", "what each broker serves")
def api_versions(b: Bench) -> None:
    told = b.tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert len(re.findall(r"^127\.0\.0\.1:\d+ \(id: \d ", told, re.M)) == 3, told
    assert re.search(r"Fetch\(1\): \d+ to \d+", told)


@use("kafka-cluster.sh", "the cluster's id")
def cluster_id(b: Bench) -> None:
    told = kafka_tool(
        f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", b.cluster.bootstrap
    )
    assert b.cluster.spec.cluster_id in told


@use("kafka-console-producer.sh", "write lines")
def console_producer(b: Bench) -> None:
    topic = b.topic("typed", filled=False)
    kafka_tool(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", b.cluster.bootstrap, "--topic", topic),
        stdin="one\ntwo\nthree\n",
    )
    seen = clients.read_kafka_python(b.cluster.bootstrap, topic, 3)
    assert [row.value for row in seen] == [b"one", b"two", b"three"]


@use("kafka-console-consumer.sh", "read keys, headers, timestamps, offsets")
def console_consumer(b: Bench) -> None:
    topic = b.topic("shown")
    seen = clients.read_console(b.cluster.bootstrap, topic, len(CANONICAL))
    assert [row.offset for row in seen] == list(range(len(CANONICAL)))


@use("kafka-producer-perf-test.sh", "20,000 records, lz4, idempotent as by default", tested=True)
def producer_performance(b: Bench) -> None:
    topic = b.topic("perf", filled=False, partitions=3)
    told = kafka_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", b.cluster.bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(PERF_RECORDS), "--record-size", "100"),
        *("--command-property", "compression.type=lz4"),
    )
    assert f"{PERF_RECORDS} records sent" in told


@use("kafka-consumer-perf-test.sh", "read them, as a member of a group", tested=True)
def consumer_performance(b: Bench) -> None:
    topic = b.topic("perf-read", filled=False)
    b.fill(topic, PERF_RECORDS)
    asked = ("--topic", topic, "--num-records", str(PERF_RECORDS), "--timeout", "20000")
    rows = b.tool(f"{TOOLS}.ConsumerPerformance", *asked).splitlines()
    assert int(rows[-1].split(", ")[4]) == PERF_RECORDS, rows


@use("kafka-e2e-latency.sh", "500 records, acks=all")
def end_to_end(b: Bench) -> None:
    topic = b.topic("latency", filled=False)
    told = b.tool(
        f"{TOOLS}.EndToEndLatency",
        *("--topic", topic, "--num-records", "500"),
        *("--producer-acks", "all", "--record-size", "100"),
    )
    assert "Percentiles" in told, told


@use("kafka-verifiable-producer.sh", "1,000 acknowledged records")
def verifiable_producer(b: Bench) -> None:
    topic = b.topic("verified", filled=False)
    told = b.tool(f"{TOOLS}.VerifiableProducer", "--topic", topic, "--max-messages", "1000")
    assert json.loads(told.strip().splitlines()[-1])["acked"] == 1000


@use("kafka-verifiable-consumer.sh", "read them by a group")
def verifiable_consumer(b: Bench) -> None:
    topic = b.topic("verified-read", filled=False)
    b.fill(topic, 1000)
    asked = ("--topic", topic, "--group-id", "verifier", "--max-messages", "1000")
    rows = [
        json.loads(line)
        for line in b.tool(f"{TOOLS}.VerifiableConsumer", *asked, "--reset-policy", "earliest")
        .strip()
        .splitlines()
    ]
    assert sum(row["count"] for row in rows if row["name"] == "records_consumed") == 1000


@use("kafka-dump-log.sh", "segments of every codec, indexes, producer snapshots", tested=True)
def dump_log(b: Bench) -> None:
    topic = b.topic("dumped", filled=False, segment_bytes=str(SEGMENT_BYTES))
    writable = clients.writable("kafka-python")
    for codec in CODECS:
        clients.write_kafka_python(b.cluster.bootstrap, topic, writable, codec)
    for _ in range(3):
        big = [clients.Rec(b"k", b"v" * 10_000, (), clients.T0 + n) for n in range(60)]
        clients.write_kafka_python(b.cluster.bootstrap, topic, big)

    def dump(*files: Path) -> str:
        return kafka_tool(f"{TOOLS}.DumpLogSegments", "--files", ",".join(map(str, files)))

    holder = b.cluster.describe(topic).replicas[0]
    folder = next(b.cluster.spec.slot(holder).folder.rglob(f"{topic}-0"))
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 2
    text = dump(*logs)
    assert set(re.findall(r"compresscodec: (\w+)", text)) == set(CODECS)
    assert "isvalid: false" not in text and "invalid" not in text.lower()
    assert re.search(r"baseSequence: 0 .*producerId: \d+ producerEpoch: 0", text)
    last = re.findall(r"lastOffset: (\d+)", text)[-1]
    assert int(last) + 1 == len(CODECS) * len(writable) + 180
    # The rolled segment's indexes; DumpLogSegments checks each entry against the log.
    index = dump(logs[0].with_suffix(".index"))
    assert re.search(r"offset: \d+ position: \d+", index)
    assert "Mismatch" not in index
    times = dump(logs[0].with_suffix(".timeindex"))
    assert re.search(r"timestamp: \d+ offset: \d+", times)
    for complaint in ("Found timestamp mismatch", "Found out of order", "should be"):
        assert complaint not in times
    snapshot = dump(sorted(folder.glob("*.snapshot"))[0])
    assert re.search(r"producerId: \d+ producerEpoch: 0 ", snapshot)
