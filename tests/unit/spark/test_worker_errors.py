"""The error text that a Python worker of Spark sends to the JVM."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

import pytest
from pyspark.serializers import CloudPickleSerializer, read_int
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import handle_worker_exception

from headwater.errors import UsageError
from headwater_spark.source.data_source import HeadwaterDataSource
from headwater_spark.worker_errors import (
    HIDE_TRACEBACK,
    NotShippedError,
    while_pickled,
    without_traceback,
)


def worker_output(work: Callable[[], object]) -> str:
    """The text that the worker sends when `work` raises."""
    out = io.BytesIO()
    try:
        work()
    except (UsageError, NotShippedError, KeyError) as error:
        handle_worker_exception(error, out)
    out.seek(4)
    return out.read(read_int(out)).decode()


@without_traceback()
def refuse() -> None:
    raise UsageError("startingOfsets is no option: did you mean startingOffsets?")


@without_traceback()
def fail() -> None:
    raise KeyError("a bug of ours")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)


def test_a_headwater_error_is_one_line() -> None:
    line = "headwater.errors.UsageError: startingOfsets is no option: did you mean startingOffsets?"
    assert worker_output(refuse) == line + "\n"
    assert HIDE_TRACEBACK not in os.environ, "the next error must not be affected"


class Unshippable:
    """A writer whose topic is missing, which it learns when Spark pickles it."""

    def __getstate__(self) -> dict[str, object]:
        with while_pickled():
            raise UsageError("topic x does not exist: create it")


def test_an_error_while_spark_pickles_a_writer_keeps_its_text() -> None:
    text = worker_output(lambda: CloudPickleSerializer().dumps(Unshippable()))
    assert text == (
        "headwater_spark.worker_errors.NotShippedError: topic x does not exist: create it\n"
    )


def test_any_other_error_keeps_its_traceback() -> None:
    assert worker_output(fail).startswith("Traceback")


def test_an_unknown_option_is_a_headwater_error() -> None:
    source = HeadwaterDataSource({"subscribe": "t", "startingOfsets": "earliest"})
    text = worker_output(lambda: source.reader(StructType()))
    assert text.startswith("headwater.errors.UsageError: ") and text.count("\n") == 1
    assert "startingOffsets" in text


def test_a_stream_with_an_unknown_option_raises_at_its_first_call() -> None:
    source = HeadwaterDataSource({"kafka.bootstrap.servers": "b:1", "startingOfsets": "earliest"})
    reader = source.streamReader(StructType([StructField("value", BinaryType())]))
    for ask in (reader.initialOffset, reader.prepareForTriggerAvailableNow):  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="startingOffsets"):
            ask()
