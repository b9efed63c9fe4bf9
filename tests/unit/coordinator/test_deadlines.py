"""Timers against a plain dictionary, by random operations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater_broker.coordinator.common.deadlines import Deadlines

KEYS = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 20)),
    )
)


@given(STEPS)
def test_every_deadline_fires_once_and_in_time(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    wanted: dict[int, int] = {}
    now = 0
    for what, key, amount in steps:
        if what == "set":
            deadlines.set(key, now + amount)
            wanted[key] = now + amount
        elif what == "cancel":
            deadlines.cancel(key)
            wanted.pop(key, None)
        else:
            now += amount
            due = {k for k, at in wanted.items() if at <= now}
            popped = deadlines.pop_due(now)
            assert len(popped) == len(set(popped))
            assert set(popped) == due
            for k in due:
                del wanted[k]
        look_at = deadlines.next_ms()
        if wanted:
            assert look_at is not None
            assert look_at <= min(wanted.values())
        else:
            assert look_at is None
