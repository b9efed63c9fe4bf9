"""The Spark jobs of brokers: one job of one task per broker, in a job group of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from headwater_spark.cluster.broker_task import BrokerTask, run_broker

logger = logging.getLogger(__name__)


class SparkJobs:
    """Runs and cancels the jobs of one application."""

    def __init__(self, spark: SparkSession, task_cpus: int | None) -> None:
        self._context = spark.sparkContext
        self._task_cpus = task_cpus

    def run(self, group: str, task: BrokerTask) -> str:
        """Run one job from submission to its end; the reason for the end. Never raises for it."""

        def hold(_rows: Iterator[int]) -> Iterator[str]:
            yield run_broker(task)

        try:
            self._context.setJobGroup(group, f"headwater {task.name}")
            rows = self._context.parallelize([task.broker_id], 1).mapPartitions(hold)
            if self._task_cpus is not None:
                requests = TaskResourceRequests().cpus(self._task_cpus)
                rows = rows.withResources(ResourceProfileBuilder().require(requests).build)
            return str(rows.collect()[0])
        except (Py4JError, PySparkException, OSError) as e:
            return f"its job ended: {str(e).strip().splitlines()[0]}"

    def application_has_ended(self) -> bool:
        """True when no job can run any more."""
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except (Py4JError, OSError):
            return True

    def cancel(self, group: str) -> None:
        """Cancel the jobs of a group."""
        try:
            self._context.cancelJobGroup(group)
        except (Py4JError, AttributeError, OSError) as e:
            logger.info("%s: %r", group, e)  # the application has ended
