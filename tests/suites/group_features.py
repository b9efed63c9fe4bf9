"""The features of groups that every client is tried with, in both protocols: tables of clients.md.

    python -m suites.group_features              # against Headwater; writes the tables
    python -m suites.group_features --kafka      # against Apache Kafka; writes nothing
    python -m suites.group_features franz-go     # one client: writes its rows

What is tried with consumer groups, records coming in all the while where it says so:

- rebalance: three members join one by one, one leaves, one is killed. Each time the partitions are
  shared evenly; no two own one at one time; every record is read; what is committed was read.
- static: a member with an instance id ends and starts again within its session: it gets the same
  partitions, and the other one is told nothing.
- pattern: a topic that is created later is read, one of another name is not.
- assignors: `range` gives two topics' partitions of one number to one member (group.protocol
  `consumer`: by group.remote.assignor).
- move: from classic to consumer with both kinds of members at work, and back; offsets stay.
- exactly once: two members copy in transactions, one is killed, a third one comes: each record is
  copied once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from docs_pages import DOCS, table, with_block
from suites import judge, share_features
from suites.clusters import HEADWATER, KAFKA, create_topic, started
from suites.group_members import (
    CLASSIC,
    CONSUMER,
    GROUP_MEMBERS,
    Member,
    check_owned_once,
    settle,
)
from suites.killing import Feeder, wait_until
from suites.outcomes import WORKS, outcome

PAGE = DOCS / "clients.md"
BLOCK = "client-groups"
PARTITIONS = 6
RATE = 100.0
READ_S = 60.0
FEW = 200
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    **share_features.PROPERTIES,
}
"""Short times: the death of a member is waited for. Kafka has the same."""


class Trial(NamedTuple):
    """One client, protocol and feature: topics and groups have names of their own."""

    bootstrap: str
    client: str
    protocol: str
    name: str

    def topic(self, suffix: str = "in", partitions: int = PARTITIONS) -> str:
        """Create a topic."""
        return create_topic(self.bootstrap, f"{self.name}-{suffix}", partitions)

    def member(self, topics: str, protocol: str | None = None, **options: str) -> Member:
        """Start a member of the group."""
        command = GROUP_MEMBERS[self.client]
        chosen = protocol or self.protocol
        return Member(command, self.bootstrap, self.group, chosen, topics, **options)

    @property
    def group(self) -> str:
        """The group's id."""
        return f"{self.name}-group"

    @contextmanager
    def fed(self, topic: str, count: int | None = None) -> Iterator[Feeder]:
        """Numbers flow into all partitions; at the exit all are acknowledged."""

        def line(number: int) -> tuple[int, str]:
            return number % PARTITIONS, str(number)

        with Feeder(self.bootstrap, topic, line, RATE, count) as feeder:
            yield feeder


def _all(topic: str, partitions: int = PARTITIONS) -> set[str]:
    return {f"{topic}:{number}" for number in range(partitions)}


def _read_all(members: list[Member], count: int) -> None:
    """Every number was read by one of these."""
    wanted = {str(number) for number in range(count)}

    def missing() -> set[str]:
        return wanted - set().union(*(member.values() for member in members))

    try:
        wait_until(lambda: not missing(), "every record is read", READ_S)
    except AssertionError as error:
        error.add_note(f"{len(missing())} of {count} are missing: {sorted(missing())[:9]}")
        raise


def _check_committed(trial: Trial, topic: str, members: list[Member], ends: bool = True) -> None:
    """What is committed was read; `ends`: everything is."""
    committed = judge.committed_offsets(trial.bootstrap, trial.group, topic)
    for partition, offset in committed.items():
        rows = {r.offset for m in members for r in m.records if r[:2] == (topic, partition)}
        assert set(range(offset)) <= rows, f"{topic}-{partition}: {offset} is committed"
    if ends:
        assert committed == judge.watermarks(trial.bootstrap, topic)


