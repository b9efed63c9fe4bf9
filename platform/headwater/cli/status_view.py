"""The state of a cluster, computed from its brokers' status documents (format 1). Pure.

Each document has a broker's replicas with their offsets, and its counters. A partition's offsets
are those of its leader; the followers' documents give their lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.cli.blocked_readers import BlockedRow, blocked_rows

FORMAT = 1


def check_format(document: Mapping[str, Any]) -> None:
    """Raise ValueError for a document of another format."""
    found = document.get("format")
    if found != FORMAT:
        raise ValueError(f"format {found!r}, this command reads {FORMAT}: use the broker's version")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. Offsets are the leader's, -1 when they are unknown."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int = -1
    tiered_end_offset: int = -1
    """Offsets below are in the Delta table."""
    local_log_start_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    size_bytes: int = 0
    lag: Mapping[int, int] = field(default_factory=dict)
    """Follower -> number of offsets that it is behind the leader."""
    offline_reason: str = ""
    adding_replicas: tuple[int, ...] = ()
    """Replicas that a reassignment adds: they need not be in sync yet."""

    @property
    def is_replicated(self) -> bool:
        """False when the partition is under-replicated, by Kafka's definition: replicas that a
        reassignment adds do not count."""
        return len(self.isr) >= len(self.replicas) - len(self.adding_replicas)

    @property
    def name(self) -> str:
        """`flights-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def lag_max(self) -> int:
        """The lag of the follower that is furthest behind."""
        return max(self.lag.values(), default=0)

    @property
    def delta_share(self) -> float:
        """The share of the partition's offsets that is in the Delta table, 0 to 1."""
        kept = self.log_end_offset - self.log_start_offset
        if kept <= 0:
            return 0.0
        tiered = min(self.tiered_end_offset, self.log_end_offset) - self.log_start_offset
        return max(0.0, tiered / kept)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker. `problem` is the reason why it does not answer."""

    broker_id: int
    address: str
    ready: bool = False
    controller: bool = False
    leaders: int = 0
    replicas: int = 0
    size_bytes: int = 0
    bytes_in_total: int = 0
    bytes_out_total: int = 0
    loop_turn_ms: float = 0.0
    """The event loop's maximum lag within a minute, without the time it waited for a CPU."""
    timer_delay_ms: float = 0.0
    """The maximum delay of a timer within a minute, with the time it waited for a CPU."""
    rss_bytes: int = 0
    problem: str = ""

    @property
    def answers(self) -> bool:
        """True when its status document was received."""
        return not self.problem


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """A broker has lost its registration (`gone`) or registered again (`back`)."""

    broker_id: int
    kind: str
    at_ms: int
    away_ms: int = -1
    """With `back`: how long it was away; -1 when that is unknown."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group's lag on one topic; without a topic when it has no committed offsets."""

    group_id: str
    state: str
    members: int
    topic: str = ""
    partitions: int = 0
    """Number of the topic's partitions with a committed offset."""
    lag: int = 0
    """Offsets of these partitions from the committed offset to the high watermark."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """The cluster at one moment (`taken_s`, monotonic)."""

    taken_s: float
    cluster_id: str
    brokers: tuple[BrokerRow, ...]
    partitions: tuple[PartitionRow, ...]
    events: tuple[BrokerEvent, ...] = ()
    """Oldest first."""
    groups: tuple[GroupRow, ...] = ()
    groups_left_out: int = 0
    """Number of groups for which the brokers' documents had no room."""
    blocked: tuple[BlockedRow, ...] = ()
    """Partitions whose readers of read_committed wait for a transaction."""

    @property
    def healthy(self) -> bool:
        """True when all brokers are ready and all partitions have a leader and are replicated."""
        replicated = all(p.leader >= 0 and p.is_replicated for p in self.partitions)
        return replicated and all(broker.ready for broker in self.brokers)


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, between two views."""

    records: Mapping[str, float]
    """Partition name -> advance of the high watermark."""
    bytes_in: Mapping[int, float]
    bytes_out: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one broker: its status document, or a problem."""

    broker_id: int
    address: str
    ready: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def build_view(answers: Sequence[Answer], cluster_id: str, taken_s: float) -> StatusView:
    """Merge the brokers' documents."""
    controller = _controller_id(answers)
    partitions = _partitions(answers)
    brokers = tuple(_broker(answer, controller) for answer in answers)
    groups = _groups(answers, partitions)
    left_out = sum(answer.document.get("groups_left_out", 0) for answer in answers)
    events = _events(answers)
    blocked = blocked_rows((a.broker_id, a.document) for a in answers)
    return StatusView(taken_s, cluster_id, brokers, partitions, events, groups, left_out, blocked)


def rates_between(before: StatusView | None, now: StatusView) -> Rates:
    """The rates between two views; none without a first one."""
    if before is None or now.taken_s <= before.taken_s:
        return Rates({}, {}, {})
    seconds = now.taken_s - before.taken_s
    watermarks = {p.name: p.high_watermark for p in before.partitions}
    records = {
        p.name: max(0, p.high_watermark - watermarks[p.name]) / seconds
        for p in now.partitions
        if p.name in watermarks
    }
    known = {b.broker_id: b for b in before.brokers if b.ready}
    pairs = [(known[b.broker_id], b) for b in now.brokers if b.ready and b.broker_id in known]
    # The counters of a restarted broker begin at 0: its rate is not negative.
    bytes_in = {
        b.broker_id: max(0, b.bytes_in_total - a.bytes_in_total) / seconds for a, b in pairs
    }
    bytes_out = {
        b.broker_id: max(0, b.bytes_out_total - a.bytes_out_total) / seconds for a, b in pairs
    }
    return Rates(records, bytes_in, bytes_out)


def as_document(view: StatusView, rates: Rates) -> dict[str, Any]:
    """The view for `--json`."""
    return {
        "format": FORMAT,
        "cluster_id": view.cluster_id,
        "healthy": view.healthy,
        "brokers": [
            {
                "broker_id": b.broker_id,
                "address": b.address,
                "ready": b.ready,
                "controller": b.controller,
                "leaders": b.leaders,
                "replicas": b.replicas,
                "size_bytes": b.size_bytes,
                "bytes_in_per_s": round(rates.bytes_in.get(b.broker_id, 0.0), 1),
                "bytes_out_per_s": round(rates.bytes_out.get(b.broker_id, 0.0), 1),
                "loop_turn_ms": b.loop_turn_ms,
                "timer_delay_ms": b.timer_delay_ms,
                "rss_bytes": b.rss_bytes,
                "problem": b.problem,
            }
            for b in view.brokers
        ],
        "partitions": [_partition_document(p, rates) for p in view.partitions],
        "groups": [asdict(group) for group in view.groups],
        "groups_left_out": view.groups_left_out,
        "blocked": [asdict(row) for row in view.blocked],
        "events": [asdict(event) for event in view.events],
    }


def _partition_document(p: PartitionRow, rates: Rates) -> dict[str, Any]:
    return {
        "topic": p.topic,
        "partition": p.partition,
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "replicas": list(p.replicas),
        "adding_replicas": list(p.adding_replicas),
        "isr": list(p.isr),
        "lag": {str(broker_id): lag for broker_id, lag in p.lag.items()},
        "log_start_offset": p.log_start_offset,
        "tiered_end_offset": p.tiered_end_offset,
        "local_log_start_offset": p.local_log_start_offset,
        "high_watermark": p.high_watermark,
        "log_end_offset": p.log_end_offset,
        "size_bytes": p.size_bytes,
        "records_per_s": round(rates.records.get(p.name, 0.0), 1),
        "offline_reason": p.offline_reason,
    }


def _controller_id(answers: Sequence[Answer]) -> int:
    """The controller that most brokers name; -1 when it is unknown."""
    named = [answer.document.get("controller_id", -1) for answer in answers if answer.document]
    known = [controller for controller in named if controller >= 0]
    return max(set(known), key=known.count) if known else -1


def _broker(answer: Answer, controller_id: int) -> BrokerRow:
    document = answer.document
    rows = _hosted(document)
    counters = document.get("rates", {})
    return BrokerRow(
        broker_id=answer.broker_id,
        address=answer.address,
        ready=answer.ready,
        controller=answer.broker_id == controller_id and answer.ready,
        leaders=sum(1 for row in rows if row.get("is_leader")),
        replicas=len(rows),
        size_bytes=sum(row.get("size_bytes", 0) for row in rows),
        bytes_in_total=counters.get("bytes_in_total", 0),
        bytes_out_total=counters.get("bytes_out_total", 0),
        loop_turn_ms=document.get("loop_turn_ms", {}).get("last_minute", 0.0),
        timer_delay_ms=document.get("timer_delay_ms", {}).get("last_minute", 0.0),
        rss_bytes=document.get("rss_bytes", 0),
        problem=answer.problem,
    )


def _groups(answers: Sequence[Answer], partitions: Sequence[PartitionRow]) -> tuple[GroupRow, ...]:
    """By group and topic: the committed offsets, from the coordinator, and the lag."""
    watermarks = {(p.topic, p.partition): p.high_watermark for p in partitions}
    found = {g["group_id"]: g for answer in answers for g in answer.document.get("groups", ())}
    rows = []
    for group_id, group in sorted(found.items()):
        topics: dict[str, list[int]] = {}
        for row in group["partitions"]:
            end = watermarks.get((row["topic"], row["partition"]), -1)
            if end >= 0:
                topics.setdefault(row["topic"], []).append(max(0, end - row["committed_offset"]))
        state, members = group["state"], group["members"]
        rows += [
            GroupRow(group_id, state, members, topic, len(lags), sum(lags))
            for topic, lags in sorted(topics.items())
        ] or [GroupRow(group_id, state, members)]
    return tuple(rows)


def _events(answers: Sequence[Answer]) -> tuple[BrokerEvent, ...]:
    """Every broker's events; of the same event, the earliest observation."""
    first: dict[tuple[int, str, int], BrokerEvent] = {}
    for answer in answers:
        for row in answer.document.get("events", ()):
            key = (row["broker_id"], row["kind"], row["broker_epoch"])
            if key not in first or row["at_ms"] < first[key].at_ms:
                event = BrokerEvent(row["broker_id"], row["kind"], row["at_ms"], row["away_ms"])
                first[key] = event
    return tuple(sorted(first.values(), key=lambda e: e.at_ms))


def _hosted(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = document.get("hosted", {}).get("partitions", ())
    return rows


def _partitions(answers: Sequence[Answer]) -> tuple[PartitionRow, ...]:
    """Partitions by the brokers that host them; those without a live replica by the metadata."""
    hosted: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = {}
    for answer in answers:
        for row in _hosted(answer.document):
            hosted.setdefault((row["topic"], row["partition"]), {})[answer.broker_id] = row
    wanted = _metadata(answers)
    # A topic that is missing in the metadata is being deleted: its last replicas are not shown.
    keys = sorted(wanted) if wanted else sorted(hosted)
    return tuple(_merged(key[0], key[1], hosted.get(key, {}), wanted.get(key)) for key in keys)


def _metadata(answers: Sequence[Answer]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Per partition, the state with the highest leader epoch in any broker's metadata."""
    newest: dict[tuple[str, int], Mapping[str, Any]] = {}
    for answer in answers:
        for topic in answer.document.get("topics", ()):
            for state in topic["partitions"]:
                key = (topic["topic"], state["partition"])
                if key not in newest or state["leader_epoch"] > newest[key]["leader_epoch"]:
                    newest[key] = state
    return newest


def _merged(
    topic: str,
    partition: int,
    hosted: Mapping[int, Mapping[str, Any]],
    state: Mapping[str, Any] | None,
) -> PartitionRow:
    # Two replicas may take themselves for the leader for a moment: the higher epoch is right.
    rows = sorted(hosted.values(), key=lambda r: (r["leader_epoch"], bool(r.get("is_leader"))))
    best = rows[-1] if rows else {}
    led = bool(best.get("is_leader"))
    known = best if best else (state or {})
    reasons = [r["offline_reason"] for r in (*rows, state or {}) if r.get("offline_reason")]
    end = best.get("log_end_offset", -1)
    local_start = best.get("local_log_start_offset", -1)
    followers = {b: r for b, r in sorted(hosted.items()) if r is not best}
    return PartitionRow(
        topic=topic,
        partition=partition,
        leader=known.get("leader", -1) if led else -1,
        leader_epoch=known.get("leader_epoch", -1),
        replicas=tuple(known.get("replicas", ())),
        isr=tuple(known.get("isr", ())),
        adding_replicas=tuple(known.get("adding_replicas", ())),
        log_start_offset=best.get("log_start_offset", -1),
        tiered_end_offset=max(_or_none(best.get("tiered_end_offset")), local_start),
        local_log_start_offset=local_start,
        high_watermark=best.get("high_watermark", -1),
        log_end_offset=end,
        size_bytes=best.get("size_bytes", 0),
        lag={b: max(0, end - r["log_end_offset"]) for b, r in followers.items()},
        offline_reason="" if led else (reasons or ["no leader answers"])[-1],
    )


def _or_none(offset: int | None) -> int:
    return -1 if offset is None else offset
