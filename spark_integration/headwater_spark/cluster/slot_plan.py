"""How many task slots each broker's Spark job takes, and whether all of them fit. Pure.

A broker is one task that runs until the cluster stops. With `spark.task.cpus` =
floor(executor cores / 2) + 1 no executor gets two brokers, and cores are left for other jobs. In
one JVM (`local[N]`) brokers cannot be spread: they are tasks of one slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import UsageError
from headwater_spark.masters import local_master

SPARE_SLOTS = 2
"""Slots that must stay free for jobs that use the brokers."""
EXECUTOR_MEMORY_MB = 1500
STANDALONE = "spark://"
EXECUTOR_CORES_DEFAULT = 1
"""Spark's default on YARN and Kubernetes; a standalone master has none."""


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """`task_cpus` of each broker, None for one slot in one JVM; `one_host`: all on this machine."""

    task_cpus: int | None
    one_host: bool


def plan_slots(
    master: str,
    brokers: int,
    *,
    cores_here: int,
    executor_cores: int | None,
    executors: int | None,
) -> SlotPlan:
    """The slot plan for `brokers` on `master`. Raises UsageError naming a master that fits.

    `executor_cores` and `executors` are Spark's configuration, which counts on other masters than
    those of one machine; `executors` is None when Spark decides their number.
    """
    local = local_master(master, cores_here)
    if local is not None and local.executors is None:
        if local.slots < brokers + SPARE_SLOTS:
            raise _too_few(master, brokers, local.slots, brokers + SPARE_SLOTS)
        return SlotPlan(None, one_host=True)
    if local is not None:
        executors, executor_cores = local.executors, local.cores
    if executor_cores is None:
        if master.startswith(STANDALONE):
            raise UsageError(
                f"master {master} gives an executor all cores of its worker, and would put several"
                " brokers on it: set spark.executor.cores, 3 or more"
            )
        executor_cores = EXECUTOR_CORES_DEFAULT
    task_cpus = executor_cores // 2 + 1
    if executors is not None:
        spare = executors * executor_cores - brokers * task_cpus
        if executors < brokers or spare < SPARE_SLOTS:
            raise _too_few(
                master, brokers, executors * executor_cores, brokers * task_cpus + SPARE_SLOTS
            )
    return SlotPlan(task_cpus, one_host=local is not None)


def fitting_master(brokers: int) -> str:
    """The smallest local-cluster with one executor per broker and SPARE_SLOTS free slots."""
    cores = 3
    while brokers * (cores - cores // 2 - 1) < SPARE_SLOTS:
        cores += 1
    return f"local-cluster[{brokers},{cores},{EXECUTOR_MEMORY_MB}]"


def _too_few(master: str, brokers: int, slots: int, needed: int) -> UsageError:
    remedy = f"use {fitting_master(brokers)} or local[{brokers + SPARE_SLOTS}]"
    if local_master(master, slots) is None:
        remedy = (
            f"set spark.executor.cores to 3 or more, and spark.executor.instances to {brokers} or"
            " more (standalone: spark.cores.max to the product)"
        )
    return UsageError(
        f"master {master} has {slots} slots; {brokers} brokers, each on an executor of its own, and"
        f" {SPARE_SLOTS} slots for jobs beside them need {needed}: {remedy}"
    )
