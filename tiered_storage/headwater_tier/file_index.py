"""Which files of a version may hold an offset, by statistics and without a look at each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from headwater_tier.live_files import LiveFiles
from headwater_tier.table_names import is_own_file

LARGEST = (1 << 63) - 1


class FileIndex:
    """The files of one version in the order of their smallest offset.

    Statistics are of all partitions in a file, so they only exclude. The bounds of a partition that
    is in all files rise with time: the file is found by halves. Where a fold spans a file that it
    left, the halves may miss it, and whoever asks looks at every file.
    """

    def __init__(self, files: LiveFiles) -> None:
        """An absent bound excludes nothing."""
        low = files.numbers("min.offset", 0)
        order = np.argsort(low, kind="stable")
        self._files = files
        self._order = order
        self._low = low[order]
        self._high = files.numbers("max.offset", LARGEST)[order]
        self._low_partition = files.numbers("min.partition", 0)[order]
        self._high_partition = files.numbers("max.partition", LARGEST)[order]

    def within(self, partition: int, start: int, end: int = LARGEST) -> Iterator[tuple[int, str]]:
        """(Smallest offset, path) of the files that may hold offsets in [start, end) of the
        partition, in that order."""
        for place in np.flatnonzero(self._has(partition, start, end)):
            yield int(self._low[place]), self._path(place)

    def own_at(self, partition: int, offset: int, side: Callable[[str], int | None]) -> str | None:
        """Headwater's file that holds the offset, or has it between its offsets; None without one.

        `side(path)` looks into a file: 0 if it holds the offset, negative if the offset is below
        its offsets of the partition, positive if above; None if that cannot be said.
        """
        places = np.flatnonzero(self._has(partition, offset, offset + 1))
        by_high = places[np.argsort(self._high[places], kind="stable")]
        return self._by_halves(by_high, side) or self._by_halves(places, side)

    def _by_halves(self, places: NDArray[np.intp], side: Callable[[str], int | None]) -> str | None:
        paths = [path for path in map(self._path, places) if is_own_file(path)]
        while paths:
            middle = len(paths) // 2
            found = side(paths[middle])
            if found == 0:
                return paths[middle]
            if found is None:
                del paths[middle]
            else:
                paths = paths[:middle] if found < 0 else paths[middle + 1 :]
        return None

    def _path(self, place: np.intp) -> str:
        return self._files.path(int(self._order[place]))

    def _has(self, partition: int, start: int, end: int) -> NDArray[np.bool_]:
        return (
            (self._low_partition <= partition)
            & (self._high_partition >= partition)
            & (self._high >= start)
            & (self._low < end)
        )
