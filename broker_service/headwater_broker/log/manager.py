"""All logs of one broker (signatures first; bodies follow in the next commits)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.files import Files
from headwater_broker.log.config import LogConfig
from headwater_broker.log.partition_log import Offload, PartitionLog


class LogManager:
    """All logs of one broker."""

    logs: dict[tuple[str, int], PartitionLog]

    def __init__(
        self,
        files: Files,
        dirs: list[str],
        *,
        broker_id: int,
        cluster_id: str,
        clock: Clock,
        entropy: Entropy,
        broker_properties: Mapping[str, str],
        offload: Offload,
        high_watermarks: Callable[[PartitionLog], int] | None = None,
    ) -> None: ...
    @property
    def directory_ids(self) -> list[UUID]: ...
    def load_all(self, topic_config: Callable[[str], Mapping[str, str]]) -> None: ...
    def get(self, topic: str, partition: int) -> PartitionLog | None: ...
    def get_or_create(
        self, topic: str, topic_id: UUID, partition: int, config: LogConfig, *, is_new: bool
    ) -> PartitionLog: ...
    def delete(self, topic: str, partition: int) -> None: ...
    def high_watermark_checkpoint(self, topic: str, partition: int) -> int: ...
    def checkpoint_high_watermarks(self) -> None: ...
    def checkpoint_recovery_points(self) -> None: ...
    def checkpoint_log_starts(self) -> None: ...
    def flush_due(self) -> None: ...
    def retain_all(self, tiered_end: Callable[[PartitionLog], int | None]) -> int: ...
    def remove_due_files(self) -> None: ...
    def close(self, broker_epoch: int = -1) -> None: ...
