"""Checks a recorded history for anomalies, by Jepsen's classes for logs. Pure.

| class | what it means |
|---|---|
| lost write | acknowledged, but not in the log at the end |
| vanished read | a consumer read it, but it is not in the log at the end |
| duplicate | one value at two offsets of the log |
| reordered | records of a producer are in another order than they were sent |
| inconsistent offset | two values were read at one offset, or a value was acknowledged at another |
| non-monotonic poll | a consumer read an offset again, or an older one, without a seek |
| skipped by poll | a consumer read on past a record of the log without reading it |
| skipped by group | no member of a group read a record below the group's position |
| lost commit | a group started below an offset whose commit was acknowledged |
| aborted read | a record of an aborted transaction, or of a send that failed for sure, was read |
| torn read | the bytes of a value are not those that were sent |
| torn transaction | some records of a transaction are in the log and others are not |
| wrong copy | the copiers' output is not their input, each record once and in order |
| divergent replicas | in-sync replicas of a partition have different bytes at the end |
| thrown off | a client got an error that no correct broker sends |
| stuck | the cluster or a client did not go on in time after the faults were healed |
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from soak.history import COPIED_FROM, TORN, TRANSACTED_FROM, Event

Place = tuple[int, int]
"""(partition, offset)"""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly, with the lines of the history (from 0) that prove it."""

    kind: str
    what: str
    lines: tuple[int, ...] = ()
    about: tuple[int | str, ...] = ()
    """The offsets and values in these lines that the anomaly is about."""


@dataclass(slots=True)
class Findings:
    """The result of a check: counts and anomalies."""

    anomalies: list[Anomaly] = field(default_factory=list)
    sent: int = 0
    acked: int = 0
    failed: int = 0
    commits: int = 0
    transactions: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Transactions by their end."""
    read: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Records read, by client (a group's members count as the group)."""
    stood_still: list[str] = field(default_factory=list)
    """Clients of librdkafka that hung by a bug of their own (`soak.pulse`, `soak.overdue`)."""

    def kinds(self) -> dict[str, int]:
        """Anomalies by class."""
        counts: dict[str, int] = defaultdict(int)
        for anomaly in self.anomalies:
            counts[anomaly.kind] += 1
        return dict(counts)


def check(events: Iterable[Event]) -> Findings:
    """Check a whole history."""
    checker = _Checker()
    for number, event in enumerate(events):
        checker.take(number, event)
    checker.conclude()
    return checker.found


@dataclass(slots=True)
class _Reader:
    """The position of a consumer in a partition; None after an assignment."""

    last: int | None = None
    line: int = -1


@dataclass(slots=True)
class _Skip:
    client: str
    partition: int
    after: int
    before: int
    lines: tuple[int, int]


@dataclass(slots=True)
class _Start:
    """A group's first poll of a partition after an assignment."""

    group: str
    partition: int
    offset: int
    floor: int
    lines: tuple[int, ...]


