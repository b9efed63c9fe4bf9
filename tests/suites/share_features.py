"""The features of share groups that every client that has them is tried with.

A part of `python -m suites.group_features`. Locks last 3 s here, five deliveries are the limit:

- implicit: two members share what comes in; each record comes once.
- explicit: accepted and rejected records come once, released ones again, counted; one that is
  released always comes five times. Then the group's start offset is at the end.
- renew: a record is held for longer than its lock, and nobody else gets it.
- lock timeout: a record that is held too long goes to another member; the late answer is refused.
- kill -9: the records of a member that is killed go to another one.
- read committed: with share.isolation.level, nothing aborted is delivered, and nothing is left.
- broker killed: the leader dies amid the work and comes back; every record is accepted, none of
  which the acknowledgement was confirmed comes again.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import confluent_kafka

from docs_pages import table
from headwater.client.blocking.connection import BlockingConnection
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k90_describe_share_group_offsets as k90
from headwater.wire.schema import Message
from suites import judge
from suites.clusters import ClusterUnderTest, create_topic
from suites.group_members import SHARE_MEMBERS, Member
from suites.killing import Feeder, wait_until

BLOCK = "client-share-groups"
GROUP_RESOURCE = 32
LOCK_MS = 3000
PARTITIONS = 3
COUNT = 200
RATE = 100.0
WAIT_S = 60.0
QUIET_S = 4.0
LIMIT = 5
PROPERTIES = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
}

R = TypeVar("R", bound=Message)


class Trial(NamedTuple):
    """One client and feature: a topic and a group of its own."""

    cluster: ClusterUnderTest
    client: str
    topic: str

    @property
    def group(self) -> str:
        """The group's id."""
        return f"{self.topic}-group"

    def member(self, mode: str = "explicit") -> Member:
        """Start a member."""
        command = SHARE_MEMBERS[self.client]
        return Member(command, self.cluster.bootstrap, self.group, mode, self.topic)

    def write(self, *values: str) -> None:
        """Write these records, each a batch of its own, into partition 0."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap})
        for value in values:
            producer.produce(self.topic, value.encode(), partition=0)
            assert producer.flush(WAIT_S) == 0

    def fed(self) -> Feeder:
        """`accept-N` flow into all partitions."""
        bootstrap = self.cluster.bootstrap
        return Feeder(bootstrap, self.topic, lambda n: (n % PARTITIONS, f"accept-{n}"), RATE, COUNT)

    def is_done(self) -> bool:
        """Whether nothing is left: the group's start offsets are at the ends of the partitions, or
        nothing lags (Kafka stores a start offset only with the next change)."""
        ends = judge.watermarks(self.cluster.bootstrap, self.topic)
        found = group_offsets(self.cluster.bootstrap, self.group, self.topic)
        rows = [(found[p], end) if p in found else None for p, end in ends.items() if end]
        return all(row is not None and (row[0].start == row[1] or row[0].lag == 0) for row in rows)

    def wait_done(self, *members: Member) -> None:
        """Wait until nothing is left in the group."""
        try:
            wait_until(self.is_done, "the start offsets reach the ends", WAIT_S)
        except AssertionError as error:
            error.add_note(str(group_offsets(self.cluster.bootstrap, self.group, self.topic)))
            for member in members:
                error.add_note(member.last_words())
            raise


def _call(address: str, request: Message, reply: type[R], key: str = "") -> R:
    """Ask a broker; with a key its group coordinator."""
    host, _, port = address.partition(",")[0].rpartition(":")
    connection = BlockingConnection(host, int(port), client_id="suite", timeout_s=WAIT_S)
    try:
        if key:
            asked = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=(key,))
            row = connection.call(asked, k10.FindCoordinatorResponse).coordinators[0]
            if row.error_code:
                raise KafkaError(ErrorCode(row.error_code), row.error_message or "")
            return _call(f"{row.host}:{row.port}", request, reply)
        return connection.call(request, reply)
    finally:
        connection.close()


def configure(bootstrap: str, group: str, **configs: str) -> None:
    """Set configs of a group, _ for dots."""
    rows = tuple(
        k44.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    )
    resource = k44.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=rows
    )
    reply = _call(
        bootstrap,
        k44.IncrementalAlterConfigsRequest(resources=(resource,)),
        k44.IncrementalAlterConfigsResponse,
    )
    (row,) = reply.responses
    if row.error_code:
        raise KafkaError(ErrorCode(row.error_code), row.error_message or "")


class GroupOffset(NamedTuple):
    """What the coordinator tells of one partition."""

    start: int
    lag: int


def group_offsets(bootstrap: str, group: str, topic: str) -> dict[int, GroupOffset]:
    """The group's offsets by partition; empty while its coordinator moves."""
    asked = k90.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = k90.DescribeShareGroupOffsetsRequest(groups=(asked,))
    for address in bootstrap.split(","):
        try:
            reply = _call(address, request, k90.DescribeShareGroupOffsetsResponse, group)
        except (OSError, KafkaError):
            continue
        return {
            row.partition_index: GroupOffset(row.start_offset, row.lag)
            for found in reply.groups[0].topics
            if found.topic_name == topic
            for row in found.partitions
            if not row.error_code
        }
    return {}


def _deliveries(*members: Member) -> dict[str, list[int]]:
    """The delivery counts that each value came with, in ascending order."""
    found: dict[str, list[int]] = {}
    for member in members:
        for record in member.records:
            found.setdefault(record.value, []).append(record.deliveries)
    return {value: sorted(counts) for value, counts in found.items()}


