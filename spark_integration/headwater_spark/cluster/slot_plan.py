"""Do the brokers fit into this Spark cluster, and how are they spread? Pure.

A broker is one task that runs for ever. With task cpus = floor(executor cores / 2) + 1 no executor
takes two of them, and some cores are left for jobs beside them. In one JVM (`local[N]`) there is
nothing to spread: brokers are plain tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import UsageError
from headwater_spark.masters import local_master

SPARE_SLOTS = 2
"""Slots that must be left for the jobs that use the brokers."""
EXECUTOR_MEMORY_MB = 1500


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """`task_cpus` None: no resource profile (one JVM). `one_host`: all is on this machine."""

    task_cpus: int | None
    one_host: bool


def plan_slots(
    master: str, brokers: int, *, cores_here: int, executor_cores: int, executors: int | None
) -> SlotPlan:
    """How to run `brokers` on `master`. Raises UsageError that names a master that would do.

    `executor_cores` and `executors` are Spark's configuration; both only matter beyond one machine,
    where `executors` may be unknown (None).
    """
    local = local_master(master, cores_here)
    if local is not None and local.executors is None:
        if local.slots < brokers + SPARE_SLOTS:
            raise _too_few(master, brokers, local.slots, brokers + SPARE_SLOTS)
        return SlotPlan(None, one_host=True)
    if local is not None:
        executors, executor_cores = local.executors, local.cores
    task_cpus = executor_cores // 2 + 1
    if executors is not None:
        spare = executors * executor_cores - brokers * task_cpus
        if executors < brokers or spare < SPARE_SLOTS:
            raise _too_few(
                master, brokers, executors * executor_cores, brokers * task_cpus + SPARE_SLOTS
            )
    return SlotPlan(task_cpus, one_host=local is not None)


def fitting_master(brokers: int) -> str:
    """The smallest local-cluster with one executor per broker and SPARE_SLOTS left over."""
    cores = 3
    while brokers * (cores - cores // 2 - 1) < SPARE_SLOTS:
        cores += 1
    return f"local-cluster[{brokers},{cores},{EXECUTOR_MEMORY_MB}]"


def _too_few(master: str, brokers: int, slots: int, needed: int) -> UsageError:
    return UsageError(
        f"master {master} has {slots} slots; {brokers} brokers, each on an executor of its own, and"
        f" {SPARE_SLOTS} slots for jobs beside them need {needed}: use {fitting_master(brokers)} or"
        f" local[{brokers + SPARE_SLOTS}]"
    )
