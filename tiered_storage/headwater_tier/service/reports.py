"""Reports each topic's status: soon after a change, and from time to time without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headwater.clock import Clock
from headwater_tier.service.schedule import TopicSchedule
from headwater_tier.service.status import DerivedStatus, TopicReport, TopicStatus
from headwater_tier.service.topic_state import TopicState

Ends = Mapping[int, int]

CHANGED_EVERY_S = 2.0
UNCHANGED_EVERY_S = 30.0
"""A status that is older by far shows that no service runs."""


def status_of(
    state: TopicState,
    schedule: TopicSchedule,
    *,
    now: float,
    now_ms: int,
    service: str,
    derived: Mapping[str, DerivedStatus] | None = None,
    maintenance_error: str = "",
    damage: str = "",
) -> TopicStatus:
    """The status of a topic now. `damage`: of its table, though tiering goes on. Pure."""
    facts = state.facts
    achieved = schedule.achieved_s
    is_known = facts is not None or bool(state.ends)
    name = "opening" if facts is None else ("damaged" if damage else "tiering")
    name = "failed" if state.error else name
    return TopicStatus(
        topic=state.name,
        state=name,
        table=state.location.uri,
        rows=facts.rows if facts else 0,
        size_bytes=facts.size_bytes if facts else 0,
        files=facts.files if facts else 0,
        version=facts.version if facts else -1,
        behind=sum(
            max(0, end - state.ends.get(p, 0)) for p, end in state.stable.items() if is_known
        ),
        behind_ms=int(1000 * schedule.seconds_behind(now)),
        asked_ms=int(1000 * schedule.interval_s),
        achieved_ms=None if achieved is None else int(1000 * achieved),
        committed_ms=state.committed_ms,
        error=state.error or damage,
        error_ms=state.error_ms,
        reported_ms=now_ms,
        service=service,
        maintenance_error=maintenance_error,
        derived=dict(derived or {}),
    )


class Reporter:
    """Decides whose status is due, and hands it on. Belongs to the main loop."""

    def __init__(
        self,
        send: Callable[[Sequence[TopicReport]], None],
        clock: Clock,
        service: str,
        derived: Callable[[str, Ends], Mapping[str, DerivedStatus]] = lambda _topic, _ends: {},
        maintenance: Callable[[str], str] = lambda _topic: "",
        damage: Callable[[str], str] = lambda _topic: "",
    ) -> None:
        """`derived` gives the status of a topic's derived tables by its last stable offsets,
        `maintenance` why that of its log table waits, `damage` what is wrong with that table though
        tiering goes on."""
        self._maintenance = maintenance
        self._send = send
        self._clock = clock
        self._service = service
        self._derived = derived
        self._damage = damage
        self._sent: dict[str, tuple[float, object]] = {}
        """Topic -> when it was reported last, and what the report depended on."""

    def tick(
        self,
        topics: Mapping[str, TopicState],
        schedules: Mapping[str, TopicSchedule],
        *,
        force: bool = False,
    ) -> None:
        """Report what is due; with `force` every topic."""
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._sent = {name: sent for name, sent in self._sent.items() if name in topics}
        due = []
        for name, state in topics.items():
            at, former = self._sent.get(name, (float("-inf"), None))
            if now - at < CHANGED_EVERY_S and not force:
                continue
            derived, damage = self._derived(name, state.stable), self._damage(name)
            version = state.facts.version if state.facts else -1
            problem = self._maintenance(name)
            rows = tuple(derived.items())
            basis = (version, state.error, state.planned is None, rows, problem, damage)
            if basis == former and now - at < UNCHANGED_EVERY_S and not force:
                continue
            self._sent[name] = now, basis
            status = status_of(
                state,
                schedules[name],
                now=now,
                now_ms=now_ms,
                service=self._service,
                derived=derived,
                maintenance_error=problem,
                damage=damage,
            )
            due.append(TopicReport(status, state.ends))
        if due:
            self._send(due)
