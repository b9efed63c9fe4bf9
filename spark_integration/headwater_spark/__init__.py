"""Spark source, sink, tiering job and Spark-managed cluster.

`import headwater_spark` is cheap: what needs pyspark is loaded when it is first named.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Cluster": "headwater_spark.cluster.cluster",
    "check": "headwater_spark.executor_check",
    "commit_progress": "headwater_spark.source.group_commits",
    "configure": "headwater_spark.spark_session",
    "lag": "headwater_spark.source.progress",
    "register": "headwater_spark.registration",
    "session": "headwater_spark.spark_session",
    "table": "headwater_spark.source.union_read",
    "tier": "headwater_spark.tiering.job",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater_spark' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
