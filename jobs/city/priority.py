"""Priorities on the processor: brokers and services first, then Spark's batch work.

On two cores the micro-batches take all that is left. What people wait for takes little, and must
not stand in line behind them.
"""

from __future__ import annotations

import os
from contextlib import suppress

import psutil
from pyspark.sql import SparkSession

BATCH_NICENESS = 5
DAEMON = "pyspark.daemon"
"""The process that Spark forks its Python workers from."""


def lower_batch_work(spark: SparkSession) -> None:
    """Lower the priority of Spark's JVM and Python workers, and of what they start from now on.

    Brokers that run already keep theirs. Call it once the queries run, too: Spark gives the Python
    process of a query ten seconds to start.
    """
    jvm = spark.sparkContext._jvm  # there is no public way to the JVM's process id
    assert jvm is not None
    driver = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
    for process in (driver, *filter(is_daemon, driver.children(recursive=True))):
        lower(process)


def is_daemon(process: psutil.Process) -> bool:
    """True for a process that Spark forks its Python workers from; False for one that has ended,
    as workers do while they are looked at."""
    try:
        return DAEMON in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one, too
        return False


def lower(process: psutil.Process) -> None:
    """Lower the priority of a process; nothing for one that has ended. Linux has one per thread,
    and a new thread has that of the one that starts it."""
    try:
        threads = process.threads()
    except psutil.NoSuchProcess:
        return
    for thread in threads:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            if os.getpriority(os.PRIO_PROCESS, thread.id) < BATCH_NICENESS:
                os.setpriority(os.PRIO_PROCESS, thread.id, BATCH_NICENESS)
