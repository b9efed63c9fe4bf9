"""Headwater in Spark: source, sink, tiering job, and brokers that run as Spark jobs.

`import headwater_spark` is cheap: a module that needs pyspark loads when its name is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

HOMES = {
    "Cluster": "headwater_spark.cluster.cluster",
    "check": "headwater_spark.executor_check",
    "commit_progress": "headwater_spark.source.group_commits",
    "configure": "headwater_spark.spark_session",
    "exactly_once": "headwater_spark.sink.exactly_once",
    "lag": "headwater_spark.source.progress",
    "register": "headwater_spark.registration",
    "session": "headwater_spark.spark_session",
    "table": "headwater_spark.source.union_read",
    "tier": "headwater_spark.tiering.job",
}


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater_spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
