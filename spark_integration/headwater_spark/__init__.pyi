"""The names of `headwater_spark` for type checkers; `__init__.py` loads them lazily."""

from headwater_spark.cluster.cluster import Cluster as Cluster
from headwater_spark.executor_check import check as check
from headwater_spark.registration import register as register
from headwater_spark.sink.exactly_once import exactly_once as exactly_once
from headwater_spark.source.group_commits import commit_progress as commit_progress
from headwater_spark.source.progress import lag as lag
from headwater_spark.source.union_read import table as table
from headwater_spark.spark_session import configure as configure
from headwater_spark.spark_session import session as session
from headwater_spark.tiering.job import tier as tier