def rebalance(trial: Trial) -> None:
    """Join, leave, kill -9 while records come."""
    topic = trial.topic()
    wanted = _all(topic)
    with ExitStack() as stack, trial.fed(topic) as feeder:
        first, second = (stack.enter_context(trial.member(topic)) for _ in range(2))
        settle([first, second], wanted)
        third = stack.enter_context(trial.member(topic))
        settle([first, second, third], wanted)
        second.close()
        settle([first, third], wanted)
        third.kill()
        settle([first], wanted)
        feeder.stop()
        members = [first, second, third]
        _read_all(members, feeder.count)
        first.close()
        if trial.client != "Headwater's SDK":  # it has no listener: it tells late what it gave up
            check_owned_once(members)
        _check_committed(trial, topic, members)


def static(trial: Trial) -> None:
    """A static member restarts within its session."""
    topic = trial.topic()
    with ExitStack() as stack:
        first = stack.enter_context(trial.member(topic, instance="a"))
        second = stack.enter_context(trial.member(topic, instance="b"))
        settle([first, second], _all(topic))
        had, told = set(second.owned), first.changes
        # Killed, it would keep its instance id until its session ends (UNRELEASED_INSTANCE_ID).
        second.close() if trial.protocol == CONSUMER else second.kill()
        second = stack.enter_context(trial.member(topic, instance="b"))
        wait_until(lambda: second.owned == had, "it has its partitions again", READ_S)
        with trial.fed(topic, FEW) as feeder:
            feeder.join()
        _read_all([first, second], FEW)
        assert first.changes == told, f"the other member was told: {first.lines[-5:]}"
        assert first.owned == _all(topic) - had


def pattern(trial: Trial) -> None:
    """A topic that appears later."""
    early = trial.topic("log-early")
    trial.topic("other")
    with trial.member(f"^{trial.name}-log-.*") as member:
        settle([member], _all(early))
        late = trial.topic("log-late")
        settle([member], _all(early) | _all(late))
        with trial.fed(late, FEW) as feeder:
            feeder.join()
        _read_all([member], FEW)


def assignors(trial: Trial) -> None:
    """Range keeps partitions of one number together."""
    topics = [trial.topic(suffix, PARTITIONS) for suffix in ("left", "right")]
    wanted = _all(topics[0]) | _all(topics[1])
    with ExitStack() as stack:
        options = {"assignor": "range"} if trial.protocol == CONSUMER else {}
        members = [stack.enter_context(trial.member(",".join(topics), **options)) for _ in range(2)]
        settle(members, wanted)
        for member in members:
            numbers = [{n.split(":")[1] for n in member.owned if n.startswith(t)} for t in topics]
            assert numbers[0] == numbers[1], member.owned


def move(trial: Trial) -> None:
    """From classic to consumer, and back."""
    topic = trial.topic()
    wanted = _all(topic)
    with ExitStack() as stack, trial.fed(topic) as feeder:
        classic = stack.enter_context(trial.member(topic, CLASSIC))
        settle([classic], wanted)
        modern = stack.enter_context(trial.member(topic, CONSUMER))
        settle([classic, modern], wanted)
        classic.close()
        settle([modern], wanted)
        again = stack.enter_context(trial.member(topic, CLASSIC))
        settle([modern, again], wanted)
        modern.close()
        settle([again], wanted)
        feeder.stop()
        members = [classic, modern, again]
        _read_all(members, feeder.count)
        again.close()
        _check_committed(trial, topic, members)


def exactly_once(trial: Trial) -> None:
    """Consume, transform, produce, while members die and come."""
    topic, out = trial.topic(), trial.topic("out", 1)

    def copier(number: int) -> Member:
        return trial.member(topic, out=out, id=f"{trial.name}-{number}")

    with ExitStack() as stack, trial.fed(topic) as feeder:
        first, second = (stack.enter_context(copier(number)) for number in range(2))
        settle([first, second], _all(topic))
        wait_until(lambda: judge.watermarks(trial.bootstrap, out)[0] > FEW, "copies", READ_S)
        second.kill()
        third = stack.enter_context(copier(1))  # its id: it fences the dead one
        settle([first, third], _all(topic))
        feeder.stop()
        ends = judge.watermarks(trial.bootstrap, topic)

        def is_done() -> bool:
            return judge.committed_offsets(trial.bootstrap, trial.group, topic) == ends

        wait_until(is_done, "everything is copied", READ_S)
        first.close()
        third.close()
    copies = sorted(map(int, judge.values(trial.bootstrap, out)))
    assert copies == list(range(feeder.count))


