"""Lines of a module in its own file, and nowhere else."""

from __future__ import annotations

import io
import logging
import logging.handlers
import queue
from pathlib import Path

import pytest

from headwater.config.keys import broker_values
from headwater.config.log_files import log_files
from headwater.errors import UsageError
from headwater_broker.runtime.module_logs import write_apart


class Log:
    """A listener whose shared handler writes to memory."""

    def __init__(self) -> None:
        self.shared = io.StringIO()
        handler = logging.StreamHandler(self.shared)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        lines: queue.Queue[logging.LogRecord] = queue.Queue()
        self.listener = logging.handlers.QueueListener(lines, handler)

    def write(self, name: str, text: str) -> None:
        """A line of a logger, as the listener's thread takes it."""
        record = logging.LogRecord(name, logging.INFO, "", 0, text, None, None)
        self.listener.handle(record)


def test_a_modules_lines_go_to_its_file_alone(tmp_path: Path) -> None:
    log = Log()
    files = {"controller": tmp_path / "controller.log", "controller.liveness": tmp_path / "l.log"}
    write_apart(log.listener, {module: str(path) for module, path in files.items()})
    log.write("headwater_broker.controller", "elected")
    log.write("headwater_broker.controller.election", "began")
    log.write("headwater_broker.controller.liveness", "alive")
    log.write("headwater_broker.controllers", "another module")
    log.write("headwater_broker.log.cleaner", "cleaned")
    assert files["controller"].read_text().splitlines() == [
        "headwater_broker.controller: elected",
        "headwater_broker.controller.election: began",
    ]
    assert files["controller.liveness"].read_text().splitlines() == [
        "headwater_broker.controller.liveness: alive"
    ]
    assert log.shared.getvalue().splitlines() == [
        "headwater_broker.controllers: another module",
        "headwater_broker.log.cleaner: cleaned",
    ]


def test_a_renamed_file_is_opened_anew(tmp_path: Path) -> None:
    log, path = Log(), tmp_path / "controller.log"
    write_apart(log.listener, {"controller": str(path)})
    log.write("headwater_broker.controller", "one")
    path.rename(tmp_path / "controller.log.1")
    log.write("headwater_broker.controller", "two")
    assert path.read_text() == "headwater_broker.controller: two\n"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"controller=.*/nowhere/x.log: No such file"):
        write_apart(Log().listener, {"controller": str(tmp_path / "nowhere" / "x.log")})


@pytest.mark.parametrize(
    "row", ["controller", "controller=", "=x.log", "Controller=x.log", "a..b=x.log"]
)
def test_rows_that_name_no_module_or_no_file(row: str) -> None:
    with pytest.raises(UsageError, match="use module=file, as controller="):
        broker_values({"broker.id": "1", "headwater.log.files": row})


def test_rows_of_a_config() -> None:
    assert log_files(("controller=/a/c.log", "log.cleaner=b=c.log")) == {
        "controller": "/a/c.log",
        "log.cleaner": "b=c.log",
    }
    with pytest.raises(UsageError, match="module controller occurs twice"):
        log_files(("controller=a", "controller=b"))
