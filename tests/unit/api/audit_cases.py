"""One request and reply of each API key that is audited, and what its audit lines say."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import PatternType, PermissionType
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k21_delete_records as k21
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k34_alter_replica_log_dirs as k34
from headwater.wire.apis import k37_create_partitions as k37
from headwater.wire.apis import k38_create_delegation_token as k38
from headwater.wire.apis import k39_renew_delegation_token as k39
from headwater.wire.apis import k40_expire_delegation_token as k40
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k43_elect_leaders as k43
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k45_alter_partition_reassignments as k45
from headwater.wire.apis import k47_offset_delete as k47
from headwater.wire.apis import k48_describe_client_quotas as k48
from headwater.wire.apis import k49_alter_client_quotas as k49
from headwater.wire.apis import k51_alter_user_scram_credentials as k51
from headwater.wire.apis import k91_alter_share_group_offsets as k91
from headwater.wire.apis import k92_delete_share_group_offsets as k92
from headwater.wire.apis import k10007_delete_sinks as k10007
from headwater.wire.apis import k10008_take_over_sink as k10008
from headwater.wire.apis import k10012_drain_broker as k10012
from headwater.wire.apis import k10013_share_holds as k10013
from headwater.wire.schema import Message

HERE, GONE = UUID(int=5), UUID(int=6)
"""The ids of a topic that exists, and of one that does not."""


def creation(name: str, principal: str = "User:b") -> k30.AclCreation:
    return k30.AclCreation(
        resource_type=ResourceType.TOPIC, resource_name=name,
        resource_pattern_type=PatternType.LITERAL, principal=principal, host="*",
        operation=Operation.READ, permission_type=PermissionType.ALLOW,
    )  # fmt: skip


def acl_filter(name: str | None) -> k31.DeleteAclsFilter:
    return k31.DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC, resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL, principal_filter=None, host_filter=None,
        operation=Operation.ANY, permission_type=PermissionType.ANY,
    )  # fmt: skip


def deleted(name: str) -> k31.DeleteAclsMatchingAcl:
    return k31.DeleteAclsMatchingAcl(
        error_code=0, error_message=None, resource_type=ResourceType.TOPIC, resource_name=name,
        pattern_type=PatternType.LITERAL, principal="User:b", host="*", operation=Operation.READ,
        permission_type=PermissionType.ALLOW,
    )  # fmt: skip


def settings(*rows: tuple[str, int, str | None], kind: int = 2, name: str = "t") -> Any:
    return k44.AlterConfigsResource(
        resource_type=kind, resource_name=name,
        configs=tuple(
            k44.AlterableConfig(name=key, config_operation=how, value=value)
            for key, how, value in rows
        ),
    )  # fmt: skip


def altered(kind: int, name: str, code: int = 0) -> k44.AlterConfigsResourceResponse:
    return k44.AlterConfigsResourceResponse(
        error_code=code, error_message=None, resource_type=kind, resource_name=name
    )


USER = (k48.EntityData(entity_type="user", entity_name="b"),)
ACL = "ACL ALLOW READ to User:b from * on Topic:LITERAL:"

CASES: list[tuple[Message, Message, list[str]]] = [
    (
        k19.CreateTopicsRequest(
            topics=(
                k19.CreatableTopic(
                    name="t", num_partitions=3, replication_factor=2,
                    configs=(k19.CreatableTopicConfig(name="cleanup.policy", value="compact"),),
                ),
                k19.CreatableTopic(
                    name="u", num_partitions=-1, replication_factor=-1,
                    assignments=(
                        k19.CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 2)),
                    ),
                ),
                k19.CreatableTopic(name="v", num_partitions=-1, replication_factor=-1),
            )
        ),
        k19.CreateTopicsResponse(
            topics=(
                k19.CreatableTopicResult(name="t", error_code=0),
                k19.CreatableTopicResult(name="u", error_code=0),
                k19.CreatableTopicResult(name="v", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
            )
        ),
        [
            (
                "NONE: topic t, 3 partitions, replication factor 2, cleanup.policy=compact; "
                "topic u, 0 on [1, 2]"
            ),
            "TOPIC_ALREADY_EXISTS: topic v",
        ],
    ),
    (
        k20.DeleteTopicsRequest(
            topics=(
                k20.DeleteTopicState(name="s"),
                k20.DeleteTopicState(name=None, topic_id=HERE),
                k20.DeleteTopicState(name=None, topic_id=GONE),
            ),
            timeout_ms=1,
        ),
        k20.DeleteTopicsResponse(
            responses=(
                k20.DeletableTopicResult(name="s", error_code=0),
                k20.DeletableTopicResult(name="t", topic_id=HERE, error_code=0),
                k20.DeletableTopicResult(
                    name=None, topic_id=GONE, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                ),
            )
        ),
        [
            f"NONE: topic s; topic t (id {HERE})",
            f"UNKNOWN_TOPIC_ID: topic of unknown name (id {GONE})",
        ],
    ),
    (
        k20.DeleteTopicsRequest(topic_names=("s",), timeout_ms=1),
        k20.DeleteTopicsResponse(responses=(k20.DeletableTopicResult(name="s", error_code=0),)),
        ["NONE: topic s"],
    ),
    (
        k21.DeleteRecordsRequest(
            topics=(
                k21.DeleteRecordsTopic(
                    name="t",
                    partitions=(
                        k21.DeleteRecordsPartition(partition_index=0, offset=7),
                        k21.DeleteRecordsPartition(partition_index=1, offset=-1),
                    ),
                ),
            ),
            timeout_ms=1,
        ),
        k21.DeleteRecordsResponse(
            topics=(
                k21.DeleteRecordsTopicResult(
                    name="t",
                    partitions=(
                        k21.DeleteRecordsPartitionResult(
                            partition_index=0, low_watermark=7, error_code=0
                        ),
                        k21.DeleteRecordsPartitionResult(
                            partition_index=1, low_watermark=-1,
                            error_code=ErrorCode.REQUEST_TIMED_OUT,
                        ),
                    ),
                ),
            )
        ),
        [
            "NONE: records of t-0 before offset 7",
            "REQUEST_TIMED_OUT: records of t-1 before the high watermark",
        ],
    ),
    (
        k27.WriteTxnMarkersRequest(
            markers=(
                k27.WritableTxnMarker(
                    producer_id=9, producer_epoch=2, transaction_result=False, coordinator_epoch=0,
                    topics=(k27.WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
                ),
            )
        ),
        k27.WriteTxnMarkersResponse(
            markers=(
                k27.WritableTxnMarkerResult(
                    producer_id=9,
                    topics=(
                        k27.WritableTxnMarkerTopicResult(
                            name="t",
                            partitions=(
                                k27.WritableTxnMarkerPartitionResult(partition_index=0),
                            ),
                        ),
                    ),
                ),
            )
        ),
        ["NONE: abort of producer 9, epoch 2, on t-0"],
    ),
    (
        k30.CreateAclsRequest(creations=(creation("t"), creation("u"))),
        k30.CreateAclsResponse(
            results=(
                k30.AclCreationResult(error_code=0, error_message=None),
                k30.AclCreationResult(error_code=ErrorCode.REQUEST_TIMED_OUT),
            )
        ),
        [f"NONE: {ACL}t", f"REQUEST_TIMED_OUT: {ACL}u"],
    ),
    (
        k31.DeleteAclsRequest(filters=(acl_filter(None), acl_filter("x"))),
        k31.DeleteAclsResponse(
            filter_results=(
                k31.DeleteAclsFilterResult(
                    error_code=0, error_message=None, matching_acls=(deleted("t"), deleted("u"))
                ),
                k31.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=()),
            )
        ),
        [f"NONE: {ACL}t; {ACL}u; no ACL of ANY ANY to any from any on Topic:LITERAL:x"],
    ),
    (
        k33.AlterConfigsRequest(
            resources=(
                k33.AlterConfigsResource(
                    resource_type=2, resource_name="t",
                    configs=(k33.AlterableConfig(name="retention.ms", value="1"),),
                ),
                k33.AlterConfigsResource(resource_type=4, resource_name="", configs=()),
            )
        ),
        k33.AlterConfigsResponse(
            responses=(
                k33.AlterConfigsResourceResponse(
                    error_code=0, error_message=None, resource_type=2, resource_name="t"
                ),
                k33.AlterConfigsResourceResponse(
                    error_code=0, error_message=None, resource_type=4, resource_name=""
                ),
            )
        ),
        ["NONE: all configs of topic t: retention.ms=1; all configs of broker <default>: none"],
    ),
    (
        k34.AlterReplicaLogDirsRequest(
            dirs=(
                k34.AlterReplicaLogDir(
                    path="/d2", topics=(k34.AlterReplicaLogDirTopic(name="t", partitions=(0,)),)
                ),
            )
        ),
        k34.AlterReplicaLogDirsResponse(
            results=(
                k34.AlterReplicaLogDirTopicResult(
                    topic_name="t",
                    partitions=(
                        k34.AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0),
                    ),
                ),
            )
        ),
        ["NONE: replica of t-0 to /d2"],
    ),
    (
        k37.CreatePartitionsRequest(
            topics=(
                k37.CreatePartitionsTopic(
                    name="t", count=4,
                    assignments=(k37.CreatePartitionsAssignment(broker_ids=(2, 3)),),
                ),
            ),
            timeout_ms=1,
        ),
        k37.CreatePartitionsResponse(
            results=(k37.CreatePartitionsTopicResult(name="t", error_code=0),)
        ),
        ["NONE: topic t to 4 partitions on [2, 3]"],
    ),
    (
        k38.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="c", renewers=(), max_lifetime_ms=-1
        ),
        k38.CreateDelegationTokenResponse(
            error_code=0, principal_type="User", principal_name="c", issue_timestamp_ms=0,
            expiry_timestamp_ms=0, max_timestamp_ms=0, token_id="id1", hmac=b"secret",
        ),
        ["NONE: delegation token id1 of User:c"],
    ),
    (
        k38.CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime_ms=-1
        ),
        k38.CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, principal_type="User",
            principal_name="a", issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1,
            token_id="", hmac=b"",
        ),
        ["DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: delegation token of User:a"],
    ),
    (
        k39.RenewDelegationTokenRequest(hmac=b"secret", renew_period_ms=60_000),
        k39.RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=1),
        ["NONE: delegation token id1 for 60000 ms"],
    ),
    (
        k40.ExpireDelegationTokenRequest(hmac=b"secret", expiry_time_period_ms=-1),
        k40.ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=1),
        ["NONE: delegation token id1 now"],
    ),
    (
        k40.ExpireDelegationTokenRequest(hmac=b"other", expiry_time_period_ms=5),
        k40.ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp_ms=-1
        ),
        ["DELEGATION_TOKEN_NOT_FOUND: delegation token of unknown id in 5 ms"],
    ),
    (
        k42.DeleteGroupsRequest(groups_names=("g", "h", "g")),
        k42.DeleteGroupsResponse(
            results=(
                k42.DeletableGroupResult(group_id="g", error_code=0),
                k42.DeletableGroupResult(group_id="h", error_code=ErrorCode.NON_EMPTY_GROUP),
            )
        ),
        ["NONE: group g", "NON_EMPTY_GROUP: group h"],
    ),
    (
        k43.ElectLeadersRequest(
            election_type=1, topic_partitions=(k43.TopicPartitions(topic="t", partitions=(0,)),)
        ),
        k43.ElectLeadersResponse(
            replica_election_results=(
                k43.ReplicaElectionResult(
                    topic="t", partition_result=(k43.PartitionResult(partition_id=0),)
                ),
            )
        ),
        ["NONE: unclean leader of t-0"],
    ),
    (
        k43.ElectLeadersRequest(election_type=0, topic_partitions=None),
        k43.ElectLeadersResponse(),
        ["NONE: preferred leaders of all partitions"],
    ),
    (
        k44.IncrementalAlterConfigsRequest(
            resources=(
                settings(("retention.ms", 0, "1"), ("cleanup.policy", 2, "delete"), ("x", 1, None)),
                settings(("headwater_broker.api", 0, "DEBUG"), kind=8, name="1"),
                settings(("group.min.session.timeout.ms", 0, "9"), kind=4, name="1"),
            )
        ),
        k44.IncrementalAlterConfigsResponse(
            responses=(altered(2, "t"), altered(8, "1"), altered(4, "1"))
        ),
        [
            (
                "NONE: topic t: retention.ms=1, cleanup.policy+=delete, x removed; "
                "loggers of broker 1: headwater_broker.api=DEBUG; "
                "broker 1: group.min.session.timeout.ms=9"
            )
        ],
    ),
    (
        k45.AlterPartitionReassignmentsRequest(
            topics=(
                k45.ReassignableTopic(
                    name="t",
                    partitions=(
                        k45.ReassignablePartition(partition_index=0, replicas=(1, 3)),
                        k45.ReassignablePartition(partition_index=1, replicas=None),
                    ),
                ),
            )
        ),
        k45.AlterPartitionReassignmentsResponse(
            error_code=0, error_message=None,
            responses=(
                k45.ReassignableTopicResponse(
                    name="t",
                    partitions=tuple(
                        k45.ReassignablePartitionResponse(
                            partition_index=index, error_code=0, error_message=None
                        )
                        for index in (0, 1)
                    ),
                ),
            ),
        ),
        ["NONE: replicas of t-0 to [1, 3]; replicas of t-1 as before"],
    ),
    (
        k47.OffsetDeleteRequest(
            group_id="g",
            topics=(
                k47.OffsetDeleteRequestTopic(
                    name="t", partitions=(k47.OffsetDeleteRequestPartition(partition_index=0),)
                ),
            ),
        ),
        k47.OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
        ["GROUP_ID_NOT_FOUND: offset of group g in t-0"],
    ),
    (
        k49.AlterClientQuotasRequest(
            entries=(
                k49.AlterEntryData(
                    entity=USER,
                    ops=(
                        k49.OpData(key="producer_byte_rate", value=1024.0, remove=False),
                        k49.OpData(key="request_percentage", value=0.0, remove=True),
                    ),
                ),
            )
        ),
        k49.AlterClientQuotasResponse(entries=(k49.AlteredEntryData(entity=USER),)),
        ["NONE: quotas of user b: producer_byte_rate=1024, request_percentage removed"],
    ),
    (
        k51.AlterUserScramCredentialsRequest(
            deletions=(k51.ScramCredentialDeletion(name="b", mechanism=1),),
            upsertions=(
                k51.ScramCredentialUpsertion(
                    name="c", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"secret"
                ),
            ),
        ),
        k51.AlterUserScramCredentialsResponse(
            results=tuple(
                k51.AlterUserScramCredentialsResult(user=user, error_code=0, error_message=None)
                for user in ("b", "c")
            )
        ),
        ["NONE: SCRAM-SHA-256 of User:b removed; SCRAM-SHA-512 of User:c set"],
    ),
    (
        k91.AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=(
                k91.AlterShareGroupOffsetsRequestTopic(
                    topic_name="t",
                    partitions=(
                        k91.AlterShareGroupOffsetsRequestPartition(
                            partition_index=0, start_offset=5
                        ),
                    ),
                ),
            ),
        ),
        k91.AlterShareGroupOffsetsResponse(
            error_code=0,
            responses=(
                k91.AlterShareGroupOffsetsResponseTopic(
                    topic_name="t", topic_id=HERE,
                    partitions=(
                        k91.AlterShareGroupOffsetsResponsePartition(partition_index=0),
                    ),
                ),
            ),
        ),
        ["NONE: share group g to offset 5 of t-0"],
    ),
    (
        k92.DeleteShareGroupOffsetsRequest(
            group_id="g", topics=(k92.DeleteShareGroupOffsetsRequestTopic(topic_name="t"),)
        ),
        k92.DeleteShareGroupOffsetsResponse(
            error_code=0,
            responses=(k92.DeleteShareGroupOffsetsResponseTopic(topic_name="t", topic_id=HERE),),
        ),
        ["NONE: share group g's topic t"],
    ),
    (
        k10007.DeleteSinksRequest(sinks=("s",)),
        k10007.DeleteSinksResponse(sinks=(k10007.DeletedSink(sink="s", error_code=0),)),
        ["NONE: sink s"],
    ),
    (
        k10008.TakeOverSinkRequest(sink="s", owner="q", last_epoch=4),
        k10008.TakeOverSinkResponse(),
        ["NONE: sink s to owner q, after epoch 4"],
    ),
    (
        k10013.ShareHoldsRequest(
            group_id="g", operation=6, owner="q",
            partitions=(k10013.ShareHoldPartition(topic_id=HERE, partition=1),),
        ),
        k10013.ShareHoldsResponse(
            partitions=(k10013.ShareHoldsResult(topic_id=HERE, partition=1),)
        ),
        ["NONE: holds of q in share group g, t-1: given back"],
    ),
    (k10012.DrainBrokerRequest(), k10012.DrainBrokerResponse(), ["NONE: end of broker 3"]),
]  # fmt: skip
