"""How far the moves of a plan are: asked once, or until none is under way any more (KIP-455)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.cli.partition_arguments import name_of
from headwater.cli.reassign.log_dirs import folder_status
from headwater.cli.reassign.plan import FAILED, IN_PROGRESS, Folders, Plan, current_plan, judge
from headwater.client.admin.client import Admin
from headwater.client.values import TopicDescription, TopicPartition
from headwater.system import SystemClock

POLL_S = 0.5
SETTLE_S = 5.0
"""A broker's metadata may trail the controller: what looks failed is looked at for so long."""


def topics_of(admin: Admin, plan: Plan) -> list[TopicDescription]:
    """The topics of a plan, without those that do not exist."""
    known = set(admin.list_topics(include_internal=True))
    names = sorted({tp.topic for tp in plan} & known)
    return list(admin.describe_topics(names).values()) if names else []


def status_of(admin: Admin, plan: Plan) -> dict[TopicPartition, str]:
    """COMPLETE, IN_PROGRESS or FAILED for each partition of a plan."""
    # The moves first: one that ends in between then is seen complete.
    moving = admin.list_partition_reassignments()
    return judge(plan, current_plan(topics_of(admin, plan)), moving)


def follow(admin: Admin, plan: Plan, folders: Folders, *, quiet: bool) -> dict[str, str]:
    """A bar until no move of the plan is under way; then why not, by what has not arrived."""
    output, clock = Console(stderr=True), SystemClock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = quiet or not output.is_terminal
    until: float | None = None
    with Progress(*columns, TimeElapsedColumn(), console=output, disable=hidden) as shown:
        task = shown.add_task("moving", total=len(plan))
        while True:
            found, copies = status_of(admin, plan), folder_status(admin, folders)
            left = sum(status == IN_PROGRESS for status in found.values())
            shown.update(task, completed=len(plan) - left)
            copying = any(told.startswith(IN_PROGRESS) for told in copies.values())
            if left or copying:
                until = None
            elif not copies and FAILED not in found.values():
                return {}
            elif until is None:
                until = clock.monotonic() + SETTLE_S
            elif clock.monotonic() >= until:
                return {**_unlike(plan, current_plan(topics_of(admin, plan))), **copies}
            time.sleep(POLL_S)


def _unlike(plan: Plan, now: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
    """Why each partition is not as planned."""
    return {
        name_of(
            tp
        ): f"{FAILED}: its replicas are {list(now[tp])}, planned were {list(wanted)}: the "
        "move was cancelled or replaced; execute the plan again"
        if tp in now
        else f"{FAILED}: it does not exist any more"
        for tp, wanted in plan.items()
        if tuple(now.get(tp, ())) != wanted
    }