class _Checker:
    def __init__(self) -> None:
        self.found = Findings()
        self.sends: dict[str, int] = {}
        self.acks: dict[str, tuple[Place, int]] = {}
        self.failures: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        """Values that a consumer read, with the line of the first time."""
        self.at: dict[Place, tuple[str, int]] = {}
        self.final: dict[int, list[int]] = {}
        self.log: dict[str, tuple[Place, int]] = {}
        self.values: dict[int, tuple[list[str], int]] = {}
        """The values of transacted partitions and of their copies."""
        self.copies: dict[str, list[Place]] = {}
        """The places of each value that has several."""
        self.txn_of: dict[str, str] = {}
        self.ends: dict[str, tuple[str, int]] = {}
        self.readers: dict[tuple[str, int], _Reader] = defaultdict(_Reader)
        self.skips: list[_Skip] = []
        self.group_rows: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.replicas: dict[int, tuple[int, tuple[int, str], int]] = {}
        self.commits = _Commits()

    def take(self, line: int, event: Event) -> None:
        kind = event["e"]
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(line, event)

    def tell(self, kind: str, what: str, lines: tuple[int, ...], *about: int | str) -> None:
        self.found.anomalies.append(Anomaly(kind, what, lines, about))

    # -- producers

    def _on_send(self, line: int, event: Event) -> None:
        self.found.sent += 1
        self.sends[event["v"]] = line
        if "x" in event:
            self.txn_of[event["v"]] = event["x"]

    def _on_ack(self, line: int, event: Event) -> None:
        value, offset = event["v"], event["o"]
        self.found.acked += 1
        self.acks[value] = ((event["p"], offset), line)
        if offset >= 0:
            self._occupies(line, (event["p"], offset), value)

    def _on_fail(self, line: int, event: Event) -> None:
        self.found.failed += 1
        if event["definite"]:
            self.failures[event["v"]] = line

    def _on_end(self, line: int, event: Event) -> None:
        self.found.transactions[event["how"]] += 1
        self.ends[event["x"]] = (event["how"], line)

    def _on_thrown(self, line: int, event: Event) -> None:
        self.tell("thrown off", f"{event['c']}: {event['why']}", (line,))

    def _on_stood_still(self, line: int, event: Event) -> None:
        self.found.stood_still.append(f"{event['c']}: {event['why']}")

    def _on_stuck(self, line: int, event: Event) -> None:
        self.tell("stuck", event["why"], (line,))

    def _occupies(self, line: int, place: Place, value: str) -> None:
        known = self.at.setdefault(place, (value, line))
        if known[0] != value:
            what = f"{place[0]}:{place[1]} holds {known[0]}, and {value}"
            lines = (known[1], line)
            self.tell("inconsistent offset", what, lines, place[1], value, known[0])

    # -- consumers

    def _on_assign(self, line: int, event: Event) -> None:
        for partition in event["p"]:
            self.readers[event["c"], partition] = _Reader(line=line)
            if "g" in event:
                self.commits.assigned(event["g"], partition, event["c"], line)

    def _on_poll(self, line: int, event: Event) -> None:
        client, partition, group = event["c"], event["p"], event.get("g")
        self.found.read[group or client] += len(event["rows"])
        reader = self.readers[client, partition]
        if group is not None and event["rows"]:
            self.commits.began(group, partition, client, event["rows"][0][0], line)
            self.group_rows[group, partition].update(row[0] for row in event["rows"])
        for offset, value in event["rows"]:
            self._given(line, (partition, offset), value)
            last = reader.last
            if last is not None and offset <= last:
                what = f"{client} was given {partition}:{offset} after {partition}:{last}"
                self.tell("non-monotonic poll", what, (reader.line, line), offset, last)
            elif last is not None and offset > last + 1:
                skip = _Skip(client, partition, last, offset, (reader.line, line))
                self.skips.append(skip)
            reader.last, reader.line = offset, line

    def _given(self, line: int, place: Place, value: str) -> None:
        self._occupies(line, place, value)
        if value not in self.seen:
            self.seen[value] = line
            if value.startswith(TORN):
                what = f"{place[0]}:{place[1]} holds bytes that nobody sent: {value[1:]!r}"
                self.tell("torn read", what, (line,), place[1])
            elif value not in self.sends:
                what = f"{place[0]}:{place[1]} holds {value}, which nobody sent"
                self.tell("torn read", what, (line,), place[1])

    def _on_commit(self, line: int, event: Event) -> None:
        self.found.commits += 1
        self.commits.committed(line, event)

    def _on_replica(self, line: int, event: Event) -> None:
        holds = (event["bytes"], event["sha"])
        first = self.replicas.setdefault(event["p"], (event["b"], holds, line))
        if first[1] != holds:
            what = f"brokers {first[0]} and {event['b']} hold {event['p']} with other bytes"
            self.tell("divergent replicas", what, (first[2], line))

    def _on_final(self, line: int, event: Event) -> None:
        partition = event["p"]
        self.final[partition] = [row[0] for row in event["rows"]]
        if partition >= TRANSACTED_FROM:
            self.values[partition] = ([row[1] for row in event["rows"]], line)
        self.found.read["final"] += len(event["rows"])
        order: dict[str, tuple[int, str]] = {}
        for offset, value in event["rows"]:
            self._given(line, (partition, offset), value)
            twin = self.log.get(value)
            if twin is not None:
                (other, at), there = twin
                what = f"{value} is at {other}:{at} and at {partition}:{offset}"
                self.tell("duplicate", what, (there, line), at, offset)
                self.copies.setdefault(value, [twin[0]]).append((partition, offset))
                continue
            self.log[value] = ((partition, offset), line)
            self._in_order(line, partition, offset, value, order)

    def _in_order(
        self, line: int, partition: int, offset: int, value: str, order: dict[str, tuple[int, str]]
    ) -> None:
        sent = self.sends.get(value)
        if sent is None:
            return
        producer = value.split(":", 1)[0]
        last = order.get(producer)
        if last is not None and sent < last[0]:
            what = f"{value} at {partition}:{offset} stands after {last[1]}, but was sent before it"
            self.tell("reordered", what, (sent, last[0], line), value, last[1])
            return
        order[producer] = (sent, value)

    # -- the end

    def conclude(self) -> None:
        for value, (place, line) in self.acks.items():
            txn = self.txn_of.get(value)
            is_promised = txn is None or self.ends.get(txn, ("",))[0] == "commit"
            if is_promised and value not in self.log and place[0] in self.final:
                what = f"{value}, acknowledged at {place[0]}:{place[1]}, is not in the log"
                self.tell("lost write", what, (self.sends.get(value, line), line), value)
            self._stands_where_acked(value, place, line)
        for value, line in self.seen.items():
            if value not in self.log and value not in self.acks and self.final:
                self.tell("vanished read", f"{value} was read, and is gone", (line,), value)
        for value, line in self.failures.items():
            if value in self.seen:
                lines = (line, self.seen[value])
                self.tell("aborted read", f"{value} failed, and was read", lines, value)
        self._transactions()
        self._copies()
        self._skipped()
        self.found.anomalies += self.commits.lost(self.final)

    def _stands_where_acked(self, value: str, place: Place, line: int) -> None:
        there = self.log.get(value)
        if there is None or place[1] < 0 or place in self.copies.get(value, there[:1]):
            return
        offsets = self.final.get(place[0], [])
        at = bisect_left(offsets, place[1])
        if at < len(offsets) and offsets[at] == place[1]:
            return  # another value is at that offset: reported already
        where = f"{there[0][0]}:{there[0][1]}"
        what = f"{value} was acknowledged at {place[0]}:{place[1]}, and is at {where}"
        self.tell("inconsistent offset", what, (line, there[1]), place[1], value, there[0][1])

    def _transactions(self) -> None:
        members: dict[str, list[str]] = defaultdict(list)
        for value, txn in self.txn_of.items():
            members[txn].append(value)
        for txn, values in members.items():
            how, line = self.ends.get(txn, ("unknown", -1))
            read = [value for value in values if value in self.seen]
            there = [value for value in values if value in self.log]
            if how == "abort" and read:
                lines = (line, self.seen[read[0]])
                what = f"{read[0]} of the aborted transaction {txn} was read"
                self.tell("aborted read", what, lines, read[0])
            elif there and len(there) < len(values):
                gone = next(value for value in values if value not in self.log)
                lines = tuple(n for n in (line, self.log[there[0]][1], self.sends[gone]) if n >= 0)
                what = f"transaction {txn}: {there[0]} is in the log, {gone} is not"
                self.tell("torn transaction", what, lines, there[0], gone)

    def _copies(self) -> None:
        """The n-th copy is that of the n-th record."""
        for partition, (copies, line) in self.values.items():
            if partition < COPIED_FROM:
                continue
            source, there = self.values.get(partition - COPIED_FROM + TRANSACTED_FROM, ([], line))
            found = [copy.split(":", 2)[2] for copy in copies]
            if found != source:
                pairs = zip(found, source, strict=False)
                at = next(
                    (n for n, (a, b) in enumerate(pairs) if a != b), min(len(found), len(source))
                )
                what = (
                    f"{len(found)} copies of {len(source)} records of {partition - COPIED_FROM}; "
                    f"number {at} is of {found[at : at + 1]}, not of {source[at : at + 1]}"
                )
                about = (*found[at : at + 1], *source[at : at + 1])
                self.tell("wrong copy", what, (there, line), *about)

    def _skipped(self) -> None:
        for skip in self.skips:
            offsets = self.final.get(skip.partition, [])
            between = bisect_left(offsets, skip.after + 1)
            if between < len(offsets) and offsets[between] < skip.before:
                missed = offsets[between]
                where = f"from {skip.partition}:{skip.after} to {skip.partition}:{skip.before}"
                what = f"{skip.client} went {where}, past {missed}"
                self.tell("skipped by poll", what, skip.lines, skip.after, skip.before, missed)
        for (group, partition), given in self.group_rows.items():
            offsets = self.final.get(partition, [])
            end = max(given)
            missed_all = [o for o in offsets if o < end and o not in given]
            if missed_all:
                what = (
                    f"group {group} has read {partition} up to {end}, but {len(missed_all)} "
                    f"records were given to no member, the first is {partition}:{missed_all[0]}"
                )
                self.tell("skipped by group", what, (), missed_all[0])


