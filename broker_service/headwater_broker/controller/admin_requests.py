"""Admin requests that brokers forward to the controller: wire request -> event -> wire reply.

The broker that received the request has authorized it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from headwater.config.layers import BrokerSettings
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k49_alter_client_quotas as k49
from headwater.wire.apis import k51_alter_user_scram_credentials as k51
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater.wire.apis.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from headwater.wire.control import ForwardRequest
from headwater.wire.schema import Message, decode, encode
from headwater_broker.controller.acl_requests import create_acls, delete_acls
from headwater_broker.controller.controller_loop import ControllerLoop
from headwater_broker.controller.credential_requests import credential_edits, credential_response
from headwater_broker.controller.decisions.config_changes import SET
from headwater_broker.controller.events import (
    AlterClientQuotas,
    AlterConfigs,
    AlterUserCredentials,
    ConfigEdit,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    NewTopic,
    PartitionGrowth,
    QuotaEdit,
    Reassign,
    ResourceKind,
    TopicResult,
)

PREFERRED_ELECTION, UNCLEAN_ELECTION = range(2)

Run = Callable[["AdminExecutor", ControllerLoop, Any], Awaitable[Message]]


class AdminExecutor:
    """Runs forwarded requests on the controller loop."""

    def __init__(self, settings: Callable[[], BrokerSettings]) -> None:
        self._settings = settings
        self._plain: tuple[BrokerSettings, tuple[CreatableTopicConfigs, ...]] | None = None
        """The config rows of a topic without overrides, kept for these settings: one request may
        create a thousand topics."""

    async def execute(self, controller: ControllerLoop, request: ForwardRequest) -> bytes:
        """The encoded reply body. Raises KafkaError (INVALID_REQUEST, NOT_CONTROLLER)."""
        known = _EXECUTED.get(request.forwarded_key)
        if known is None:
            text = f"API key {request.forwarded_key} is not forwarded"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        cls, run = known
        body = decode(cls, request.forwarded_version, request.body)
        return encode(await run(self, controller, body), request.forwarded_version)

    async def _create_topics(
        self, controller: ControllerLoop, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        specs = tuple(_new_topic(t) for t in request.topics)
        results = await controller.ask(
            lambda token: CreateTopics(token, specs, request.validate_only)
        )
        rows = tuple(self._created(r) for r in cast("tuple[TopicResult, ...]", results))
        return CreateTopicsResponse(topics=rows)

    def _created(self, result: TopicResult) -> CreatableTopicResult:
        if result.error is not ErrorCode.NONE:
            return CreatableTopicResult(
                name=result.name or "",
                error_code=result.error,
                error_message=result.message,
            )
        return CreatableTopicResult(
            name=result.name or "",
            topic_id=result.topic_id,
            error_code=result.error,
            error_message=None,
            num_partitions=result.num_partitions,
            replication_factor=result.replication_factor,
            configs=self._effective(result.configs),
        )

    def _effective(self, overrides: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        """Every topic config with its value and its source."""
        settings = self._settings()
        if overrides:
            return _topic_rows(settings, overrides)
        if self._plain is None or self._plain[0] is not settings:
            self._plain = settings, _topic_rows(settings, {})
        return self._plain[1]

    async def _delete_topics(
        self, controller: ControllerLoop, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        named = tuple((t.name, t.topic_id) for t in request.topics)
        rows = named or tuple((name, _ZERO) for name in request.topic_names)
        results = await controller.ask(lambda token: DeleteTopics(token, rows))
        return DeleteTopicsResponse(
            responses=tuple(
                DeletableTopicResult(
                    name=r.name, topic_id=r.topic_id, error_code=r.error, error_message=r.message
                )
                for r in cast("tuple[TopicResult, ...]", results)
            )
        )

    async def _create_partitions(
        self, controller: ControllerLoop, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        rows = tuple(_growth(t) for t in request.topics)
        results = await controller.ask(
            lambda token: CreatePartitions(token, rows, request.validate_only)
        )
        return CreatePartitionsResponse(
            results=tuple(
                CreatePartitionsTopicResult(
                    name=r.name or "", error_code=r.error, error_message=r.message
                )
                for r in cast("tuple[TopicResult, ...]", results)
            )
        )

    async def _alter_configs(
        self, controller: ControllerLoop, request: k33.AlterConfigsRequest
    ) -> k33.AlterConfigsResponse:
        asked = [
            (r.resource_type, r.resource_name, tuple((c.name, SET, c.value) for c in r.configs))
            for r in request.resources
        ]
        rows = await _edit(controller, asked, request.validate_only, replace=True)
        made = tuple(k33.AlterConfigsResourceResponse(**row) for row in rows)
        return k33.AlterConfigsResponse(responses=made)

    async def _incremental_alter_configs(
        self, controller: ControllerLoop, request: k44.IncrementalAlterConfigsRequest
    ) -> k44.IncrementalAlterConfigsResponse:
        asked = [
            (
                r.resource_type,
                r.resource_name,
                tuple((c.name, c.config_operation, c.value) for c in r.configs),
            )
            for r in request.resources
        ]
        rows = await _edit(controller, asked, request.validate_only, replace=False)
        made = tuple(k44.AlterConfigsResourceResponse(**row) for row in rows)
        return k44.IncrementalAlterConfigsResponse(responses=made)

    async def _alter_client_quotas(
        self, controller: ControllerLoop, request: k49.AlterClientQuotasRequest
    ) -> k49.AlterClientQuotasResponse:
        edits = tuple(
            QuotaEdit(
                tuple((e.entity_type, e.entity_name) for e in entry.entity),
                tuple((op.key, None if op.remove else op.value) for op in entry.ops),
            )
            for entry in request.entries
        )
        results = await controller.ask(
            lambda token: AlterClientQuotas(token, edits, request.validate_only)
        )
        return k49.AlterClientQuotasResponse(
            entries=tuple(
                k49.AlteredEntryData(
                    error_code=result.error, error_message=result.message, entity=entry.entity
                )
                for entry, result in zip(request.entries, results, strict=True)
            )
        )

    async def _alter_user_scram_credentials(
        self, controller: ControllerLoop, request: k51.AlterUserScramCredentialsRequest
    ) -> k51.AlterUserScramCredentialsResponse:
        refused, edits = credential_edits(request)
        results = await controller.ask(lambda token: AlterUserCredentials(token, edits))
        return credential_response(refused, edits, results)

    async def _elect_leaders(
        self, controller: ControllerLoop, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
            text = f"election type {request.election_type}: 0 is preferred, 1 is unclean"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        named = request.topic_partitions
        rows = None if named is None else tuple((t.topic, p) for t in named for p in t.partitions)
        unclean = request.election_type == UNCLEAN_ELECTION
        results = await controller.ask(lambda token: ElectLeaders(token, unclean, rows))
        # As in Kafka, an election of all partitions lists every topic, also those without
        # elections.
        asked_all = controller.machine.state.topics if named is None and controller.machine else ()
        by_topic: dict[str, list[PartitionResult]] = {topic: [] for topic in asked_all}
        for (topic, index), (code, text) in results.items():
            row = PartitionResult(partition_id=index, error_code=code, error_message=text)
            by_topic.setdefault(topic, []).append(row)
        return ElectLeadersResponse(
            error_code=ErrorCode.NONE,
            replica_election_results=tuple(
                ReplicaElectionResult(topic=topic, partition_result=tuple(found))
                for topic, found in by_topic.items()
            ),
        )

    async def _reassign(
        self, controller: ControllerLoop, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        targets = {
            (t.name, p.partition_index): p.replicas for t in request.topics for p in t.partitions
        }
        allowed = request.allow_replication_factor_change
        results = await controller.ask(lambda token: Reassign(token, targets, allowed))
        by_topic: dict[str, list[ReassignablePartitionResponse]] = {}
        for (topic, index), (code, text) in results.items():
            row = ReassignablePartitionResponse(
                partition_index=index, error_code=code, error_message=text
            )
            by_topic.setdefault(topic, []).append(row)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allowed,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=tuple(
                ReassignableTopicResponse(name=topic, partitions=tuple(found))
                for topic, found in by_topic.items()
            ),
        )

    async def _list_reassignments(
        self, controller: ControllerLoop, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        assert controller.machine is not None
        asked = request.topics
        wanted = (
            None if asked is None else {(t.name, p) for t in asked for p in t.partition_indexes}
        )
        by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
        for partition in controller.machine.state.reassigning.values():
            if wanted is None or (partition.topic, partition.index) in wanted:
                row = OngoingPartitionReassignment(
                    partition_index=partition.index,
                    replicas=partition.replicas,
                    adding_replicas=partition.joining,
                    removing_replicas=partition.removing,
                )
                by_topic.setdefault(partition.topic, []).append(row)
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            topics=tuple(
                OngoingTopicReassignment(name=topic, partitions=tuple(found))
                for topic, found in by_topic.items()
            ),
        )


def _new_topic(row: CreatableTopic) -> NewTopic:
    times = Counter(a.partition_index for a in row.assignments)
    return NewTopic(
        name=row.name,
        num_partitions=row.num_partitions,
        replication_factor=row.replication_factor,
        assignments={a.partition_index: a.broker_ids for a in row.assignments},
        repeated=tuple(sorted(index for index, count in times.items() if count > 1)),
        configs={c.name: c.value for c in row.configs},
    )


def _growth(row: CreatePartitionsTopic) -> PartitionGrowth:
    given = row.assignments
    assignments = None if given is None else tuple(a.broker_ids for a in given)
    return PartitionGrowth(row.name, row.count, assignments)


Asked = tuple[int, str, tuple[tuple[str, int, str | None], ...]]
"""(kind, name, operations) of one resource."""


async def _edit(
    controller: ControllerLoop, asked: Sequence[Asked], validate_only: bool, *, replace: bool
) -> list[dict[str, Any]]:
    """The fields of one response row per resource, in the order of the request."""
    edits = tuple(
        ConfigEdit(ResourceKind(kind), name, replace, operations)
        for kind, name, operations in asked
    )
    results = await controller.ask(lambda token: AlterConfigs(token, edits, validate_only))
    return [
        {
            "error_code": result.error,
            "error_message": result.message,
            "resource_type": int(edit.kind),
            "resource_name": edit.name,
        }
        for edit, result in zip(edits, cast("tuple[TopicResult, ...]", results), strict=True)
    ]


def _topic_rows(
    settings: BrokerSettings, overrides: Mapping[str, str]
) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=key.name,
            value=value,
            read_only=False,
            config_source=source,
            is_sensitive=key.is_sensitive,
        )
        for key, value, source, _ in settings.topic_rows(overrides)
    )


_ZERO = DeletableTopicResult(name=None, error_code=0).topic_id

_EXECUTED: dict[int, tuple[type[Message], Run]] = {
    cls.api_key: (cls, cast(Run, run))
    for cls, run in (
        (CreateTopicsRequest, AdminExecutor._create_topics),
        (DeleteTopicsRequest, AdminExecutor._delete_topics),
        (CreatePartitionsRequest, AdminExecutor._create_partitions),
        (k30.CreateAclsRequest, create_acls),
        (k31.DeleteAclsRequest, delete_acls),
        (k33.AlterConfigsRequest, AdminExecutor._alter_configs),
        (k44.IncrementalAlterConfigsRequest, AdminExecutor._incremental_alter_configs),
        (k49.AlterClientQuotasRequest, AdminExecutor._alter_client_quotas),
        (k51.AlterUserScramCredentialsRequest, AdminExecutor._alter_user_scram_credentials),
        (ElectLeadersRequest, AdminExecutor._elect_leaders),
        (AlterPartitionReassignmentsRequest, AdminExecutor._reassign),
        (ListPartitionReassignmentsRequest, AdminExecutor._list_reassignments),
    )
}
