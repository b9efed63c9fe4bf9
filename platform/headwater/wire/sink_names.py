"""The transactional ids of sinks and their participants, which brokers and clients share.

A sink's tasks write as `__hw.<sink>.<slot>`. Its coordinator is that of `__hw.<sink>`; tickets come
from the coordinator of `__hw`.
"""

from __future__ import annotations

TICKETS_KEY = "__hw"
"""The key of the coordinator that allocates tickets."""
SINK_ID_PREFIX = f"{TICKETS_KEY}."
"""Transactional ids of sinks; no producer may initialize or end them."""


def sink_key(sink: str) -> str:
    """The transactional id that stands for a sink: its coordinator's key, the name in rights."""
    return SINK_ID_PREFIX + sink


def participant_id(sink: str, slot: int) -> str:
    """The transactional id of a participant."""
    return f"{SINK_ID_PREFIX}{sink}.{slot}"


def is_participant(transactional_id: str) -> bool:
    """True for the transactional id of a task's part of an epoch, `__hw.<sink>.<slot>`."""
    return transactional_id.startswith(SINK_ID_PREFIX)


def sink_and_slot(transactional_id: str) -> tuple[str, int]:
    """The sink and slot of a participant's transactional id."""
    sink, _, slot = transactional_id.removeprefix(SINK_ID_PREFIX).rpartition(".")
    return sink, int(slot)


def coordinator_key(transactional_id: str) -> str:
    """The part of a transactional id that decides its coordinator.

    A participant `__hw.<sink>.<slot>` has that of its sink, `__hw.<sink>`: one log decides for all
    of them. Any other transactional id is its own.
    """
    if not transactional_id.startswith(SINK_ID_PREFIX):
        return transactional_id
    head, dot, slot = transactional_id.removeprefix(SINK_ID_PREFIX).rpartition(".")
    return sink_key(head) if dot and slot.isdecimal() else transactional_id
