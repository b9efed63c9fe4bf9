"""The derived tables of a topic as DataFrames: typed columns, latest rows, quarantined records."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headwater.errors import UsageError
from headwater.security.store_options import without_secrets
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.tables_state import derived_uri


def derived_table(spark: SparkSession, location: TableLocation, kind: str) -> DataFrame:
    """The newest version of a derived table. Raises UsageError for one that is not there."""
    uri = derived_uri(location, kind)
    if uri is None:
        raise UsageError(
            f"topic {location.topic} has no {kind} table yet: set its config"
            " headwater.value.format (and headwater.latest.enable for kind='latest'), and run"
            " `headwater tier serve` or `headwater tier typed TOPIC --follow`"
        )
    options = without_secrets(location.storage_options)
    return spark.read.format("delta").options(**options).load(uri)
