"""One data folder of log.dirs: lock, meta.properties, checkpoints, clean-shutdown mark."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ids import id_from_text, id_text
from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CheckpointError,
    Offsets,
    check_version,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_properties,
)
from headwater_broker.log.index import OUT_OF_DESCRIPTORS

logger = logging.getLogger(__name__)

META_VERSION = "1"
OLD_ID_KEY = "broker.id"
"""The key of the broker's id in meta.properties before version 1."""
MARK_VERSION = 0
NO_BROKER_EPOCH = -1


def is_disk_fault(path: str, error: OSError) -> bool:
    """Whether an error means that the disk failed. Lack of descriptors does not: open files still
    work."""
    if error.errno not in OUT_OF_DESCRIPTORS:
        return True
    logger.error("%s: %s: raise the limit of open files (ulimit -n)", path, error)
    return False


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of `<topic>-<partition>`, split at the last dash; None for others."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdecimal() or str(int(number)) != number:
        return None  # t-00, say, is not the log t-0
    return topic, int(number)


def topic_id_in(files: Files, folder: str) -> UUID:
    """The topic id of the log in `folder`. Raises CheckpointError when it has none."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(files.read(path), path)
    except FileNotFoundError:
        raise CheckpointError(f"there is no {PARTITION_METADATA}") from None


class DataDirectory:
    """A data folder of this broker.

    A disk error at start takes it offline. UsageError when it belongs to another broker or cluster,
    was written by a newer Headwater, or is in use by another process.
    """

    def __init__(
        self, files: Files, path: str, broker_id: int, cluster_id: str, entropy: Entropy
    ) -> None:
        self._files = files
        self.path = path
        self.directory_id = UUID(int=0)
        self.is_online = True
        self.is_clean = False
        self.clean_epoch = NO_BROKER_EPOCH
        self.recovery_points: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.log_starts: Offsets = {}
        self.first_dirty: Offsets = {}
        self.has_forgotten = False
        """A checkpoint file still has a log that `forget` was called for."""
        self._on_disk: dict[str, Offsets] = {}
        """The content of the checkpoint files."""
        self._lock: object | None = None
        try:
            self._open(broker_id, cluster_id, entropy)
        except OSError as e:
            logger.error("data folder %s cannot be used: %s", path, e)
            self.is_online = False

    def _open(self, broker_id: int, cluster_id: str, entropy: Entropy) -> None:
        self._lock = self._files.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise UsageError(
                f"data folder {self.path} is in use by another process (its {LOCK} is held); "
                "stop that one, or name another folder in log.dirs"
            )
        self._identify(broker_id, cluster_id, entropy)
        self._read_mark()
        self.recovery_points = self._read_offsets(RECOVERY_POINTS)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
        self.log_starts = self._read_offsets(LOG_STARTS)
        self.first_dirty = self._read_offsets(CLEANER_OFFSETS)

    def _identify(self, broker_id: int, cluster_id: str, entropy: Entropy) -> None:
        """Check meta.properties against this broker, or write it for a new folder.

        Version 1 is Kafka's: `node.id` and `cluster.id` are required. Version 0, and a version 1
        that an earlier Headwater wrote, name the broker `broker.id`; both are read, and rewritten.
        """
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            found = decode_properties(self._files.read(path))
        except FileNotFoundError:
            found = {}
        expected = {"node.id": str(broker_id), "cluster.id": cluster_id}
        for key, value in {**expected, OLD_ID_KEY: str(broker_id)}.items():
            if found.get(key, value) != value:
                raise UsageError(
                    f"data folder {self.path} belongs to {key} {found[key]}, this broker has "
                    f"{value}; name another folder in log.dirs, or start the right broker on it"
                )
        check_version(found.get("version", META_VERSION), int(META_VERSION), path)
        identity = found.get("directory.id") or id_text(entropy.uuid())
        try:
            self.directory_id = id_from_text(identity)
        except ValueError:
            raise UsageError(f"{path}: directory.id {identity!r} is not a UUID") from None
        complete = {**found, "version": META_VERSION, **expected, "directory.id": identity}
        complete.pop(OLD_ID_KEY, None)
        if found != complete:
            self._files.write_atomic(path, encode_properties(complete))

    def _read_mark(self) -> None:
        try:
            mark = json.loads(self._files.read(f"{self.path}/{CLEAN_SHUTDOWN}"))
        except FileNotFoundError:
            return
        except ValueError:
            logger.warning("%s/%s does not parse: unclean shutdown", self.path, CLEAN_SHUTDOWN)
            return
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if not isinstance(mark, dict):
            logger.warning("%s is no JSON object: unclean shutdown", path)
            return
        check_version(str(mark.get("version", MARK_VERSION)), MARK_VERSION, path)
        self.is_clean = True
        self.clean_epoch = int(mark.get("brokerEpoch", NO_BROKER_EPOCH))

    def _read_offsets(self, name: str) -> Offsets:
        path, found = f"{self.path}/{name}", Offsets()
        try:
            found = decode_offsets(self._files.read(path), path)
        except FileNotFoundError:
            pass
        except CheckpointError as e:
            logger.warning("%s/%s is ignored: %s", self.path, name, e)
            return found
        self._on_disk[name] = dict(found)
        return found

    def folder_names(self) -> list[str]:
        """The names of all files and folders in it."""
        return self._files.names(self.path)

    def forget_clean_stop(self) -> None:
        """Remove the clean-shutdown mark: a stop is unclean unless `close` writes it again."""
        mark = f"{self.path}/{CLEAN_SHUTDOWN}"
        try:  # a power failure may undo a removal, but not a rename that was fsynced
            self._files.rename(mark, f"{mark}.tmp")
        except FileNotFoundError:
            pass
        self._files.remove(f"{mark}.tmp")
        self.is_clean = False

    def forget(self, key: tuple[str, int]) -> None:
        """A log is deleted or created anew: its checkpointed offsets are void."""
        self.has_forgotten |= any(key in offsets for offsets in self._on_disk.values())
        for offsets in (
            self.recovery_points,
            self.high_watermarks,
            self.log_starts,
            self.first_dirty,
        ):
            offsets.pop(key, None)

    def has_checkpointed_start(self, key: tuple[str, int]) -> bool:
        """Whether a start would take the log start of a deleted log of that name for this log's."""
        return key in self._on_disk.get(LOG_STARTS, {}) and key not in self.log_starts

    def checkpoint(self, name: str, offsets: Offsets) -> None:
        """Write a checkpoint file, unless it has these offsets already. Raises OSError."""
        attribute = {
            RECOVERY_POINTS: "recovery_points",
            HIGH_WATERMARKS: "high_watermarks",
            LOG_STARTS: "log_starts",
            CLEANER_OFFSETS: "first_dirty",
        }[name]
        setattr(self, attribute, offsets)
        if self._on_disk.get(name) != offsets:
            self._files.write_atomic(f"{self.path}/{name}", encode_offsets(offsets))
            self._on_disk[name] = dict(offsets)

    def topic_id(self, name: str) -> UUID:
        """The topic id of the log in folder `name`. Raises CheckpointError when it has none."""
        return topic_id_in(self._files, f"{self.path}/{name}")

    def close(self, mark: bytes) -> None:
        """Write the clean-shutdown mark, unless offline, and release the lock."""
        if self.is_online:
            try:
                self._files.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", mark)
            except OSError as e:
                logger.error("data folder %s: no clean-shutdown mark: %s", self.path, e)
        self._lock = None


@contextmanager
def opening_logs(
    directory: DataDirectory, failed: Callable[[str, OSError], None]
) -> Iterator[None]:
    """While logs are opened, a disk that fails takes only its own folder offline.

    Lack of descriptors ends the start with a UsageError: the folder would stay online, and logs
    that could not be opened would be created again, empty and still in their ISRs.
    """
    try:
        yield
    except OSError as e:
        if e.errno in OUT_OF_DESCRIPTORS:
            raise UsageError(
                f"{directory.path}: not all logs can be opened: {e}; raise the limit of open files "
                "(ulimit -n)"
            ) from e
        failed(directory.path + "/", e)
    except KafkaError:  # from a log, which has called `failed` itself
        if directory.is_online:
            raise


def least_used(online: list[DataDirectory], logs: Iterable[str]) -> DataDirectory:
    """The data folder with the fewest of `logs`, given as paths of the logs' folders (B1-186).

    Raises KAFKA_STORAGE_ERROR when no folder is online.
    """
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every data folder is offline")
    if len(online) == 1:
        return online[0]
    folders = Counter(path.rpartition("/")[0] for path in logs)
    return min(online, key=lambda directory: folders[directory.path])
