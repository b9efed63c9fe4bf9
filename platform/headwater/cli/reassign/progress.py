"""The states of a plan's reassignments: once, or until none is in progress any more (KIP-455)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.cli.partition_arguments import name_of
from headwater.cli.reassign.log_dirs import log_dir_states
from headwater.cli.reassign.plan import (
    FAILED,
    IN_PROGRESS,
    LogDirs,
    Plan,
    current_plan,
    states_of,
)
from headwater.client.admin.client import Admin
from headwater.client.values import TopicDescription, TopicPartition
from headwater.system import SystemClock


@dataclass(frozen=True, slots=True)
class Pacing:
    """How `--wait` polls."""

    poll_s: float = 0.5
    settle_s: float = 5.0
    """A failed state must last so long: a broker's metadata may lag behind the controller."""
    sleep: Callable[[float], None] = time.sleep


def topics_of(admin: Admin, plan: Plan) -> list[TopicDescription]:
    """The topics of a plan that exist."""
    known = set(admin.list_topics(include_internal=True))
    names = sorted({tp.topic for tp in plan} & known)
    return list(admin.describe_topics(names).values()) if names else []


def plan_states(admin: Admin, plan: Plan) -> dict[TopicPartition, str]:
    """COMPLETE, IN_PROGRESS or FAILED for each partition of a plan."""
    # Reassignments are listed before the topics: one that ends in between counts as complete.
    moving = admin.list_partition_reassignments()
    return states_of(plan, current_plan(topics_of(admin, plan)), moving)


def wait_for(
    admin: Admin, plan: Plan, log_dirs: LogDirs, pacing: Pacing, *, quiet: bool
) -> dict[str, str]:
    """Show a progress bar until no reassignment of the plan is in progress; the failures by
    partition or replica."""
    output, clock = Console(stderr=True), SystemClock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = quiet or not output.is_terminal
    until: float | None = None
    with Progress(*columns, TimeElapsedColumn(), console=output, disable=hidden) as shown:
        task = shown.add_task("reassigning", total=len(plan))
        while True:
            found, copies = plan_states(admin, plan), log_dir_states(admin, log_dirs)
            left = sum(state == IN_PROGRESS for state in found.values())
            shown.update(task, completed=len(plan) - left)
            copying = any(state.startswith(IN_PROGRESS) for state in copies.values())
            if left or copying:
                until = None
            elif not copies and FAILED not in found.values():
                return {}
            elif until is None:
                until = clock.monotonic() + pacing.settle_s
            elif clock.monotonic() >= until:
                return {**_failures(plan, current_plan(topics_of(admin, plan))), **copies}
            pacing.sleep(pacing.poll_s)


def differences(
    admin: Admin, plan: Plan, found: Mapping[TopicPartition, str]
) -> dict[TopicPartition, str]:
    """How each partition that is FAILED among the `found` states differs from its plan."""
    failed = [tp for tp, state in found.items() if state == FAILED]
    if not failed:
        return {}
    now = current_plan(topics_of(admin, {tp: plan[tp] for tp in failed}))
    return {tp: _difference(now.get(tp), plan[tp]) for tp in failed}


def _failures(plan: Plan, now: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
    """The reason for each partition whose replicas are not those of the plan."""
    return {
        name_of(tp): f"{FAILED}: {_difference(now.get(tp), wanted)}"
        + (
            ": the reassignment was cancelled or replaced; execute the plan again"
            if tp in now
            else " any more"
        )
        for tp, wanted in plan.items()
        if tuple(now.get(tp, ())) != wanted
    }


def _difference(now: Sequence[int] | None, wanted: Sequence[int]) -> str:
    if now is None:
        return "it does not exist"
    return f"its replicas are {list(now)}, planned were {list(wanted)}"
