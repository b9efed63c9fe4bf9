"""Levels of loggers, changed while the broker runs."""

from __future__ import annotations

import logging

import pytest

from headwater.errors import UsageError
from headwater_broker.runtime.broker_loggers import BrokerLoggers


def loggers() -> tuple[logging.Manager, BrokerLoggers]:
    """Of a process of its own: root at INFO, one library at WARNING."""
    root = logging.RootLogger(logging.INFO)
    manager = logging.Manager(root)
    manager.getLogger("headwater_broker.log.cleaner")
    manager.getLogger("kazoo").setLevel(logging.WARNING)
    return manager, BrokerLoggers(manager)


def test_all_loggers_and_their_packages_are_listed_with_the_level_that_counts() -> None:
    _, broker_loggers = loggers()
    assert broker_loggers.levels() == {
        "root": "INFO",
        "headwater_broker": "INFO",
        "headwater_broker.log": "INFO",
        "headwater_broker.log.cleaner": "INFO",
        "kazoo": "WARN",
    }


def test_a_package_s_level_counts_for_its_modules_and_is_reset() -> None:
    manager, broker_loggers = loggers()
    cleaner = manager.getLogger("headwater_broker.log.cleaner")
    broker_loggers.set_level("headwater_broker.log", "debug")
    assert cleaner.isEnabledFor(logging.DEBUG)
    assert broker_loggers.levels()["headwater_broker.log.cleaner"] == "DEBUG"
    broker_loggers.set_level("headwater_broker.log.cleaner", "ERROR")
    assert not cleaner.isEnabledFor(logging.WARNING)
    broker_loggers.reset_level("headwater_broker.log.cleaner")
    broker_loggers.reset_level("headwater_broker.log")
    assert not cleaner.isEnabledFor(logging.DEBUG)
    assert set(broker_loggers.levels().values()) == {"INFO", "WARN"}


def test_a_reset_brings_back_the_level_of_the_start() -> None:
    manager, broker_loggers = loggers()
    broker_loggers.set_level("kazoo", "TRACE")
    broker_loggers.set_level("kazoo", "FATAL")
    assert broker_loggers.levels()["kazoo"] == "FATAL"
    broker_loggers.reset_level("kazoo")
    broker_loggers.reset_level("kazoo")
    assert manager.getLogger("kazoo").level == logging.WARNING


def test_the_root_s_level_counts_where_nothing_else_is_set() -> None:
    _, broker_loggers = loggers()
    broker_loggers.set_level("root", "WARN")
    assert set(broker_loggers.levels().values()) == {"WARN"}
    with pytest.raises(UsageError, match="root"):
        broker_loggers.reset_level("root")


def test_unknown_names_and_levels_are_refused_and_make_no_logger() -> None:
    _, broker_loggers = loggers()
    with pytest.raises(UsageError, match=r"headwater_broker\.logs does not exist"):
        broker_loggers.set_level("headwater_broker.logs", "INFO")
    with pytest.raises(UsageError, match="'LOUD' is not a level"):
        broker_loggers.set_level("root", "LOUD")
    with pytest.raises(UsageError, match="does not exist"):
        broker_loggers.reset_level("nothing")
    assert "headwater_broker.logs" not in broker_loggers.levels()
