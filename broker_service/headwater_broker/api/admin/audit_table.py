"""Which API keys change the cluster, and what their audit lines say (`audit_lines`).

Not in it, as it is the work of clients and brokers, not of an administrator: records, members and
their commits, transactions, epochs of sinks, the state of share partitions. A test holds every key
of the broker to be here or there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from headwater.config.keys import BROKER_KEYS, TOPIC_KEYS
from headwater.config.row import ConfigKey
from headwater.config.rows_groups import GROUP_KEYS
from headwater.ports.authorizer import Operation
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k21_delete_records as k21
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k34_alter_replica_log_dirs as k34
from headwater.wire.apis import k37_create_partitions as k37
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k43_elect_leaders as k43
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k45_alter_partition_reassignments as k45
from headwater.wire.apis import k47_offset_delete as k47
from headwater.wire.apis import k91_alter_share_group_offsets as k91
from headwater.wire.apis import k92_delete_share_group_offsets as k92
from headwater.wire.apis import k10007_delete_sinks as k10007
from headwater.wire.apis import k10008_take_over_sink as k10008
from headwater.wire.apis import k10012_drain_broker as k10012
from headwater.wire.apis import k10013_share_holds as k10013
from headwater.wire.share_hold_operation import ShareHoldOperation
from headwater_broker.api.admin.audit_lines import WHOLE, Audit, Change, Outcome, whole
from headwater_broker.api.admin.audit_table_of_security import AUDITED_OF_SECURITY
from headwater_broker.api.admin.config_authorization import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext

VALUE_MAX = 200
"""Characters of a config's value that are written."""
NO_BROKER = -1
BY_HIGH_WATERMARK = -1
DEFAULT = "<default>"
CONFIG_RESOURCES: Mapping[int, tuple[str, Mapping[str, ConfigKey]]] = {
    TOPIC_RESOURCE: ("topic", TOPIC_KEYS),
    BROKER_RESOURCE: ("broker", BROKER_KEYS),
    BROKER_LOGGER_RESOURCE: ("loggers of broker", {}),
    GROUP_RESOURCE: ("group", GROUP_KEYS),
}
CONFIG_OPERATIONS = ("=", " removed", "+=", "-=")
"""How a line shows SET, DELETE, APPEND, SUBTRACT."""
ELECTIONS = ("preferred", "unclean")
ENDS_OF_HOLDS: Mapping[int, str] = {
    ShareHoldOperation.END_ACCEPTED: "accepted",
    ShareHoldOperation.END_RELEASED: "given back",
}


def _ids(numbers: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, numbers)) + "]"


# Topics and their partitions.


def _created(_ctx: RequestContext, request: k19.CreateTopicsRequest) -> Iterator[Change]:
    for topic in request.topics if not request.validate_only else ():
        count, factor = topic.num_partitions, topic.replication_factor
        parts = [
            f"{count} partitions" if count > 0 else "",
            f"replication factor {factor}" if factor > 0 else "",
            *(f"{a.partition_index} on {_ids(a.broker_ids)}" for a in topic.assignments),
            *(_config(TOPIC_RESOURCE, c.name, c.value) for c in topic.configs),
        ]
        yield topic.name, ", ".join([f"topic {topic.name}", *filter(None, parts)])


def _created_rows(reply: k19.CreateTopicsResponse) -> Iterator[Outcome]:
    return (Outcome(row.name, row.error_code) for row in reply.topics)


def _deleted(ctx: RequestContext, request: k20.DeleteTopicsRequest) -> Iterator[Change]:
    for name in request.topic_names:
        yield name, f"topic {name}"
    for row in request.topics:
        if row.name is not None:
            yield row.name, f"topic {row.name}"
        else:
            known = ctx.broker.view.topic_by_id.get(row.topic_id)
            name = "of unknown name" if known is None else known.name
            yield row.topic_id, f"topic {name} (id {row.topic_id})"


