"""The live service: watch-list and statistics on the stream itself, a report per event.

    python -m city.live --bootstrap-server 127.0.0.1:9092

Instructions are taken while it runs. It prints a JSON line once it follows the topics, and another
with its figures when it ends, at SIGTERM or when its stdin closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from city.fields import (
    FACES,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    VEHICLES,
    WATCH_INSTRUCTIONS,
)
from city.instructions import Instruction, StopInstruction, parse_instruction
from city.live_desk import LiveDesk, Place, Report
from city.logins import login_of
from city.sightings import sighting_of
from city.whole_topics import partitions_of, read_to_end
from headwater import Consumer, ConsumerRecord, Producer, TopicPartition
from headwater.cli.main import run_command
from headwater.client.security_options import SecurityOptions
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemClock

DATA = (VEHICLES, FACES)
INSTRUCTIONS = (WATCH_INSTRUCTIONS, STATISTICS_INSTRUCTIONS)
POLL_MS = 20
COUNTS_EVERY_S = 0.25
READ_TIMEOUT_S = 30.0


@dataclass
class LiveService:
    """Reads instructions and data, and reports; `run` until `stopping` is set."""

    servers: str
    login: SecurityOptions
    clock: Clock
    desk: LiveDesk = field(default_factory=LiveDesk)
    stopping: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)
    records: int = 0
    refused: list[str] = field(default_factory=list)
    """Why instructions were not taken."""

    def run(self) -> None:
        """Follow the topics until `stopping`; then report what is left to report."""
        with (
            self._consumer("city-live-data", "latest") as data,
            self._consumer("city-live-instructions", "earliest") as instructions,
            Producer(self.servers, client_id="city-live", linger_ms=0, **self.login) as producer,
        ):
            self._recall(instructions)
            self._begin(data, instructions, producer)
            self.ready.set()
            counted_s = self.clock.monotonic()
            while not self.stopping.is_set():
                self._take(data, instructions, producer)
                self._see(data, producer)
                if self.clock.monotonic() - counted_s >= COUNTS_EVERY_S:
                    counted_s = self.clock.monotonic()
                    _send(producer, self.desk.changed_counts())
            self._drain(data, producer)
            _send(producer, self.desk.changed_counts())
            producer.flush(READ_TIMEOUT_S)

    def _consumer(self, client_id: str, reset: str) -> Consumer:
        return Consumer(
            bootstrap_servers=self.servers,
            client_id=client_id,
            auto_offset_reset=reset,  # type: ignore[arg-type]
            max_poll_records=2_000,
            **self.login,
        )

    def _recall(self, reader: Consumer) -> None:
        """Read what an earlier run has reported."""
        for record in read_to_end(reader, (TRACKS, STATISTICS), self.clock):
            self.desk.remember(record.value)

    def _begin(self, data: Consumer, instructions: Consumer, producer: Producer) -> None:
        """Go to the end of the data, take the instructions so far, go back to the first of them."""
        parts = partitions_of(data, DATA)
        data.assign(parts)
        ends = data.end_offsets(parts)
        for part in parts:
            data.seek(part, ends[part])
        asked = partitions_of(instructions, INSTRUCTIONS)
        instructions.assign(asked)
        instructions.seek_to_beginning(*asked)
        until = instructions.end_offsets(asked)
        while any(instructions.position(part) < until[part] for part in asked):
            self._take(data, instructions, producer, wait_ms=POLL_MS, recalled=True)
        for (topic, partition), offset in self.desk.first_positions().items():
            data.seek(TopicPartition(topic, partition), offset)

    def _take(
        self,
        data: Consumer,
        instructions: Consumer,
        producer: Producer,
        wait_ms: float = 0,
        *,
        recalled: bool = False,
    ) -> None:
        for records in instructions.poll(wait_ms).values():
            for record in records:
                try:
                    instruction = parse_instruction(record.value)
                except UsageError as e:
                    self.refused.append(f"{record.topic} offset {record.offset}: {e}")
                    continue
                start = self._start(data, instruction, recalled)
                _send(producer, self.desk.take(instruction, start, recalled=recalled))

    def _start(self, data: Consumer, instruction: Instruction, recalled: bool) -> dict[Place, int]:
        """Where the data is read now, or where it stood at the instruction's time: then the
        service goes back there."""
        now = {tp: data.position(tp) for tp in data.assignment()}
        since_ms = None if isinstance(instruction, StopInstruction) else instruction.since_ms
        is_known = recalled and instruction.instruction_id in self.desk.taken
        if since_ms is not None and not is_known:
            found = data.offsets_for_times(dict.fromkeys(now, since_ms))
            for tp, at in found.items():
                if at is not None and at.offset < now[tp]:
                    now[tp] = at.offset
                    data.seek(tp, at.offset)
        return {(tp.topic, tp.partition): offset for tp, offset in now.items()}

    def _see(self, data: Consumer, producer: Producer, wait_ms: float = POLL_MS) -> int:
        found = data.poll(wait_ms)
        for part, records in found.items():
            place = (part.topic, part.partition)
            for record in records:
                self._see_one(record, place, producer)
        return sum(map(len, found.values()))

    def _see_one(self, record: ConsumerRecord, place: Place, producer: Producer) -> None:
        self.records += 1
        sighting = sighting_of(record.topic, record.value)
        if sighting is not None:
            _send(producer, self.desk.see(sighting, place, record.offset, record.timestamp))

    def _drain(self, data: Consumer, producer: Producer) -> None:
        """Read to the end that the topics have now."""
        parts = data.assignment()
        ends = data.end_offsets(parts)
        deadline_s = self.clock.monotonic() + READ_TIMEOUT_S
        while any(data.position(part) < ends[part] for part in parts):
            self._see(data, producer)
            if self.clock.monotonic() > deadline_s:
                break

    def summary(self) -> dict[str, object]:
        """What it has done."""
        return {
            "records": self.records,
            "points": len(self.desk.reported),
            "active": self.desk.active,
            "refused": self.refused,
        }


def _send(producer: Producer, reports: Iterable[Report]) -> None:
    for topic, key, value in reports:
        producer.send(topic, value, key=key)


@click.command("live")
@click.option("--bootstrap-server", "servers", required=True, help="HOST:PORT,...")
@click.option("--command-config", "login", type=click.Path(path_type=Path), help="The login.")
def live(servers: str, login: Path | None) -> int:
    """Run the live service until SIGTERM, or until stdin ends."""
    service = LiveService(servers, login_of(login), SystemClock())
    signal.signal(signal.SIGTERM, lambda *_: service.stopping.set())
    threading.Thread(target=_stop_at_end_of_stdin, args=(service.stopping,), daemon=True).start()
    threading.Thread(target=_tell_ready, args=(service.ready,), daemon=True).start()
    service.run()
    print(json.dumps(service.summary()), flush=True)
    return 0


def _stop_at_end_of_stdin(stopping: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass  # nothing is asked of the service there
    stopping.set()


def _tell_ready(ready: threading.Event) -> None:
    ready.wait()
    print(json.dumps({"ready": True}), flush=True)


if __name__ == "__main__":
    sys.exit(run_command(live))
