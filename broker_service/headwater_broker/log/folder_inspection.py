"""Inspects data folders before a broker opens them: their cluster id, and how many logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import META_PROPERTIES, decode_properties
from headwater_broker.log.log_dir import parse_folder_name


@dataclass(frozen=True, slots=True)
class FolderContent:
    """One data folder. `cluster_id` is None without a `meta.properties`."""

    path: str
    cluster_id: str | None
    logs: int


def inspect(files: Files, folders: Iterable[str]) -> tuple[FolderContent, ...]:
    """Look into these folders, change nothing. A folder that cannot be read counts as empty: the
    broker reports its disk when it opens the folder."""
    return tuple(_inspect(files, folder) for folder in folders)


def _inspect(files: Files, folder: str) -> FolderContent:
    try:
        logs = sum(parse_folder_name(name) is not None for name in files.names(folder))
        found = decode_properties(files.read(f"{folder}/{META_PROPERTIES}"))
    except FileNotFoundError:
        return FolderContent(folder, None, logs)
    except OSError:
        return FolderContent(folder, None, 0)
    return FolderContent(folder, found.get("cluster.id"), logs)
