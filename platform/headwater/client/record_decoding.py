"""A consumer's decoding: record by record at first, with numpy once it has read many."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.records.batch import BatchHeader
from headwater.records.record import ColumnsDecoder, RecordColumns, decode_columns

RECORDS_BEFORE = 2_000
"""A consumer that reads fewer records has no use for numpy, which takes a tenth of a second to
load."""


IsRunning = Callable[[], bool]
"""Whether what was started has not ended yet."""


def _on_a_thread(work: Callable[[], None]) -> IsRunning:
    """The caller's own thread may be that of an event loop."""
    thread = threading.Thread(target=work, name="headwater-decoder")
    thread.start()
    return thread.is_alive


def _has_ended() -> bool:
    return False


class RecordDecoding:
    """Decodes the batches of one consumer; a `ColumnsDecoder`."""

    def __init__(self, start: Callable[[Callable[[], None]], IsRunning] = _on_a_thread) -> None:
        """`start` runs what takes long, beside the caller. Raises RuntimeError if it cannot."""
        self._start = start
        self._decode: ColumnsDecoder = decode_columns
        self._left = RECORDS_BEFORE
        self.is_loading: IsRunning = _has_ended

    def __call__(self, data: bytes, header: BatchHeader, start_offset: int) -> RecordColumns:
        """See `headwater.records.record.decode_columns`."""
        if self._left > 0:
            self._left -= header.record_count
            if self._left <= 0:
                self._begin_to_load()
        return self._decode(data, header, start_offset)

    def _begin_to_load(self) -> None:
        try:
            self.is_loading = self._start(self.load)
        except RuntimeError:  # no more threads, or Python ends: the loop decodes as well
            return

    def load(self) -> None:
        """Decode with numpy from now on, if it is installed (the `arrow` extra)."""
        try:
            from headwater.columnar import record_columns  # noqa: PLC0415 - optional extra
        except ImportError:
            return
        self._decode = record_columns.decode_columns
