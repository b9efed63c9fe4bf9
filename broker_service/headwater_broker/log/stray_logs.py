"""Folders of logs that must not be used, set aside as `<name>.<id>-stray` so that no data is lost.

The broker cannot know whether such a folder is still needed: a metadata store that was restored
from an older copy names the wrong topic id too. So a folder is deleted only when the controller
deletes this replica by its topic id. The controller repeats that until it is confirmed, even after
a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater.ordered import OrderedSet
from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import CheckpointError
from headwater_broker.log.future_logs import DELETE_SUFFIX, parse_future_name
from headwater_broker.log.log_context import RenamedFiles
from headwater_broker.log.log_creation import Key
from headwater_broker.log.log_dir import parse_folder_name, topic_id_in

STRAY_SUFFIX = "-stray"

logger = logging.getLogger(__name__)


def parse_stray_name(name: str) -> Key | None:
    """(topic, partition) of the log or future log that was set aside; None for other names."""
    if not name.endswith(STRAY_SUFFIX):
        return None
    stem = name[: -len(STRAY_SUFFIX)].rpartition(".")[0]
    future = parse_future_name(stem)
    return parse_folder_name(stem) if future is None else future[0]


class StrayLogs:
    """The stray logs of all data folders that are online."""

    def __init__(
        self, files: Files, entropy: Entropy, delete_later: Callable[[RenamedFiles], None]
    ) -> None:
        self._files = files
        self._entropy = entropy
        self._delete_later = delete_later
        self._paths: dict[Key, OrderedSet[str]] = {}

    def set_aside(self, folder: str, name: str, reason: str) -> None:
        """Rename a folder that must not be used. Raises OSError."""
        target = f"{name}.{self._entropy.uuid().hex}{STRAY_SUFFIX}"
        logger.warning("%s/%s set aside as %s: %s", folder, name, target, reason)
        self._files.rename(f"{folder}/{name}", f"{folder}/{target}")
        self.found(folder, target)

    def found(self, folder: str, name: str) -> None:
        """At start: note `name` in data folder `folder` if it is a stray log."""
        key = parse_stray_name(name)
        if key is not None:
            self._paths.setdefault(key, OrderedSet()).add(f"{folder}/{name}")

    def delete(self, key: Key, topic_id: UUID, delay_ms: int) -> None:
        """Delete the stray logs of a replica that the controller deletes, after `delay_ms`.

        A folder without a topic id stays. Raises OSError; the caller tries again.
        """
        for path in list(self._paths.get(key, ())):
            target = path.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX
            if topic_id not in (self._topic_id(path), self._topic_id(target)):
                continue
            logger.info("%s: its topic is deleted, so it is removed", path)
            try:
                self._files.rename(path, target)
            except FileNotFoundError:
                pass  # an earlier try has renamed it
            self._paths[key].discard(path)
            self._delete_later(RenamedFiles((target,), (), delay_ms))
        if not self._paths.get(key, True):
            del self._paths[key]

    def _topic_id(self, path: str) -> UUID | None:
        try:
            return topic_id_in(self._files, path)
        except (CheckpointError, UsageError):  # missing, damaged or of a newer version
            return None
