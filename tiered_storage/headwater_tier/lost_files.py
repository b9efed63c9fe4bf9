"""Live files of a log table that do not exist: a foreign VACUUM, a lifecycle rule, a deletion by
hand, or a commit that added a file nobody wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from posixpath import dirname

from pyarrow import fs

from headwater_tier.delta import TableAccessError, filesystem
from headwater_tier.live_files import LiveFile
from headwater_tier.table_names import TableLocation

SHOWN_MAX = 3


def lost_files(location: TableLocation, live: Iterable[LiveFile]) -> list[LiveFile]:
    """Those of the files that do not exist, by one listing of each folder. Raises
    TableAccessError."""
    by_folder: dict[str, list[LiveFile]] = {}
    for file in live:
        by_folder.setdefault(dirname(file.path), []).append(file)
    files = filesystem(location)
    lost = []
    for folder, wanted in by_folder.items():
        try:
            found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except OSError as error:
            raise TableAccessError(f"listing {location.uri} failed: {error}") from error
        there = {info.path for info in found if info.is_file}
        lost += [file for file in wanted if file.path not in there]
    return lost


def lost_files_problem(location: TableLocation, version: int, lost: Sequence[LiveFile]) -> str:
    """One line about lost files and their offsets; empty if there are none."""
    if not lost:
        return ""
    named = ", ".join(_named(file) for file in lost[:SHOWN_MAX])
    more = f" and {len(lost) - SHOWN_MAX} more" if len(lost) > SHOWN_MAX else ""
    return (
        f"log table {location.uri}, version {version}: its files {named}{more} do not exist: "
        "someone deleted them (VACUUM below 7 days, a lifecycle rule, by hand), or a foreign "
        "commit added them. Fetches of their offsets fail. Bring the files back; or remove them "
        "from the table (FSCK REPAIR), which loses their offsets, and run `headwater tier repair`."
    )


def _named(file: LiveFile) -> str:
    if file.min_partition is None or file.min_partition != file.max_partition:
        return file.path
    return (
        f"{file.path} (partition {file.min_partition}, offsets {file.min_offset} to "
        f"{file.max_offset})"
    )
