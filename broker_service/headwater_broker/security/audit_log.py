"""Audit lines of the authorizer, in Kafka's format (`kafka.authorizer.logger`), and of changes.

A denial that repeats is written once a second, with a count: a refused client in a loop must not
fill the disk. What changed the cluster is always written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.clock import Clock
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.security.audit_entry import AskedChange, AuditEntry, Decision, note

AUDIT_LOGGER = "headwater.audit"
REPEAT_S = 1.0
"""A denial is written once in this time."""
DENIALS_MAX = 1_000
"""Different denials that are counted; one more forgets the counts."""
LINES_PER_S_MAX = 100
"""Lines of denials and refusals per second; the others are counted only. A list of all topics may
hold a thousand that its reader must not see."""

logger = logging.getLogger(AUDIT_LOGGER)


class AuditLog:
    """Writes decisions and administrators' changes. `publish` takes each entry, too: the audit
    topic."""

    def __init__(self, clock: Clock, publish: Callable[[AuditEntry], None] | None = None) -> None:
        self._clock = clock
        self._publish = publish
        self._written: dict[tuple[object, ...], float] = {}
        self._repeated: dict[tuple[object, ...], int] = {}
        self._second_began = clock.monotonic()
        self._lines = 0
        self._left_out = 0

    def decided(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        allowed: bool,
        rule: object,
    ) -> None:
        """Note one decision: a denial at INFO, an approval at DEBUG."""
        if allowed:
            if logger.isEnabledFor(logging.DEBUG):
                made = Decision(principal, host, operation, resource, name, rule)
                logger.debug("%s", made.line("Allowed"))
            return
        key = (principal, host, operation, resource, name)
        if self._is_due(key):
            self._write_with_repeats(key, Decision(*key, rule).denial())

    def _write_with_repeats(self, key: tuple[object, ...], entry: AuditEntry) -> None:
        self._write(entry.repeated(self._repeated.pop(key, 0)))

    def _is_due(self, key: tuple[object, ...]) -> bool:
        """Whether this line is written now; else it is counted."""
        now = self._clock.monotonic()
        last = self._written.get(key)
        if last is not None and now - last < REPEAT_S:
            self._repeated[key] = self._repeated.get(key, 0) + 1
            return False
        if now - self._second_began >= 1:
            left_out, self._left_out = self._left_out, 0
            self._second_began, self._lines = now, 0
            if left_out:
                self._write(note(f"{left_out} more denials and refusals were not written"))
        if self._lines >= LINES_PER_S_MAX:
            self._left_out += 1
            return False
        self._lines += 1
        if last is None and len(self._written) >= DENIALS_MAX:
            self._written.clear()
            self._repeated.clear()
        self._written[key] = now
        return True

    def changed(self, change: AskedChange) -> None:
        """Note a change of the cluster by an administrator."""
        self._write(change.entry())

    def refused(self, change: AskedChange) -> None:
        """Note a change that was asked for and not made, as often as a denial is written."""
        if self._is_due(change):
            self._write_with_repeats(change, change.entry())

    def _write(self, entry: AuditEntry) -> None:
        logger.info("%s", entry.line)
        if self._publish is not None:
            self._publish(entry)