class _Commits:
    """A group's commits of a partition, and the starts of its members."""

    def __init__(self) -> None:
        self._floor: dict[tuple[str, int], tuple[int, int]] = {}
        """The highest acknowledged commit and its line."""
        self._unknown: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._waiting: dict[tuple[str, int, str], tuple[int, int, int]] = {}
        self._starts: list[_Start] = []

    def committed(self, line: int, event: Event) -> None:
        key = (event["g"], event["p"])
        if not event["ok"]:
            self._unknown[key].append(event["o"])
        elif event["o"] > self._floor.get(key, (-1, -1))[0]:
            self._floor[key] = (event["o"], line)

    def assigned(self, group: str, partition: int, client: str, line: int) -> None:
        floor, proof = self._floor.get((group, partition), (0, -1))
        self._waiting[group, partition, client] = (floor, proof, line)

    def began(self, group: str, partition: int, client: str, offset: int, line: int) -> None:
        waiting = self._waiting.pop((group, partition, client), None)
        if waiting is not None and offset < waiting[0]:
            lines = (waiting[1], waiting[2], line)
            self._starts.append(_Start(group, partition, offset, waiting[0], lines))

    def lost(self, final: dict[int, list[int]]) -> list[Anomaly]:
        """Starts below an acknowledged commit. A commit of unknown outcome may have been applied
        late, so it excuses a start at its own offset."""
        anomalies = []
        for start in self._starts:
            offsets = final.get(start.partition, [])
            excused = set()
            for unknown in self._unknown[start.group, start.partition]:
                at = bisect_left(offsets, unknown)
                excused.add(offsets[at] if at < len(offsets) else unknown)
            if start.offset not in excused:
                what = (
                    f"group {start.group} went on at {start.partition}:{start.offset}, though a "
                    f"commit of {start.floor} was acknowledged before"
                )
                about = (start.offset, start.floor)
                anomalies.append(Anomaly("lost commit", what, start.lines, about))
        return anomalies
