"""A consumer decodes with numpy once it has read many records."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.client.record_decoding import RECORDS_BEFORE, RecordDecoding
from headwater.records.batch import HEADER_BYTES, BatchHeader, read_header
from headwater.records.builder import BatchBuilder
from headwater.records.record import decode_columns


def batch(count: int) -> tuple[bytes, BatchHeader]:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(number, None, b"v%d" % number)
    data = bytes(builder.build(base_offset=50))
    return data[HEADER_BYTES:], read_header(data)


def test_what_is_read_is_the_same_before_and_after_numpy_is_loaded() -> None:
    payload, header = batch(500)
    decoding = RecordDecoding()
    before = decoding(payload, header, 60)
    decoding.load()
    assert decoding(payload, header, 60) == before == decode_columns(payload, header, 60)


def test_numpy_is_loaded_once_and_only_for_many_records() -> None:
    story: list[str] = []
    payload, header = batch(RECORDS_BEFORE // 2)

    def start(work: Callable[[], None]) -> Callable[[], bool]:
        story.append("started")
        work()
        return lambda: False

    decoding = RecordDecoding(start)
    decoding(payload, header, 0)
    assert story == []
    for _ in range(3):
        decoding(payload, header, 0)
    assert story == ["started"]


def test_without_a_thread_the_loop_goes_on_decoding() -> None:
    payload, header = batch(RECORDS_BEFORE)

    def start(_work: Callable[[], None]) -> Callable[[], bool]:
        raise RuntimeError("can't start new thread")

    decoding = RecordDecoding(start)
    for _ in range(2):
        assert decoding(payload, header, 0) == decode_columns(payload, header, 0)
    assert not decoding.is_loading()


def test_the_thread_that_loads_numpy_ends() -> None:
    payload, header = batch(RECORDS_BEFORE)
    decoding = RecordDecoding()
    decoding(payload, header, 0)
    for thread in threading.enumerate():
        if thread.name == "headwater-decoder":
            thread.join()
    assert not decoding.is_loading()