def _wait_given(member: Member, count: int) -> None:
    wait_until(lambda: len(member.records) >= count, f"{count} records are given", WAIT_S)


def implicit(trial: Trial) -> None:
    """Two members, each record once."""
    with trial.member("implicit") as one, trial.member("implicit") as other:
        with trial.fed() as feeder:
            feeder.join()
        wanted = {f"accept-{n}": [1] for n in range(COUNT)}
        wait_until(lambda: len(_deliveries(one, other)) == COUNT, "all are delivered", WAIT_S)
        trial.wait_done(one, other)
        assert _deliveries(one, other) == wanted
        assert one.records and other.records
        one.close()
        other.close()
    with trial.member("implicit") as late:
        time.sleep(QUIET_S)
        assert late.records == []


def explicit(trial: Trial) -> None:
    """Accept, release, reject, and the limit of deliveries."""
    words = {"accept": [1], "release": [1, 2], "reject": [1], "poison": [*range(1, LIMIT + 1)]}
    wanted = {f"{word}-{n}": counts for n in range(5) for word, counts in words.items()}
    trial.write(*wanted)
    with trial.member() as member:
        trial.wait_done(member)
        assert _deliveries(member) == wanted
        member.close()


def renew(trial: Trial) -> None:
    """Held for longer than the lock."""
    trial.write("renew-0")
    with trial.member() as member:
        _wait_given(member, 1)
        with trial.member() as other:
            trial.wait_done(member, other)
            assert other.records == []
            assert {record.deliveries for record in member.records} == {1}


def lock_timeout(trial: Trial) -> None:
    """A late answer."""
    trial.write("hold-0")
    with trial.member() as late:
        _wait_given(late, 1)
        with trial.member() as other:
            _wait_given(other, 1)
            trial.wait_done(late, other)
            assert _deliveries(other) == {"hold-0": [2]}
            wait_until(lambda: late.refused > 0, "the late answer is refused", WAIT_S)
            assert len(late.records) == 1


def kill_member(trial: Trial) -> None:
    """A dead member's records."""
    trial.write("hold-0", "hold-1")
    with trial.member() as dead:
        _wait_given(dead, 1)
        dead.kill()
        with trial.member() as other:
            trial.wait_done(other)
            found = _deliveries(other)
            assert set(found) == {"hold-0", "hold-1"} and found["hold-0"][0] == 2, found


def read_committed(trial: Trial) -> None:
    """Transactions."""
    configure(trial.cluster.bootstrap, trial.group, share_isolation_level="read_committed")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": trial.cluster.bootstrap, "transactional.id": f"{trial.topic}-id"}
    )
    producer.init_transactions(WAIT_S)
    for value in ("accept-0", "accept-aborted", "accept-1", "accept-open"):
        producer.begin_transaction()
        producer.produce(trial.topic, value.encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        if value == "accept-aborted":
            producer.abort_transaction(WAIT_S)
        elif value != "accept-open":
            producer.commit_transaction(WAIT_S)
    with trial.member() as member:
        _wait_given(member, 2)
        time.sleep(QUIET_S)
        assert member.values() == {"accept-0", "accept-1"}
        producer.commit_transaction(WAIT_S)
        _wait_given(member, 3)
        trial.wait_done(member)
        assert "accept-aborted" not in member.values()


def broker_killed(trial: Trial) -> None:
    """The leader dies and comes back."""
    with trial.member() as one, trial.member() as other:
        with trial.fed() as feeder:
            wait_until(lambda: len(_deliveries(one, other)) > COUNT // 4, "some came", WAIT_S)
            leader = _leader(trial.cluster.bootstrap, trial.topic)
            trial.cluster.kill(leader)
            feeder.join()
        trial.cluster.restart(leader)
        trial.wait_done(one, other)
        for member in (one, other):
            member.check()
        wanted = {f"accept-{n}" for n in range(COUNT)}
        assert set(_deliveries(one, other)) == wanted
        confirmed = Counter(row for m in (one, other) for row in m.acked if len(row) > 2)
        assert not confirmed or max(confirmed.values()) == 1, "accepted twice"


def _leader(bootstrap: str, topic: str) -> int:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    return int(admin.list_topics(topic, WAIT_S).topics[topic].partitions[0].leader)


FEATURES: Mapping[str, Callable[[Trial], None]] = {
    "implicit": implicit,
    "explicit": explicit,
    "renew": renew,
    "lock timeout": lock_timeout,
    "kill -9": kill_member,
    "read committed": read_committed,
    "broker killed": broker_killed,
}
NOT_HAD = {("confluent-kafka", "renew")}
"""librdkafka 2.16 cannot renew."""
TRIED: Sequence[tuple[str, str]] = [
    (client, feature)
    for client in SHARE_MEMBERS
    for feature in FEATURES
    if (client, feature) not in NOT_HAD
]


def _untried(client: str, feature: str) -> str:
    return "the client has it not" if (client, feature) in NOT_HAD else "not run"


def run(cluster: ClusterUnderTest, client: str, feature: str) -> None:
    """Try one feature; raises when it does not work."""
    name = f"share-{feature.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
    trial = Trial(cluster, client, create_topic(cluster.bootstrap, name, PARTITIONS))
    configure(cluster.bootstrap, trial.group, share_auto_offset_reset="earliest")
    FEATURES[feature](trial)


def page_block(results: Mapping[tuple[str, str], str]) -> str:
    """The table; `results` by client and feature."""
    rows = ((c, *(results.get((c, f), _untried(c, f)) for f in FEATURES)) for c in SHARE_MEMBERS)
    return table(("client", *FEATURES), iter(rows))
