"""Making the files of a new log, apart from the loop."""

from __future__ import annotations

from uuid import UUID

from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import PARTITION_METADATA
from headwater_broker.log.log_dir import DataDirectory
from headwater_broker.log.log_loader import LoadedLog, LoadRequest, LogLoader

Key = tuple[str, int]


class LogCreation:
    """The files of a new log, made by `run`: in any thread, as it touches nothing else."""

    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        key: Key,
        topic_id: UUID,
        metadata: bytes,
        request: LoadRequest,
    ) -> None:
        self.directory = directory
        self.key = key
        self.topic_id = topic_id
        self.request = request
        self.loaded: LoadedLog | None = None
        self.error: OSError | None = None
        self._files = files
        self._metadata = metadata

    def run(self) -> None:
        """Make the folder, its identity, its first segment; `error` holds what failed."""
        try:
            path = f"{self.request.folder}/{PARTITION_METADATA}"
            self._files.write_atomic(path, self._metadata)
            self.loaded = LogLoader(self._files, self.request).load()
        except OSError as e:
            self.error = e
