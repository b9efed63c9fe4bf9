"""Topics, offsets and configs from the brokers, for planning what to read and tier. Blocking.

TierHint is Headwater's own; everything else works with Kafka's brokers too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.client.blocking.record_client import (
    EARLIEST,
    EARLIEST_LOCAL,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RecordClient,
)
from headwater.client.core.metadata import NO_LEADER
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ids import id_text
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headwater.wire.apis.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.apis.k10011_tier_hint import TierHintRequest, TierHintResponse

logger = logging.getLogger(__name__)

HINT_TIMEOUT_S = 2.0
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
OP_SET = 0
CONFIG_TOPICS_MAX = 200
"""Topics of one DescribeConfigs request."""
ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
"""The words of `isolation.level`, and their numbers on the wire."""

PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's metadata; `topic_id` is the id in Kafka's base64 form."""

    name: str
    topic_id: str
    uuid: UUID
    partitions: int
    is_internal: bool
    leaders: tuple[int, ...]
    replicas: tuple[int, ...] = ()
    """Ids of the brokers that host a replica of any partition."""


class BrokerMetadata:
    """Requests to one cluster from a planner. One thread at a time."""

    def __init__(self, bootstrap_servers: str, client: RecordClient) -> None:
        """`client` is closed by `close`."""
        self.bootstrap_servers = bootstrap_servers
        self._client = client
        self._missing: set[str] = set()
        """Topics that `topics_that_exist` last found missing."""

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """The current metadata of topics (None: of all). Raises UsageError for an unknown topic."""
        try:
            found = self._client.metadata(names)
        except KafkaError as e:
            if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UsageError(
                    f"{e.detail or names} does not exist at {self.bootstrap_servers}"
                ) from e
            raise
        return {
            name: Topic(
                name=name,
                topic_id=id_text(topic.topic_id),
                uuid=topic.topic_id,
                partitions=len(topic.partitions),
                is_internal=topic.is_internal,
                leaders=tuple(p.leader for p in topic.partitions),
                replicas=tuple(sorted({b for p in topic.partitions for b in p.replicas})),
            )
            for name, topic in found.items()
        }

    def topics_that_exist(self, names: Iterable[str]) -> dict[str, Topic]:
        """The current metadata of those of these topics that exist."""
        wanted = set(names)
        found: dict[str, Topic] | None = None
        if not self._missing & wanted:  # else naming it would wait for it again
            try:
                found = self.topics(sorted(wanted))
            except UsageError:
                logger.info("not every topic of %s exists", sorted(wanted))
        if found is None:
            found = {name: t for name, t in self.topics(None).items() if name in wanted}
        self._missing = wanted - found.keys()
        return found

    def list_offsets(
        self, wanted: Mapping[PartitionId, int], isolation_level: str = "read_uncommitted"
    ) -> dict[PartitionId, int]:
        """Each partition's offset at a timestamp, EARLIEST or LATEST; -1 without such a record."""
        isolation = ISOLATION_LEVELS[isolation_level]
        found = self._client.list_offsets(dict(wanted), isolation)
        return {tp: at.offset for tp, at in found.items()}

    def local_starts(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """The local log start offsets of the leaders (KIP-405)."""
        wanted = list(partitions)
        try:
            return self.list_offsets(dict.fromkeys(wanted, EARLIEST_LOCAL))
        except KafkaError as e:
            if e.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
                raise
            return self.list_offsets(dict.fromkeys(wanted, EARLIEST))

    def topic_configs(self, topic: str, keys: Iterable[str]) -> dict[str, str]:
        """The topic's values of config keys, without keys that the broker does not know."""
        request = _describe(RESOURCE_TOPIC, [topic], keys)
        reply = self._client.call_any(request, DescribeConfigsResponse, _check_described)
        return _values(reply.results[0])

    def configs_of_topics(
        self, topics: Iterable[str], keys: Iterable[str]
    ) -> dict[str, dict[str, str]]:
        """The same of many topics, by topic; without those that are gone or not for this user."""
        names, wanted = list(topics), tuple(keys)
        found: dict[str, dict[str, str]] = {}
        for at in range(0, len(names), CONFIG_TOPICS_MAX):
            request = _describe(RESOURCE_TOPIC, names[at : at + CONFIG_TOPICS_MAX], wanted)
            for answer in self._client.call_any(request, DescribeConfigsResponse).results:
                if not answer.error_code:
                    found[answer.resource_name] = _values(answer)
        return found

    def broker_configs(
        self, broker_id: int, keys: Iterable[str], timeout_s: float | None = None
    ) -> dict[str, str]:
        """A broker's values of config keys."""
        request = _describe(RESOURCE_BROKER, [str(broker_id)], keys)
        reply = self._client.call_broker(
            broker_id, request, DescribeConfigsResponse, timeout_s=timeout_s
        )
        _check_described(reply)
        return _values(reply.results[0])

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """Set one config of a topic with IncrementalAlterConfigs (KIP-339)."""
        request = IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=RESOURCE_TOPIC,
                    resource_name=topic,
                    configs=(AlterableConfig(name=key, config_operation=OP_SET, value=value),),
                ),
            ),
            validate_only=False,
        )

        def check(reply: IncrementalAlterConfigsResponse) -> None:
            answer = reply.responses[0]
            if answer.error_code:
                detail = answer.error_message or ""
                raise kafka_error(answer.error_code, f"set {key}={value} on {topic}: {detail}")

        self._client.call_any(request, IncrementalAlterConfigsResponse, check)

    def hint(self, topic: Topic) -> None:
        """Notify all replicas' brokers that the topic's table has a new version.

        A broker reads the table itself before it drops local segments, followers too: a lost hint
        only costs time.
        """
        request = TierHintRequest(topic_id=topic.uuid)
        for broker in sorted({*topic.leaders, *topic.replicas} - {NO_LEADER}):
            try:
                self._client.call_broker(
                    broker, request, TierHintResponse, timeout_s=HINT_TIMEOUT_S
                )
            except (KafkaError, OSError) as e:
                logger.info("broker %d was not notified of the new table version: %s", broker, e)


def _describe(kind: int, names: Iterable[str], keys: Iterable[str]) -> DescribeConfigsRequest:
    wanted = tuple(keys)
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=wanted
            )
            for name in names
        ),
        include_synonyms=False,
        include_documentation=False,
    )


def _check_described(reply: DescribeConfigsResponse) -> None:
    answer = reply.results[0]
    if answer.error_code:
        detail = answer.error_message or ""
        raise kafka_error(answer.error_code, f"configs of {answer.resource_name}: {detail}")


def _values(answer: DescribeConfigsResult) -> dict[str, str]:
    return {row.name: row.value for row in answer.configs if row.value is not None}
