"""Log lines of a module in a file of its own (log4j's appenders with additivity=false)."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Mapping

from headwater.errors import UsageError

PACKAGE = "headwater_broker"


def write_apart(listener: logging.handlers.QueueListener, files: Mapping[str, str]) -> None:
    """From now on lines of each module (`controller`: of headwater_broker.controller and below) go
    to its file, and not where the others go. Of nested modules the inner one's file has the lines.

    A file that is renamed, as logrotate does, is opened anew. Raises UsageError for one that cannot
    be opened.
    """
    [shared] = listener.handlers
    inner_first = sorted(files, key=lambda module: -module.count("."))
    taken: list[logging.Filter] = []
    handlers: list[logging.Handler] = [shared]
    for module in inner_first:
        handler = _opened(module, files[module])
        handler.setFormatter(shared.formatter)
        own = logging.Filter(f"{PACKAGE}.{module}")
        handler.addFilter(own)
        handler.addFilter(_NoneOf(tuple(taken)))
        taken.append(own)
        handlers.append(handler)
    shared.addFilter(_NoneOf(tuple(taken)))
    listener.handlers = tuple(handlers)


class _NoneOf(logging.Filter):
    """Lets through what none of these takes."""

    def __init__(self, others: tuple[logging.Filter, ...]) -> None:
        super().__init__()
        self._others = others

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(other.filter(record) for other in self._others)


def _opened(module: str, path: str) -> logging.Handler:
    try:
        return logging.handlers.WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"config headwater.log.files: {module}={path}: {error.strerror}: give a file in a"
            " folder that is there and that the broker may write"
        ) from None
