"""The log tables of topics: where they are, their tiered offsets and files.

Any later version of a table serves a tiered range too, as rows never change and only files are
rewritten. Planning chooses the files, so that all tasks of a read use one version.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ids import id_from_text
from headwater_spark.source.broker_metadata import Brokers, Topic
from headwater_spark.source.cold_files import ColdFiles, cold_files
from headwater_spark.source.source_options import SourceOptions
from headwater_tier.delta import LogTable, table_exists
from headwater_tier.reader import TableReader
from headwater_tier.table_location import ENABLE_KEY, locate_table
from headwater_tier.table_names import TableLocation

logger = logging.getLogger(__name__)

OFFSETS = ("partition", "offset")


class History:
    """The log tables of the topics that one planner reads; keeps an open handle of each."""

    def __init__(self, brokers: Brokers, options: SourceOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._tiered: dict[str, bool] = {}
        self._tables: dict[str, tuple[str, LogTable, TableLocation]] = {}
        self._readers: dict[str, tuple[str, TableReader]] = {}

    def is_tiered(self, topic: str) -> bool:
        """True when the topic's config enables tiering, and this user may read its configs.

        Asked once per planner. A topic that is tiered from later on is still read completely, as
        brokers serve old offsets from the table too; so is one with READ alone, as Kafka's
        consumers have it, without DESCRIBE_CONFIGS.
        """
        if topic not in self._tiered:
            self._tiered[topic] = self._asked(topic)
        return self._tiered[topic]

    def _asked(self, topic: str) -> bool:
        try:
            found = self._brokers.topic_configs(topic, (ENABLE_KEY,))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            logger.info("all of %s is read from the brokers: %s", topic, error)
            return False
        return found.get(ENABLE_KEY) == "true"

    def look(self, topic: str, topic_id: str) -> ColdFiles | None:
        """The files of the newest version of the topic's table; None while there is no table."""
        known = self._tables.get(topic)
        if known is None or known[0] != topic_id:
            found = self._brokers.topics([topic])[topic]
            location = self._locate(found)
            if found.uuid != id_from_text(topic_id) or not table_exists(location):
                return None
            known = (topic_id, LogTable(location), location)
            self._tables[topic] = known
        return cold_files(known[2], known[1].refresh())

    def next_row(self, topic: str, topic_id: str, partition: int, offset: int) -> int:
        """The first offset from `offset` on that may have a row: past a gap in the table, if it is
        in one. Offsets that are not tiered may have rows."""
        reader = self._reader(topic, topic_id)
        return offset if reader is None else reader.next_offset(partition, offset)

    def runs(
        self, topic: str, topic_id: str, partition: int, start: int, end: int
    ) -> tuple[tuple[int, int], ...]:
        """The ranges of tiered offsets [start, end) between wide gaps."""
        reader = self._reader(topic, topic_id)
        return () if reader is None else tuple(reader.runs(partition, start, end))

    def _reader(self, topic: str, topic_id: str) -> TableReader | None:
        known = self._readers.get(topic)
        if known is not None and known[0] == topic_id:
            known[1].refresh()
            return known[1]
        files = self.look(topic, topic_id)
        if files is None:
            return None
        reader = TableReader(files.location, OFFSETS)
        self._readers[topic] = (topic_id, reader)
        return reader

    def ends_at(self, topic: str, at: int | datetime) -> Mapping[int, int]:
        """Partition -> tiered end in a version of the topic's table, or at a time.

        Raises UsageError for a topic without a table, TableAccessError without such a version.
        """
        location = self._locate(self._brokers.topics([topic])[topic])
        if not table_exists(location):
            raise UsageError(
                f"topic {topic} has no table at {location.uri}, so nothing of it was tiered:"
                " start with startingOffsets=earliest"
            )
        return LogTable(location, at=at).snapshot.ends

    def _locate(self, topic: Topic) -> TableLocation:
        return locate_table(
            self._brokers,
            topic,
            tables_uri=self._options.tables_uri,
            storage_options=self._options.storage_options,
        )
