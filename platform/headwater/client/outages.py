"""The outages of a client: logged while they last, and given to `on_error`.

An outage is logged as a warning once it has lasted for `report_after_s`, then at growing intervals,
and once more when it is over. Outages with the same cause share a line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.client.errors import kafka_error
from headwater.client.values import Outage
from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError

REPORT_INTERVAL_MAX_S = 60.0
CHECK_INTERVAL_S = 1.0
NAMES_SHOWN_MAX = 5
"""Subjects that a line names; it counts the others."""


@dataclass(slots=True)
class _Entry:
    code: ErrorCode
    cause: str
    detail: str
    since: float
    next_report_s: float
    """The age at which the outage is logged next."""
    is_reported: bool = False


class OutageLog:
    """The outages of one client. Belongs to the client's loop; `outages` may be read anywhere.

    Times are monotonic seconds of `clock`.
    """

    def __init__(
        self,
        clock: Clock,
        logger: logging.Logger,
        on_error: Callable[[KafkaError], object] | None = None,
        *,
        report_after_s: float,
    ) -> None:
        self._clock = clock
        self._logger = logger
        self._on_error = on_error
        self.report_after_s = report_after_s
        self._entries: dict[str, _Entry] = {}

    def note(
        self,
        subject: str,
        code: ErrorCode,
        cause: str,
        detail: str = "",
        *,
        since: float | None = None,
    ) -> None:
        """`subject` ("flights-3", "group delays") does not work, for this reason.

        `cause` is a clause ("leader 2 is not reachable"), `detail` what was met last ("Connection
        refused"). `since`: when that began; by default at the first call about the subject.
        """
        entry = self._entries.get(subject)
        if entry is None:
            began = self._clock.monotonic() if since is None else since
            entry = _Entry(code, cause, detail, began, self.report_after_s)
            self._entries = {**self._entries, subject: entry}
        entry.code, entry.cause, entry.detail = code, cause, detail
        if since is not None:
            entry.since = min(since, entry.since)

    def keep(self, subjects: set[str]) -> None:
        """Every other subject works again, or is of no interest any more."""
        over = {k: e for k, e in self._entries.items() if k not in subjects}
        if not over:
            return
        self._entries = {k: e for k, e in self._entries.items() if k in subjects}
        reported = [k for k, e in over.items() if e.is_reported]
        if reported:
            lasted = self._clock.monotonic() - min(over[k].since for k in reported)
            self._logger.warning("%s: works again after %.0f s", _listed(reported), lasted)

    def outages(self) -> list[Outage]:
        """What does not work now, oldest first."""
        now = self._clock.monotonic()
        entries = sorted(self._entries.items(), key=lambda item: item[1].since)
        return [
            Outage(name, e.code.name, e.cause, e.detail, max(0.0, now - e.since))
            for name, e in entries
        ]

    def report(self, waiting: str = "") -> None:
        """Log what is due, and call `on_error` with it. `waiting`: what waits, as "flush"."""
        by_name = {outage.subject: outage for outage in self.outages()}
        due = []
        for name, entry in self._entries.items():
            age = by_name[name].seconds
            if age >= entry.next_report_s:
                entry.is_reported = True
                step = min(max(age, self.report_after_s), REPORT_INTERVAL_MAX_S)
                entry.next_report_s = age + step
                due.append(by_name[name])
        for code_name, text in _lines(due):
            line = f"{waiting} waits for {text}" if waiting else text
            self._logger.warning("%s", line)
            self._call(kafka_error(ErrorCode[code_name], line))

    async def run(self, find: Callable[[], set[str]]) -> None:
        """Report until cancelled. `find` notes what does not work, and names it."""
        while True:
            await asyncio.sleep(min(CHECK_INTERVAL_S, self.report_after_s / 2))
            self.keep(find())
            self.report()

    def _call(self, error: KafkaError) -> None:
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except Exception:
            self._logger.exception("on_error raised")


def summary(outages: list[Outage]) -> str:
    """The outages in one line, for the message of a timeout; "" without any."""
    return "; ".join(text for _, text in _lines(outages))


def _lines(outages: list[Outage]) -> list[tuple[str, str]]:
    """(error code's name, text), one for all outages with the same cause."""
    causes: dict[tuple[str, str], list[Outage]] = {}
    for outage in outages:
        causes.setdefault((outage.error, outage.cause), []).append(outage)
    lines = []
    for (code_name, cause), rows in causes.items():
        names = _listed([o.subject for o in rows])
        detail = next((f": {o.detail}" for o in rows if o.detail), "")
        lines.append(
            (code_name, f"{names}: {cause} for {max(o.seconds for o in rows):.0f} s{detail}")
        )
    return lines


def _listed(subjects: list[str]) -> str:
    names = ", ".join(subjects[:NAMES_SHOWN_MAX])
    more = len(subjects) - NAMES_SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names