def _deleted_rows(reply: k20.DeleteTopicsResponse) -> Iterator[Outcome]:
    for row in reply.responses:
        yield Outcome(row.name if row.name is not None else row.topic_id, row.error_code)
        if row.name is not None and row.topic_id != UUID(int=0):
            yield Outcome(row.topic_id, row.error_code)


def _records(_ctx: RequestContext, request: k21.DeleteRecordsRequest) -> Iterator[Change]:
    for topic in request.topics:
        for p in topic.partitions:
            is_all = p.offset == BY_HIGH_WATERMARK
            before = "the high watermark" if is_all else f"offset {p.offset}"
            key = topic.name, p.partition_index
            yield key, f"records of {topic.name}-{p.partition_index} before {before}"


def _records_rows(reply: k21.DeleteRecordsResponse) -> Iterator[Outcome]:
    for topic in reply.topics:
        for p in topic.partitions:
            yield Outcome((topic.name, p.partition_index), p.error_code)


def _markers(ctx: RequestContext, request: k27.WriteTxnMarkersRequest) -> Iterator[Change]:
    """An operator's: a coordinator names its broker, and has the right of brokers."""
    if request.broker_id != NO_BROKER:
        with ctx.session.quietly():
            if may_on_cluster(ctx, Operation.CLUSTER_ACTION):
                return
    for row in request.markers:
        what = "commit" if row.transaction_result else "abort"
        for topic in row.topics:
            for p in topic.partition_indexes:
                text = f"{what} of producer {row.producer_id}, epoch {row.producer_epoch}"
                yield (row.producer_id, topic.name, p), f"{text}, on {topic.name}-{p}"


def _markers_rows(reply: k27.WriteTxnMarkersResponse) -> Iterator[Outcome]:
    for row in reply.markers:
        for topic in row.topics:
            for p in topic.partitions:
                key = row.producer_id, topic.name, p.partition_index
                yield Outcome(key, p.error_code)


def _folders(_ctx: RequestContext, request: k34.AlterReplicaLogDirsRequest) -> Iterator[Change]:
    for folder in request.dirs:
        for topic in folder.topics:
            for p in topic.partitions:
                yield (topic.name, p), f"replica of {topic.name}-{p} to {folder.path}"


def _folders_rows(reply: k34.AlterReplicaLogDirsResponse) -> Iterator[Outcome]:
    for topic in reply.results:
        for p in topic.partitions:
            yield Outcome((topic.topic_name, p.partition_index), p.error_code)


def _grown(_ctx: RequestContext, request: k37.CreatePartitionsRequest) -> Iterator[Change]:
    for topic in request.topics if not request.validate_only else ():
        placed = ", ".join(_ids(a.broker_ids) for a in topic.assignments or ())
        where = f" on {placed}" if placed else ""
        yield topic.name, f"topic {topic.name} to {topic.count} partitions{where}"


def _grown_rows(reply: k37.CreatePartitionsResponse) -> Iterator[Outcome]:
    return (Outcome(row.name, row.error_code) for row in reply.results)


def _elections(_ctx: RequestContext, request: k43.ElectLeadersRequest) -> Iterator[Change]:
    known = 0 <= request.election_type < len(ELECTIONS)
    kind = ELECTIONS[request.election_type] if known else f"type {request.election_type}"
    if request.topic_partitions is None:
        yield WHOLE, f"{kind} leaders of all partitions"
    for topic in request.topic_partitions or ():
        for p in topic.partitions:
            yield (topic.topic, p), f"{kind} leader of {topic.topic}-{p}"


