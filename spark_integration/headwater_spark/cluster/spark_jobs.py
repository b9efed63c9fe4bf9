"""The Spark jobs of brokers: one job of one task per broker, in a job group of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from headwater_spark.cluster.broker_task import BrokerTask, run_broker

logger = logging.getLogger(__name__)


class SparkJobs:
    """Runs and cancels the jobs of one application."""

    def __init__(self, spark: SparkSession, task_cpus: int | None) -> None:
        self._context = spark.sparkContext
        self._task_cpus = task_cpus

    def run(self, group: str, task: BrokerTask, home: str = "") -> str:
        """Run one job from submission to its end; the reason for the end. Never raises for it.

        Its task goes to an executor on the host `home` if there is one with free cores.
        """

        def hold(_rows: Iterator[int]) -> Iterator[str]:
            yield run_broker(task)

        try:
            self._context.setJobGroup(group, f"headwater {task.name}")
            rows = self._one_row(home).mapPartitions(hold)
            if self._task_cpus is not None:
                requests = TaskResourceRequests().cpus(self._task_cpus)
                rows = rows.withResources(ResourceProfileBuilder().require(requests).build)
            return str(rows.collect()[0])
        except (Py4JError, PySparkException, OSError) as e:
            return f"its job ended: {str(e).strip().splitlines()[0]}"

    def _one_row(self, home: str) -> RDD[int]:
        """A data set of one partition, which Spark prefers to compute on the host `home`."""
        if not home:
            return self._context.parallelize([0], 1)
        jvm = self._context._jvm
        assert jvm is not None
        serializer = CPickleSerializer()
        places = jvm.org.apache.spark.api.python.PythonUtils.toSeq([home])
        placed = jvm.scala.Tuple2(serializer.dumps(0), places)
        of_bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        rows = jvm.org.apache.spark.api.python.PythonUtils.toSeq([placed])
        made = self._context._jsc.sc().makeRDD(rows, of_bytes).toJavaRDD()
        return RDD(made, self._context, serializer)

    def executor_hosts(self) -> set[str]:
        """The hosts with executors, and the driver's; empty when the application has ended."""
        try:
            infos = self._context._jsc.sc().statusTracker().getExecutorInfos()
            return {str(info.host()) for info in infos}
        except (Py4JError, AttributeError, OSError):
            return set()

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
