"""The Delta table whose commits decide epochs: writes, fences, and what its history shows.

Every commit carries Delta's app transaction (txnAppId: the sink, txnVersion: the ticket), and its
user metadata names the epoch, so DESCRIBE HISTORY shows epochs. Delta passes over a write whose
version is not above the one in the table, and of two concurrent writes of one app only one commits.
Only public options and settings of Delta are used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.client.sink_values import SinkEpoch
from headwater_spark.sink.commit_metadata import CommitMetadata, last_epoch, read_commit
from headwater_spark.sink.delta_log_file import table_folder, user_metadata
from headwater_spark.sink.epoch_decided_by_table import (
    NO_EPOCH,
    DisagreementError,
    TableCommit,
    Verdict,
)

logger = logging.getLogger(__name__)

APP_ID = "spark.databricks.delta.write.txnAppId"
APP_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""Set by Delta at each commit of the session, and not by a write that it passed over."""
CONCURRENT = "DELTA_CONCURRENT_TRANSACTION"
FENCE_ATTEMPTS = 10
HISTORY_STEP = 100
CLOCKS_APART_MS = 3_600_000
"""Brokers' and Spark's clocks may differ by this."""

MergeClauses = Callable[[DeltaMergeBuilder], DeltaMergeBuilder]


@dataclass(frozen=True, slots=True)
class Append:
    """Rows to append."""

    rows: DataFrame
    partition_by: Sequence[str]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """Rows to merge."""

    rows: DataFrame
    on: str
    clauses: MergeClauses
    aliases: tuple[str, str]
    """Of the table and of the rows."""


def update_and_insert(merge: DeltaMergeBuilder) -> DeltaMergeBuilder:
    """Update the rows that match, insert the others."""
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


