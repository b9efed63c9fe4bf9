"""Slots of brokers: their size, and an error that names a master that fits."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater_spark.cluster.slot_plan import SlotPlan, fitting_master, plan_slots


def plan(
    master: str, brokers: int = 3, executors: int | None = None, cores: int | None = 1
) -> SlotPlan:
    return plan_slots(master, brokers, cores_here=2, executor_cores=cores, executors=executors)


def test_one_jvm_needs_no_profile() -> None:
    assert plan("local[5]") == SlotPlan(None, one_host=True)


def test_a_local_cluster_spreads_by_task_cpus() -> None:
    assert plan("local-cluster[3,3,1500]") == SlotPlan(2, one_host=True)


def test_other_masters_need_no_known_size() -> None:
    assert plan("spark://h:7077", cores=4) == SlotPlan(3, one_host=False)
    assert plan("yarn", executors=3, cores=4) == SlotPlan(3, one_host=False)


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*]", "local-cluster[3,2,1500]", "local-cluster[2,8,1500]"],
)
def test_too_few_slots_name_the_master_to_use(master: str) -> None:
    with pytest.raises(UsageError, match=r"use local-cluster\[3,3,1500\] or local\[5\]"):
        plan(master)


def test_too_few_known_executors() -> None:
    with pytest.raises(UsageError, match="need 17"):
        plan("yarn", executors=2, cores=8)


@pytest.mark.parametrize("brokers", range(1, 12))
def test_the_master_in_the_error_fits(brokers: int) -> None:
    assert plan(fitting_master(brokers), brokers).task_cpus is not None
    assert plan(f"local[{brokers + 2}]", brokers).one_host


def test_a_standalone_master_needs_the_cores_of_an_executor() -> None:
    with pytest.raises(UsageError, match=r"set spark\.executor\.cores"):
        plan("spark://h:7077", cores=None)
    assert plan("k8s://https://h", cores=None) == SlotPlan(1, one_host=False)


def test_an_application_of_several_machines_that_is_too_small_is_named_its_own_remedy() -> None:
    with pytest.raises(UsageError, match=r"spark\.executor\.instances to 3.*spark\.cores\.max"):
        plan("spark://h:7077", cores=3, executors=2)