FEATURES: Mapping[str, Callable[[Trial], None]] = {
    "rebalance": rebalance,
    "static": static,
    "pattern": pattern,
    "assignors": assignors,
    "move": move,
    "exactly once": exactly_once,
}
ROWS = [(client, protocol) for client in GROUP_MEMBERS for protocol in (CLASSIC, CONSUMER)]


def tried(protocol: str) -> list[str]:
    """The features that are tried in this protocol."""
    return [f for f in FEATURES if not (f == "move" and protocol == CLASSIC)]


def untried(protocol: str, feature: str) -> str:
    """The cell of what was not run."""
    return "not run" if feature in tried(protocol) else "-"


def run(bootstrap: str, client: str, protocol: str, feature: str) -> None:
    """Try one feature; raises when it does not work."""
    name = f"{feature.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
    FEATURES[feature](Trial(bootstrap, client, protocol, name))


def page_block(results: Mapping[tuple[str, str, str], str]) -> str:
    """The table; `results` by client, protocol and feature."""
    headings = ("client", "group.protocol", *FEATURES)
    rows = (
        (
            client,
            protocol,
            *(results.get((client, protocol, f), untried(protocol, f)) for f in FEATURES),
        )
        for client, protocol in ROWS
    )
    return table(headings, iter(rows))


def write(
    groups: Mapping[tuple[str, str, str], str], shares: Mapping[tuple[str, str], str]
) -> None:
    """Put these outcomes into the tables; what was not tried stays."""
    page = PAGE.read_text()
    known = {
        (client, protocol, feature): cell
        for client, protocol, *cells in rows_of(page, BLOCK)
        for feature, cell in zip(FEATURES, cells, strict=True)
    }
    page = with_block(page, BLOCK, page_block({**known, **groups}))
    told = {
        (client, feature): cell
        for client, *cells in rows_of(page, share_features.BLOCK)
        for feature, cell in zip(share_features.FEATURES, cells, strict=True)
    }
    told = {key: cell for key, cell in told.items() if key in share_features.TRIED}
    table_of_shares = share_features.page_block({**told, **shares})
    PAGE.write_text(with_block(page, share_features.BLOCK, table_of_shares))


def rows_of(page: str, name: str) -> list[list[str]]:
    """The cells of a table in the page, without its headings."""
    block = page.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]
    lines = [line for line in block.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def main(arguments: Iterable[str]) -> int:
    """Run all, or what is named; write what was tried against Headwater into the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka: writes nothing")
    parser.add_argument("--feature", action="append", help="these features only (repeatable)")
    parser.add_argument("--protocol", choices=(CLASSIC, CONSUMER, "share"))
    parser.add_argument("clients", nargs="*", choices=[*GROUP_MEMBERS, []], help="all without")
    options = parser.parse_args(list(arguments))
    clients = options.clients or list(GROUP_MEMBERS)
    groups: dict[tuple[str, str, str], str] = {}
    shares: dict[tuple[str, str], str] = {}

    def is_wanted(feature: str, protocol: str) -> bool:
        chosen = not options.feature or feature in options.feature
        return chosen and options.protocol in (None, protocol)

    with (
        tempfile.TemporaryDirectory(prefix="group-features-") as folder,
        started(KAFKA if options.kafka else HEADWATER, Path(folder), PROPERTIES) as cluster,
    ):
        for client, protocol in ROWS:
            for feature in tried(protocol) if client in clients else ():
                if is_wanted(feature, protocol):
                    found = outcome(lambda: run(cluster.bootstrap, client, protocol, feature))  # noqa: B023
                    groups[client, protocol, feature] = found
                    print(f"{client}: {protocol}: {feature}: {found}", flush=True)
        for client, feature in share_features.TRIED:
            if client in clients and is_wanted(feature, "share"):
                found = outcome(lambda: share_features.run(cluster, client, feature))  # noqa: B023
                shares[client, feature] = found
                print(f"{client}: share: {feature}: {found}", flush=True)
    if not options.kafka:
        write(groups, shares)
    return 0 if {*groups.values(), *shares.values()} == {WORKS} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
