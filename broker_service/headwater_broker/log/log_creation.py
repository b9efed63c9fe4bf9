"""Creates the files of a new log, in any thread."""

from __future__ import annotations

from uuid import UUID

from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import PARTITION_METADATA
from headwater_broker.log.log_dir import DataDirectory
from headwater_broker.log.log_loader import LoadedLog, LoadRequest, LogLoader

Key = tuple[str, int]


class LogCreation:
    """A planned log. `run` creates its files, and touches nothing else."""

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
        """Create the folder, partition.metadata and the first segment; a failure sets `error`."""
        try:
            path = f"{self.request.folder}/{PARTITION_METADATA}"
            self._files.write_atomic(path, self._metadata)
            self.loaded = LogLoader(self._files, self.request).load()
        except OSError as e:
            self.error = e
