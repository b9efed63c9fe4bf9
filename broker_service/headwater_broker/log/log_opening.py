"""Opens one log of a data folder, with what the folder's checkpoints say of it."""

from __future__ import annotations

from uuid import UUID

from headwater.clock import Clock
from headwater.ports.files import Files
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_context import LogContext
from headwater_broker.log.log_creation import Key
from headwater_broker.log.log_dir import NO_BROKER_EPOCH, DataDirectory
from headwater_broker.log.log_loader import LoadedLog, LoadRequest, LogLoader
from headwater_broker.log.unified_log import UnifiedLog


class LogOpener:
    """Of all data folders of a broker."""

    def __init__(self, files: Files, clock: Clock, context: LogContext) -> None:
        self._files = files
        self._clock = clock
        self._context = context

    def request(
        self, directory: DataDirectory, key: Key, config: LogConfig, folder: str
    ) -> LoadRequest:
        """How to load the log in `folder`."""
        return LoadRequest(
            folder,
            config,
            directory.recovery_points.get(key, 0),
            directory.log_starts.get(key, 0),
            directory.is_clean,
            self._clock.now_ms(),
        )

    def open(
        self, directory: DataDirectory, key: Key, topic_id: UUID, request: LoadRequest
    ) -> UnifiedLog:
        """Load and recover the log. Raises OSError, KafkaError, UsageError."""
        loaded = LogLoader(self._files, request).load()
        if loaded.is_cut:
            directory.clean_epoch = NO_BROKER_EPOCH
        return self.log_of(directory, key, topic_id, request, loaded)

    def log_of(
        self,
        directory: DataDirectory,
        key: Key,
        topic_id: UUID,
        request: LoadRequest,
        loaded: LoadedLog,
    ) -> UnifiedLog:
        """The log over what was loaded."""
        log = UnifiedLog(
            self._context, key[0], topic_id, key[1], request.folder, directory.directory_id,
            request.config, loaded,
        )  # fmt: skip
        log.first_dirty_offset = min(directory.first_dirty.get(key, 0), log.log_end_offset)
        return log
