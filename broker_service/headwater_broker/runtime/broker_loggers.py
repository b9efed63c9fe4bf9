"""The levels of this broker's loggers, by Kafka's level names, changed while it runs (KIP-412).

Loggers are named after modules: `headwater_broker.log.cleaner` is below `headwater_broker.log`, and
all are below `root`. A logger without a level of its own has its parent's. Levels are not stored:
a restart brings back those of the start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.errors import UsageError

ROOT = "root"
TRACE = 5
LEVELS: Mapping[str, int] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
"""Kafka's level -> Python's."""


class BrokerLoggers:
    """All loggers of the process (Kafka's LoggingController)."""

    def __init__(self, manager: logging.Manager | None = None) -> None:
        self._manager = manager or logging.root.manager
        self._at_start: dict[str, int] = {}
        """Level of each logger before its first change."""

    def levels(self) -> dict[str, str]:
        """The level that counts for each logger, its own or its parent's, by name; root first."""
        names = sorted(self._manager.loggerDict)
        return {name: _level_name(self._level(name)) for name in (ROOT, *names)}

    def set_level(self, name: str, level: str) -> None:
        """Set the level of one logger. Raises UsageError for an unknown logger or level."""
        self.check(name, level)
        logger = self._get(name)
        self._at_start.setdefault(name, logger.level)
        logger.setLevel(LEVELS[level.upper()])

    def reset_level(self, name: str) -> None:
        """Give a logger the level of the start again. Raises UsageError for an unknown logger, and
        for root, which has no parent."""
        self.check_reset(name)
        if name in self._at_start:
            self._get(name).setLevel(self._at_start.pop(name))

    def check(self, name: str, level: str) -> None:
        """Raises UsageError when `set_level` would."""
        self._check_name(name)
        if level.upper() not in LEVELS:
            raise UsageError(
                f"logger {name}: {level!r} is not a level; use one of {', '.join(LEVELS)}"
            )

    def check_reset(self, name: str) -> None:
        """Raises UsageError when `reset_level` would."""
        self._check_name(name)
        if name == ROOT:
            raise UsageError("the root logger has no parent: set its level rather than delete it")

    def _check_name(self, name: str) -> None:
        if name != ROOT and name not in self._manager.loggerDict:
            raise UsageError(f"logger {name} does not exist; list them with --describe")

    def _get(self, name: str) -> logging.Logger:
        return self._manager.root if name == ROOT else self._manager.getLogger(name)

    def _level(self, name: str) -> int:
        """Without making a logger of a package that has none yet."""
        while name:
            known = self._manager.loggerDict.get(name)
            if isinstance(known, logging.Logger) and known.level:
                return known.level
            name = name.rpartition(".")[0]
        return self._manager.root.level


def _level_name(level: int) -> str:
    """Kafka's name of a level; of a number between two levels the more verbose one's."""
    return next((name for name, value in LEVELS.items() if value <= level), "TRACE")
