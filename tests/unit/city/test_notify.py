"""Alarms: told once an opening, through a plug-in, retried."""

from __future__ import annotations

from pathlib import Path

import pytest

from city.fields import Alarm
from city.notify import ATTEMPTS, FileNotifier, Notifier, load
from headwater.errors import UsageError

ALARM = Alarm("latency", "mean", "2017-08-24 08:00:00", "mean latency 80 s")


def told(*notifiers: object, again: int = 1) -> Notifier:
    notifier = Notifier(notifiers, backoff_s=0.0)  # type: ignore[arg-type]
    notifier.start()
    for _ in range(again):
        notifier.open(ALARM)
    notifier.stop()
    return notifier


def test_an_opening_is_told_once_until_it_closes() -> None:
    heard: list[Alarm] = []
    notifier = Notifier([heard.append], backoff_s=0.0)
    notifier.start()
    assert [notifier.open(ALARM) for _ in range(3)] == [True, False, False]
    assert notifier.close("latency", "mean")
    assert not notifier.close("latency", "mean")
    assert notifier.open(ALARM)
    notifier.stop()
    assert heard == [ALARM, ALARM]
    assert notifier.openings("latency") == [ALARM, ALARM]
    assert notifier.openings("quality") == []


def test_a_notifier_that_fails_is_retried_and_told_once() -> None:
    heard: list[Alarm] = []
    left = iter([TimeoutError("no line"), TimeoutError("no line")])

    def phone(alarm: Alarm) -> None:
        error = next(left, None)
        if error is not None:
            raise error
        heard.append(alarm)

    delivery = told(phone).deliveries[0]
    assert (delivery.attempts, delivery.is_delivered) == (3, True)
    assert heard == [ALARM]


def test_a_notifier_that_never_takes_it_is_named() -> None:
    def phone(alarm: Alarm) -> None:
        raise TimeoutError("no line")

    heard: list[Alarm] = []
    delivery = told(phone, heard.append).deliveries[0]
    assert delivery.attempts == ATTEMPTS + 1
    assert delivery.errors == ["TimeoutError: no line"]
    assert not delivery.is_delivered
    assert heard == [ALARM]


def test_file_notifier_writes_a_line_an_alarm(tmp_path: Path) -> None:
    told(FileNotifier(tmp_path / "alarms.jsonl"), again=2)
    lines = (tmp_path / "alarms.jsonl").read_bytes().splitlines()
    assert [Alarm.from_wire(line) for line in lines] == [ALARM]


def test_entry_points_are_loaded_by_name() -> None:
    assert load("city.fields:city_text").__name__ == "city_text"
    for bad in ("city.fields", "no_such_module:f", "city.fields:no_such", "city.fields:ALARMS"):
        with pytest.raises(UsageError, match="notifier"):
            load(bad)
