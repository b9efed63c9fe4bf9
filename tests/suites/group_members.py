"""Members of groups as processes that speak one line protocol, whatever client they run.

A member of a consumer group gets BOOTSTRAP GROUP PROTOCOL TOPICS and NAME=VALUE pairs. PROTOCOL is
group.protocol; TOPICS are names with commas, or a pattern that begins with ^. It reads from the
earliest offset, commits what each poll gave, and prints one line for each thing, after the wall
time in milliseconds:

- `started`; `closed` after it was told to end by a byte on its standard input, and has left;
- `assigned T:P ...`, `revoked T:P ...`, `lost T:P ...`: what came and went, as listeners are told;
- `record T P OFFSET VALUE` before the commit; `refused WHY` for a commit that was refused.

With `out=TOPIC id=ID` it copies into a topic instead, its offsets in the same transactions.
`instance=` is group.instance.id, `assignor=` is group.remote.assignor.

A member of a share group gets BOOTSTRAP GROUP MODE TOPICS; MODE is share.acknowledgement.mode. It
prints `record T P OFFSET VALUE DELIVERIES`, and in explicit mode acknowledges by the word before
the dash: "accept"; "release" at the first delivery; "reject"; "poison" is released always; "renew"
is renewed for 8 s, then accepted; "hold" is accepted, at its first delivery after 8 s. It prints
`acked T P [OFFSET]`, or `refused T P ...`, when it is told so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from peers import ROOT

from suites import java_programs, parts
from suites.killing import wait_until

CONSUMER = "consumer"
CLASSIC = "classic"
END_S = 30.0
SETTLED_S = 60.0
SHOWN_CHARACTERS = 1_500

Command = Callable[[], tuple[Sequence[str], Mapping[str, str]]]
"""The words before a member's arguments, and its environment."""


class Record(NamedTuple):
    """A record that a member was given."""

    topic: str
    partition: int
    offset: int
    value: str
    deliveries: int = 1


class Span(NamedTuple):
    """From when until when (ms) a member owned a partition; None: it still does."""

    partition: str
    since: int
    until: int | None


class Member:
    """One process. Killed at the exit, if it still runs."""

    def __init__(self, command: Command, *arguments: str, **options: str) -> None:
        words, environment = command()
        given = [*arguments, *(f"{name}={value}" for name, value in options.items())]
        self._process = subprocess.Popen(
            [*words, *given],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.owned: set[str] = set()
        self.changes = 0
        self.records: list[Record] = []
        self.acked: list[tuple[str, ...]] = []
        self.refused = 0
        self._spans: dict[str, int] = {}
        self._past: list[Span] = []
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None and hasattr(error, "add_note"):
            error.add_note(self.last_words())

    # -- what it prints

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, _, text = line.rstrip("\n").partition(" ")
            what, _, rest = text.partition(" ")
            if what == "assigned":
                self._own(set(rest.split()), int(at))
            elif what in ("revoked", "lost"):
                self._disown(set(rest.split()), int(at))
            elif what == "record":
                topic, partition, offset, value, *deliveries = rest.split(" ")
                row = Record(topic, int(partition), int(offset), value, *map(int, deliveries))
                self.records.append(row)
            elif what == "acked":
                self.acked.append(tuple(rest.split(" ")))
            elif what == "refused":
                self.refused += 1
            self.lines.append(line.rstrip("\n"))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(line for line in self._process.stderr)

    def _own(self, names: set[str], at: int) -> None:
        for name in names - self.owned:
            self._spans[name] = at
        self.changes += bool(names)
        self.owned |= names

    def _disown(self, names: set[str], at: int) -> None:
        for name in names & self.owned:
            self._past.append(Span(name, self._spans.pop(name), at))
        self.changes += bool(names)
        self.owned -= names

    def spans(self) -> list[Span]:
        """When it owned what."""
        return [*self._past, *(Span(name, since, None) for name, since in self._spans.items())]

    def values(self) -> set[str]:
        """The values of its records."""
        return {record.value for record in self.records}

    def last_words(self) -> str:
        """The end of its output."""
        told = "\n".join(line for line in self.lines if " record " not in line)
        errors = "".join(self.errors)
        return f"{self._process.args}\n{told[-SHOWN_CHARACTERS:]}\n{errors[-SHOWN_CHARACTERS:]}"

    # -- its life

    def check(self) -> None:
        """Raises AssertionError when it has ended by itself."""
        code = self._process.poll()
        assert code is None, f"ended with {code}: {self.last_words()}"

    def close(self) -> None:
        """Let it leave its group and end."""
        assert self._process.stdin is not None
        self.check()
        self._process.stdin.close()
        code = self._process.wait(END_S)
        self._ended()
        assert code == 0, f"ended with {code}: {self.last_words()}"

    def kill(self) -> None:
        """SIGKILL: its group is not told."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._ended()

    def _ended(self) -> None:
        for thread in self._threads:
            thread.join(END_S)
        self._disown(set(self.owned), time.time_ns() // 1_000_000)

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)


def settle(members: Sequence[Member], wanted: set[str], within_s: float = SETTLED_S) -> float:
    """Wait until these members own these partitions, each one once, no more than one apart."""

    def holds() -> bool:
        for member in members:
            member.check()
        counts = [len(member.owned) for member in members]
        owned = set().union(*(member.owned for member in members))
        is_fair = max(counts) - min(counts) <= 1
        return owned == wanted and sum(counts) == len(wanted) and is_fair

    began = time.monotonic()
    try:
        wait_until(holds, f"{len(members)} members settle", within_s)
    except AssertionError as error:
        error.add_note(str([sorted(member.owned) for member in members]))
        raise
    return time.monotonic() - began


def check_owned_once(members: Sequence[Member]) -> None:
    """Raises AssertionError when two members owned a partition at one time."""
    spans = [(span, number) for number, member in enumerate(members) for span in member.spans()]
    for one, of in spans:
        for other, whose in spans:
            if of >= whose or one.partition != other.partition:
                continue
            first, second = sorted((one, other), key=lambda span: span.since)
            assert first.until is not None and first.until <= second.since, (first, second)


# The clients.


def _python(client: str, kind: str) -> Command:
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT / "bench")))}
    return lambda: ((sys.executable, "-m", "suites.python_members", client, kind), paths)


def _java(main: str) -> Command:
    def command() -> tuple[Sequence[str], Mapping[str, str]]:
        jars = parts.kafka_jars()
        compiled = java_programs.classes(parts.PROGRAMS / "groups_java", jars)
        return java_programs.java(f"{compiled}:{jars}", main), {}

    return command


def _franz(kind: str) -> Command:
    built: list[Path] = []

    def command() -> tuple[Sequence[str], Mapping[str, str]]:
        if not built:
            built.append(parts.go_program("franz_groups"))
        return (str(built[0]), kind), {}

    return command


GROUP_MEMBERS: Mapping[str, Command] = {
    "Headwater's SDK": _python("sdk", "group"),
    "confluent-kafka": _python("confluent", "group"),
    "Java": _java("GroupMember"),
    "franz-go": _franz("group"),
}
SHARE_MEMBERS: Mapping[str, Command] = {
    "confluent-kafka": _python("confluent", "share"),
    "Java": _java("ShareMember"),
    "franz-go": _franz("share"),
}
