"""One topic: its partitions hot and cold, who reads it, and what changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.admin.client import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED
from headwater.client.values import (
    ConfigEntry,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import KafkaError
from headwater_gateway.console import shown
from headwater_gateway.console.lag.sampler import BRIEF_WAIT_S, WAIT_S
from headwater_gateway.console.lag.throttles import sizes_of
from headwater_gateway.console.lag.window import PartitionLag
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.views import topic_producers
from headwater_gateway.console.views.topic_writes import TopicWrites

TIERED = "remote.storage.enable"
SHOWN_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas")


class PartitionRow(NamedTuple):
    """A partition with the bounds of its log."""

    partition: PartitionDescription
    start: int | None
    local_start: int | None
    """Where the brokers' own log begins: what is below is cold."""
    tiered_end: int | None
    """Up to where the Delta table has it; None: nothing, or not known."""
    end: int | None
    size: int | None

    @property
    def records(self) -> int | None:
        """Offsets between the log's bounds; with transactions or compaction fewer records."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def cold(self) -> int:
        """Offsets that only the Delta table has."""
        if self.start is None or self.local_start is None:
            return 0
        return max(0, self.local_start - self.start)

    @property
    def both(self) -> int:
        """Offsets that the brokers and the table have."""
        if self.tiered_end is None or self.local_start is None or self.start is None:
            return 0
        return max(0, self.tiered_end - max(self.local_start, self.start))

    @property
    def hot(self) -> int:
        """Offsets that only the brokers have."""
        return max(0, (self.records or 0) - self.cold - self.both)

    @property
    def bar(self) -> tuple[float, float, float]:
        """Cold, both and hot in percent."""
        total = max(1, self.cold + self.both + self.hot)
        return 100 * self.cold / total, 100 * self.both / total, 100 * self.hot / total


class Reader(NamedTuple):
    """A group that reads the topic."""

    group: str
    partitions: list[PartitionLag]

    @property
    def lag(self) -> int:
        """Of the topic's partitions."""
        return sum(row.now.lag for row in self.partitions)

    @property
    def finding(self) -> Any:
        """The worst of the partitions."""
        return min((row.finding for row in self.partitions), key=lambda f: f.verdict)


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""
    page = TopicPage(shell)
    writes = TopicWrites(shell)
    return [
        shell.view("/topics/{topic}", page.show),
        shell.view("/topics/{topic}/readers", page.readers),
        topic_producers.route(shell),
        *writes.routes(),
    ]


class TopicPage:
    """The pages of one topic."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show(self, request: Request) -> Response:
        """The partitions."""
        name = request.path_params["topic"]
        admin = self._shell.clients(request).admin
        described, known, moving = await asyncio.gather(
            admin.describe_topics([name], patient=False),
            unless_refused(admin.describe_configs("topic", name, patient=False)),
            unless_refused(admin.list_partition_reassignments()),
        )
        topic: TopicDescription = described[name]
        configs: Mapping[str, ConfigEntry] = known or {}
        is_tiered = TIERED in configs and configs[TIERED].value == "true"
        rows, readers = await asyncio.gather(
            self._rows(request, admin, topic, is_tiered=is_tiered),
            self._readers(request, name, BRIEF_WAIT_S),
        )
        return self._shell.page(
            request,
            "topic.html",
            topic=topic,
            rows=rows,
            readers=readers,
            configs=[configs[key] for key in SHOWN_CONFIGS if key in configs],
            shown_config=shown_config,
            is_tiered=is_tiered,
            moving={tp.partition: m for tp, m in (moving or {}).items() if tp.topic == name},
        )

    async def readers(self, request: Request) -> Response:
        """The groups that read it."""
        name = request.path_params["topic"]
        admin = self._shell.clients(request).admin
        await admin.describe_topics([name], patient=False)
        readers = await self._readers(request, name)
        return self._shell.page(request, "topic_readers.html", name=name, readers=readers)

    async def _readers(self, request: Request, name: str, wait_s: float = WAIT_S) -> list[Reader]:
        samples = await self._shell.sampler.of(request.state.login, wait_s=wait_s)
        found = []
        for group, window in sorted(samples.windows.items()):
            rows = [row for row in window.partitions() if row.partition.topic == name]
            if rows:
                found.append(Reader(group, rows))
        return found

    async def _rows(
        self, request: Request, admin: Any, topic: TopicDescription, *, is_tiered: bool
    ) -> list[PartitionRow]:
        led = [TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader >= 0]
        special = [EARLIEST, LATEST, *([EARLIEST_LOCAL, LATEST_TIERED] if is_tiered else [])]
        log_dirs, *found = await asyncio.gather(
            self._shell.snapshots.get((request.state.login, "log dirs"), admin.describe_log_dirs),
            *(unless_refused(admin.list_offsets(dict.fromkeys(led, at))) for at in special),
        )
        starts, ends, local, tiered = (*found, None, None)[:4]
        sizes = None if log_dirs is None else sizes_of(log_dirs)
        rows = []
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            last = _offset(tiered, tp)
            rows.append(
                PartitionRow(
                    partition,
                    _offset(starts, tp),
                    _offset(local, tp),
                    None if last is None else last + 1,
                    _offset(ends, tp),
                    None if sizes is None else sizes.get(tp),
                )
            )
        return rows


def shown_config(entry: ConfigEntry) -> str:
    """A config's value for people: times and sizes in words."""
    value = entry.value or ""
    if entry.config_type in ("int", "long") and value.lstrip("-").isdigit():
        number = int(value)
        if entry.name.endswith((".ms", ".bytes")) and number < 0:
            return "no limit" if number == -1 else value
        if entry.name.endswith(".ms"):
            return shown.duration(number / 1000)
        if entry.name.endswith(".bytes"):
            return shown.size(number)
    return value


def _offset(found: Mapping[TopicPartition, Any] | None, tp: TopicPartition) -> int | None:
    if found is None or tp not in found or found[tp].offset < 0:
        return None
    return int(found[tp].offset)


async def unless_refused(work: Any) -> Any:
    """The answer; None where the brokers refuse it, so that the rest of the page still shows."""
    try:
        return await work
    except KafkaError:
        return None