def _elections_rows(reply: k43.ElectLeadersResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for topic in reply.replica_election_results:
        for p in topic.partition_result:
            yield Outcome((topic.topic, p.partition_id), p.error_code)


def _reassigned(
    _ctx: RequestContext, request: k45.AlterPartitionReassignmentsRequest
) -> Iterator[Change]:
    for topic in request.topics:
        for p in topic.partitions:
            to = "as before" if p.replicas is None else f"to {_ids(p.replicas)}"
            key = topic.name, p.partition_index
            yield key, f"replicas of {topic.name}-{p.partition_index} {to}"


def _reassigned_rows(reply: k45.AlterPartitionReassignmentsResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for topic in reply.responses:
        for p in topic.partitions:
            yield Outcome((topic.name, p.partition_index), p.error_code)


# Configs. Values are shown of keys that are known and hold no secret: a request may name any key.


def _config(kind: int, name: str, value: str | None, operation: int = 0) -> str:
    known = 0 <= operation < len(CONFIG_OPERATIONS)
    sign = CONFIG_OPERATIONS[operation] if known else f" operation {operation} "
    if operation == 1:
        return f"{name}{sign}"
    row = CONFIG_RESOURCES.get(kind, ("", {}))[1].get(name)
    is_level = kind == BROKER_LOGGER_RESOURCE and value in logging.getLevelNamesMapping()
    is_shown = is_level or (row is not None and not row.is_sensitive)
    shown = "(null)" if value is None else value[:VALUE_MAX] if is_shown else "(hidden)"
    return f"{name}{sign}{shown}"


def _resource(kind: int, name: str) -> str:
    return f"{CONFIG_RESOURCES.get(kind, (f'resource type {kind}', {}))[0]} {name or DEFAULT}"


def _replaced(_ctx: RequestContext, request: k33.AlterConfigsRequest) -> Iterator[Change]:
    for row in request.resources if not request.validate_only else ():
        key = row.resource_type, row.resource_name
        configs = ", ".join(_config(row.resource_type, c.name, c.value) for c in row.configs)
        yield key, f"all configs of {_resource(*key)}: {configs or 'none'}"


def _altered(_ctx: RequestContext, request: k44.IncrementalAlterConfigsRequest) -> Iterator[Change]:
    for row in request.resources if not request.validate_only else ():
        key = row.resource_type, row.resource_name
        configs = ", ".join(
            _config(row.resource_type, c.name, c.value, c.config_operation) for c in row.configs
        )
        yield key, f"{_resource(*key)}: {configs}"


class _ConfigRow(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def error_code(self) -> int: ...


def _config_rows(
    reply: k33.AlterConfigsResponse | k44.IncrementalAlterConfigsResponse,
) -> Iterator[Outcome]:
    rows: Iterable[_ConfigRow] = reply.responses
    return (Outcome((r.resource_type, r.resource_name), r.error_code) for r in rows)


# Groups and sinks.


def _groups(_ctx: RequestContext, request: k42.DeleteGroupsRequest) -> Iterator[Change]:
    return ((name, f"group {name}") for name in dict.fromkeys(request.groups_names))


def _groups_rows(reply: k42.DeleteGroupsResponse) -> Iterator[Outcome]:
    return (Outcome(row.group_id, row.error_code) for row in reply.results)


def _offsets(_ctx: RequestContext, request: k47.OffsetDeleteRequest) -> Iterator[Change]:
    for topic in request.topics:
        for p in topic.partitions:
            key = topic.name, p.partition_index
            yield key, f"offset of group {request.group_id} in {topic.name}-{p.partition_index}"


def _offsets_rows(reply: k47.OffsetDeleteResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for topic in reply.topics:
        for p in topic.partitions:
            yield Outcome((topic.name, p.partition_index), p.error_code)


def _share_offsets(
    _ctx: RequestContext, request: k91.AlterShareGroupOffsetsRequest
) -> Iterator[Change]:
    for topic in request.topics:
        for p in topic.partitions:
            where = f"{topic.topic_name}-{p.partition_index}"
            text = f"share group {request.group_id} to offset {p.start_offset} of {where}"
            yield (topic.topic_name, p.partition_index), text


def _share_offsets_rows(reply: k91.AlterShareGroupOffsetsResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for topic in reply.responses:
        for p in topic.partitions:
            yield Outcome((topic.topic_name, p.partition_index), p.error_code)


def _share_topics(
    _ctx: RequestContext, request: k92.DeleteShareGroupOffsetsRequest
) -> Iterator[Change]:
    for topic in request.topics:
        yield topic.topic_name, f"share group {request.group_id}'s topic {topic.topic_name}"


def _share_topics_rows(reply: k92.DeleteShareGroupOffsetsResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for topic in reply.responses:
        yield Outcome(topic.topic_name, topic.error_code)


def _holds(ctx: RequestContext, request: k10013.ShareHoldsRequest) -> Iterator[Change]:
    """An operator's: the other operations are those of queries."""
    end = ENDS_OF_HOLDS.get(request.operation)
    for row in request.partitions if end is not None else ():
        known = ctx.broker.view.topic_by_id.get(row.topic_id)
        where = f"{row.topic_id if known is None else known.name}-{row.partition}"
        text = f"holds of {request.owner} in share group {request.group_id}, {where}: {end}"
        yield (row.topic_id, row.partition), text


def _holds_rows(reply: k10013.ShareHoldsResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for row in reply.partitions:
        yield Outcome((row.topic_id, row.partition), row.error_code)


def _sinks(_ctx: RequestContext, request: k10007.DeleteSinksRequest) -> Iterator[Change]:
    return ((name, f"sink {name}") for name in request.sinks)


def _sinks_rows(reply: k10007.DeleteSinksResponse) -> Iterator[Outcome]:
    yield Outcome(WHOLE, reply.error_code)
    for row in reply.sinks:
        yield Outcome(row.sink, row.error_code)


def _taken_over(_ctx: RequestContext, request: k10008.TakeOverSinkRequest) -> Iterator[Change]:
    yield WHOLE, f"sink {request.sink} to owner {request.owner}, after epoch {request.last_epoch}"


def _drained(ctx: RequestContext, _request: k10012.DrainBrokerRequest) -> Iterator[Change]:
    yield WHOLE, f"end of broker {ctx.broker.broker_id}"


AUDITED: Mapping[int, Audit[Any, Any]] = MappingProxyType(
    {
        **AUDITED_OF_SECURITY,
        k19.CreateTopicsRequest.api_key: Audit(_created, _created_rows),
        k20.DeleteTopicsRequest.api_key: Audit(_deleted, _deleted_rows),
        k21.DeleteRecordsRequest.api_key: Audit(_records, _records_rows),
        k27.WriteTxnMarkersRequest.api_key: Audit(_markers, _markers_rows),
        k33.AlterConfigsRequest.api_key: Audit(_replaced, _config_rows),
        k34.AlterReplicaLogDirsRequest.api_key: Audit(_folders, _folders_rows),
        k37.CreatePartitionsRequest.api_key: Audit(_grown, _grown_rows),
        k42.DeleteGroupsRequest.api_key: Audit(_groups, _groups_rows),
        k43.ElectLeadersRequest.api_key: Audit(_elections, _elections_rows),
        k44.IncrementalAlterConfigsRequest.api_key: Audit(_altered, _config_rows),
        k45.AlterPartitionReassignmentsRequest.api_key: Audit(_reassigned, _reassigned_rows),
        k47.OffsetDeleteRequest.api_key: Audit(_offsets, _offsets_rows),
        k91.AlterShareGroupOffsetsRequest.api_key: Audit(_share_offsets, _share_offsets_rows),
        k92.DeleteShareGroupOffsetsRequest.api_key: Audit(_share_topics, _share_topics_rows),
        k10007.DeleteSinksRequest.api_key: Audit(_sinks, _sinks_rows),
        k10008.TakeOverSinkRequest.api_key: Audit(_taken_over, whole),
        k10012.DrainBrokerRequest.api_key: Audit(_drained, whole),
        k10013.ShareHoldsRequest.api_key: Audit(_holds, _holds_rows),
    }
)
"""By API key."""