class DeltaDecisionTable:
    """A table by path or name, in the session of a micro-batch, for one sink."""

    def __init__(
        self, session: SparkSession, table: str, sink: str, *, history_step: int = HISTORY_STEP
    ) -> None:
        """`history_step`: so many commits are read first."""
        self._session = session
        self._history_step = history_step
        self.name = table
        self._sink = sink
        self._is_path = "/" in table
        self._is_found = False
        self.written: TableCommit | None = None
        """The commit of the last `write`; None if it made none."""

    def exists(self) -> bool:
        """Whether the table is there. Once it was, it is not looked for again."""
        if not self._is_found:
            self._is_found = self._find()
        return self._is_found

    def _find(self) -> bool:
        if self._is_path:
            return bool(DeltaTable.isDeltaTable(self._session, self.name))
        return bool(self._session.catalog.tableExists(self.name))

    def create(self, rows: DataFrame, partition_by: Sequence[str]) -> None:
        """An empty table of these columns, unless it exists: a fence needs a table."""
        if not self.exists():
            empty = self._session.createDataFrame([], rows.schema)
            writer = empty.write.format("delta").mode("ignore").partitionBy(*partition_by)
            self._save(writer)

    def write(self, write: Append | Merge | None, writer: EpochWriter) -> bool:
        """Commit an epoch's rows, or none; False: Delta passed over the write.

        Raises DisagreementError when the table was there and is not any more: Delta would append
        to a new one.
        """
        metadata = CommitMetadata(self._sink, writer.epoch, writer.ticket).text()
        version = self._written_version(write, writer, metadata)
        self.written = None if version is None else TableCommit(version, metadata)
        return version is not None

    def _written_version(
        self, write: Append | Merge | None, writer: EpochWriter, metadata: str
    ) -> int | None:
        if isinstance(write, Append):
            self._check_there()  # it may have gone while topics were written
            session = write.rows.sparkSession
            return self._commits(session, metadata, lambda: self._append(write, writer, metadata))
        if write is None:
            return self._commits(
                self._session, metadata, lambda: self._empty_commit(writer.ticket, metadata)
            )
        with _settings(self._session, self._sink, writer.ticket, metadata):
            merge = self._delta_table().alias(write.aliases[0])
            builder = merge.merge(write.rows.alias(write.aliases[1]), write.on)
            return self._commits(self._session, metadata, lambda: write.clauses(builder).execute())

    def has(self, commit: TableCommit) -> bool:
        """Whether the table has a commit of this sink. Reads the file of that version in the log,
        as Delta's own ways cost a job; one that was cleaned up is believed.
        Raises DisagreementError when the table was there and is not any more."""
        self._check_there()
        folder = self.name if self._is_path else table_folder(self._session, self.name)
        metadata = user_metadata(self._session, f"{folder}/_delta_log/{commit.version:020d}.json")
        if metadata is not None:
            return metadata == commit.metadata
        newest = self._delta_table().history(1).select("version").collect()
        return bool(newest[0].version >= commit.version)

    def _check_there(self) -> None:
        if self._is_found and not self._find():
            raise DisagreementError(
                f"table {self.name} of sink {self._sink!r} was there when this micro-batch began,"
                " and is not any more: is its storage mounted? The epoch is not written to a new"
                " one. Start the query again when it is there"
            )

    def fence(self, ticket: int) -> bool:
        """Make every write of a lower ticket impossible; False: a later ticket is there already."""
        metadata = CommitMetadata(self._sink, None, ticket).text()
        for attempt in range(FENCE_ATTEMPTS):
            try:
                version = self._commits(
                    self._session, metadata, lambda: self._empty_commit(ticket, metadata)
                )
                return version is not None
            except PySparkException as error:  # an earlier run's commit came in between
                if CONCURRENT not in str(error) or attempt == FENCE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def verdict(self, epoch: SinkEpoch) -> Verdict:
        """Whether a prepared epoch's ticket, below a fence, has written."""
        since_ms = epoch.start_ms - CLOCKS_APART_MS
        rows, is_whole = self._history(lambda _found, oldest_ms: oldest_ms < since_ms)
        if any(row.ticket == epoch.ticket and row.epoch == epoch.epoch for row in rows):
            return Verdict.WRITTEN
        return Verdict.ABSENT if is_whole else Verdict.UNKNOWN

    def last_epoch(self) -> int | None:
        """The last epoch of the sink in the table; NO_EPOCH: it has none. None: its history does
        not reach back far enough to tell."""
        if not self.exists():
            return NO_EPOCH
        commits, is_whole = self._history(lambda found, _oldest_ms: last_epoch(found) is not None)
        shown = last_epoch(commits)
        return NO_EPOCH if shown is None and is_whole else shown

    def _history(
        self, is_enough: Callable[[list[CommitMetadata], int], bool]
    ) -> tuple[list[CommitMetadata], bool]:
        """The sink's commits, the newest first, and whether `is_enough` says so of them and of the
        oldest time seen, or the table's first version was seen."""
        limit = self._history_step
        while True:
            rows = (
                self._delta_table()
                .history(limit)
                .selectExpr("version", "unix_millis(timestamp) AS ms", "userMetadata")
                .collect()
            )
            found = [read_commit(row.userMetadata) for row in rows]
            commits = [c for c in found if c is not None and c.sink == self._sink]
            oldest = min(rows, key=lambda row: row.version)
            if oldest.version == 0 or is_enough(commits, oldest.ms):
                return commits, True
            if len(rows) < limit:
                return commits, False
            limit *= self._history_step

    def _append(self, write: Append, writer: EpochWriter, metadata: str) -> None:
        made = write.rows.write.format("delta").mode("append").options(**write.options)
        made = made.option("txnAppId", self._sink).option("txnVersion", writer.ticket)
        if write.partition_by:
            made = made.partitionBy(*write.partition_by)
        self._save(made.option("userMetadata", metadata))

    def _empty_commit(self, ticket: int, metadata: str) -> None:
        """A commit with an app transaction and no rows."""
        rows = self._delta_table().toDF().limit(0)
        made = rows.write.format("delta").mode("append").option("userMetadata", metadata)
        try:
            self._save(made.option("txnAppId", self._sink).option("txnVersion", ticket))
        except AnalysisException as error:
            # An identity column takes no values from an append, but a merge needs none.
            logger.debug("no empty append to %s (%s): merging", self.name, error)
            with _settings(self._session, self._sink, ticket, metadata):
                target = self._delta_table().alias("target")
                target.merge(rows.alias("source"), "false").whenMatchedDelete().execute()

    def _commits(
        self, session: SparkSession, metadata: str, write: Callable[[], Any]
    ) -> int | None:
        """The version that `write` has committed; None: Delta passed over it, without an error."""
        session.conf.unset(LAST_COMMIT)
        write()
        version = session.conf.get(LAST_COMMIT, None)
        if version is None:
            return None
        if _is_same(session, self._session):
            return int(version)
        # The rows belong to another session, where other threads may commit.
        history = self._delta_table().history(self._history_step)
        rows = history.select("version", "userMetadata").collect()
        return next((int(row.version) for row in rows if row.userMetadata == metadata), None)

    def _delta_table(self) -> DeltaTable:
        if self._is_path:
            return DeltaTable.forPath(self._session, self.name)
        return DeltaTable.forName(self._session, self.name)

    def _save(self, writer: Any) -> None:
        if self._is_path:
            writer.save(self.name)
        else:
            writer.saveAsTable(self.name)


@contextmanager
def _settings(session: SparkSession, sink: str, ticket: int, metadata: str) -> Iterator[None]:
    """Settings of a write that takes no options. The session is the micro-batch's own."""
    values = {APP_ID: sink, APP_VERSION: str(ticket), USER_METADATA: metadata}
    before = {name: session.conf.get(name, None) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _is_same(one: SparkSession, other: SparkSession) -> bool:
    return bool(one._jsparkSession.equals(other._jsparkSession))
