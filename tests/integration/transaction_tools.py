"""Uses of `kafka-transactions.sh` (KIP-664); `kafka_tools` has the others."""

from __future__ import annotations

from headwater.records.builder import BatchBuilder
from integration import clients
from integration.tool_bench import TOOLS, Bench, refused

TRANSACTION_S = 60.0


def live_transaction(b: Bench) -> None:
    topic = b.topic("transacted", filled=False)
    where = ("--topic", topic, "--partition", "0")

    def tool(*arguments: str) -> list[list[str]]:
        """The rows below the headings, by their words."""
        told = b.tool(f"{TOOLS}.TransactionsCommand", *arguments)
        return [line.split() for line in told.strip().splitlines()[1:]]

    producer = clients.begin_transaction(b.cluster.bootstrap, "by-tool", topic)
    (row,) = [row for row in tool("list") if row[0] == "by-tool"]
    assert row[3] == "Ongoing", row
    # An id without a transaction has no start, and counts as old: other tests leave such ids.
    assert "by-tool" not in [row[0] for row in tool("list", "--duration-filter", "3600000")]
    (described,) = tool("describe", "--transactional-id", "by-tool")
    coordinator, name, producer_id, epoch, state, timeout_ms, *_, partitions = described
    assert [coordinator, name, producer_id] == [row[1], "by-tool", row[2]]
    assert (state, timeout_ms, partitions) == ("Ongoing", "60000", f"{topic}-0")
    (active,) = tool("describe-producers", *where)
    assert (active[0], active[1], active[5]) == (producer_id, epoch, "0"), active
    assert tool("find-hanging", *where, "--max-transaction-timeout", "0") == []
    refused(lambda: str(tool("abort", *where, "--start-offset", "0")), "has been fenced")
    producer.commit_transaction(TRANSACTION_S)
    (row,) = [row for row in tool("list") if row[0] == "by-tool"]
    assert row[3] in ("PrepareCommit", "CompleteCommit"), row
    refused(lambda: str(tool("describe", "--transactional-id", "never")), "(?i)transactionalid")


def hanging_transaction(b: Bench) -> None:
    topic = b.topic("hung", filled=False, replication_factor=1)
    leader = b.cluster.describe(topic).leader
    folder = next(b.cluster.spec.slot(leader).folder.rglob(f"{topic}-0"))
    b.cluster.kill_broker(leader)
    # As a leader that asks no coordinator would have appended it.
    records = BatchBuilder()
    records.append(clients.T0, b"k", b"v", [])
    batch = records.build(
        leader_epoch=0, producer_id=987_654, producer_epoch=3, base_sequence=0, transactional=True
    )
    (segment,) = folder.glob("*.log")
    segment.write_bytes(bytes(batch))
    b.cluster.restart(leader)
    b.cluster.wait_until(lambda: b.cluster.describe(topic).leader == leader, "it leads")
    name, where = f"{TOOLS}.TransactionsCommand", ("--topic", topic, "--partition", "0")
    found = b.tool(name, "find-hanging", *where).strip().splitlines()[-1].split()
    assert found[:6] == [topic, "0", "987654", "3", "-1", "0"], found
    assert b.tool(name, "find-hanging", "--broker-id", str(leader)).count(topic) == 1
    b.tool(name, "abort", *where, "--start-offset", "0")
    assert topic not in b.tool(name, "find-hanging", *where)
    with b.cluster.admin() as admin:
        assert admin.transaction_blockers([topic]) == []
