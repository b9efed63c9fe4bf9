"""Logs over memory files, and batches to feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from headwater.records.builder import BatchBuilder
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater.testing.memory_files import MemoryFiles
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.unified_log import UnifiedLog

TOPIC_ID = UUID(int=7)

Job = Callable[[], None]


def batch(
    count: int = 1,
    *,
    value: bytes = b"v" * 10,
    key: bytes | None = b"k",
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    builder = BatchBuilder()
    for i in range(count):
        builder.append(timestamp + i, key, value)
    return memoryview(
        builder.build(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


class Box:
    """One broker's disk: logs are opened, crashed and opened again on it."""

    def __init__(self, seed: int = 0, dirs: tuple[str, ...] = ("/d",)) -> None:
        self.entropy = SeededEntropy(seed)
        self.clock = ManualClock()
        self.files = MemoryFiles(self.entropy, self.clock)
        self.dirs = dirs
        self._held: list[Job] = []
        self._is_held = False
        self.open_manager()

    def open_manager(self, overrides: Mapping[str, str] | None = None) -> LogManager:
        self.manager = LogManager(
            self.files,
            list(self.dirs),
            broker_id=1,
            cluster_id="c",
            clock=self.clock,
            entropy=self.entropy,
            broker_properties={},
            offload=lambda job: self._held.append(job) if self._is_held else job(),
        )
        self.manager.load_all(lambda topic: overrides or {})
        return self.manager

    @contextmanager
    def jobs_held(self) -> Iterator[list[Job]]:
        """What is offloaded in here waits in the list for its turn; else it runs at once."""
        self._held, self._is_held = [], True
        yield self._held
        self._is_held = False

    def log(self, *, topic: str = "t", topic_id: UUID = TOPIC_ID, **overrides: str) -> UnifiedLog:
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        config = LogConfig.from_overrides(named)
        return self.manager.get_or_create(topic, topic_id, 0, config, is_new=True)

    def crash(self, tear: int | None = None) -> UnifiedLog:
        self.files.crash(tear=tear)
        self.open_manager()
        log = self.manager.get("t", 0)
        assert log is not None
        return log

    def restart(self) -> UnifiedLog:
        self.manager.close(5)
        self.open_manager()
        log = self.manager.get("t", 0)
        assert log is not None
        return log
