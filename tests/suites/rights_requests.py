"""The requests of the rights matrix: each API key, on names that exist and names that do not.

Each leaves both servers as they were, whatever rights its sender has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k01_fetch as k01
from headwater.wire.apis import k02_list_offsets as k02
from headwater.wire.apis import k03_metadata as k03
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k11_join_group as k11
from headwater.wire.apis import k12_heartbeat as k12
from headwater.wire.apis import k13_leave_group as k13
from headwater.wire.apis import k14_sync_group as k14
from headwater.wire.apis import k15_describe_groups as k15
from headwater.wire.apis import k16_list_groups as k16
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k21_delete_records as k21
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k23_offset_for_leader_epoch as k23
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.apis import k28_txn_offset_commit as k28
from headwater.wire.apis import k29_describe_acls as k29
from headwater.wire.apis import k30_create_acls as k30
from headwater.wire.apis import k31_delete_acls as k31
from headwater.wire.apis import k32_describe_configs as k32
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k34_alter_replica_log_dirs as k34
from headwater.wire.apis import k35_describe_log_dirs as k35
from headwater.wire.apis import k37_create_partitions as k37
from headwater.wire.apis import k38_create_delegation_token as k38
from headwater.wire.apis import k39_renew_delegation_token as k39
from headwater.wire.apis import k40_expire_delegation_token as k40
from headwater.wire.apis import k41_describe_delegation_token as k41
from headwater.wire.apis import k42_delete_groups as k42
from headwater.wire.apis import k43_elect_leaders as k43
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis import k45_alter_partition_reassignments as k45
from headwater.wire.apis import k46_list_partition_reassignments as k46
from headwater.wire.apis import k47_offset_delete as k47
from headwater.wire.apis import k48_describe_client_quotas as k48
from headwater.wire.apis import k49_alter_client_quotas as k49
from headwater.wire.apis import k50_describe_user_scram_credentials as k50
from headwater.wire.apis import k51_alter_user_scram_credentials as k51
from headwater.wire.apis import k60_describe_cluster as k60
from headwater.wire.apis import k61_describe_producers as k61
from headwater.wire.apis import k65_describe_transactions as k65
from headwater.wire.apis import k66_list_transactions as k66
from headwater.wire.apis import k74_list_config_resources as k74
from headwater.wire.apis import k75_describe_topic_partitions as k75
from headwater.wire.schema import Message
from unit.network.test_data_plane import batch

PREFIX = "rights-"
HERE, GONE = f"{PREFIX}here", f"{PREFIX}gone"
"""A topic, a group and a transactional id that exist; and names of none."""
ADMIN = "admin"
"""A super user; the owner of a delegation token."""
NO_PRODUCER = 987_654_321
TIMEOUT_MS = 10_000


class Request(NamedTuple):
    """One request of the matrix, by a name of its own."""

    name: str
    message: Message
    response: type[Message]
    version: int


def requests() -> Iterator[Request]:
    """All of them."""
    for where in (HERE, GONE):
        yield from _on_topic(where)
        yield from _on_changed_topic(where)
        yield from _on_group(where)
        yield from _on_transaction(where)
    yield from _on_cluster()
    yield from _on_users()
    yield from _on_tokens()


def _on_topic(t: str) -> Iterator[Request]:
    rows = k00.PartitionProduceData(index=0, records=batch())
    data = (k00.TopicProduceData(name=t, partition_data=(rows,)),)
    for acks, transactional_id in ((1, None), (-1, HERE)):
        message = k00.ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=data
        )
        kind = "transactional " if transactional_id else ""
        yield Request(f"{kind}Produce {t}", message, k00.ProduceResponse, 9)
    fetched = k01.FetchTopic(
        topic=t,
        partitions=(k01.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1),),
    )
    for replica in (-1, 1):
        fetch = k01.FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=0, topics=(fetched,))
        who = "" if replica < 0 else "follower's "
        yield Request(f"{who}Fetch {t}", fetch, k01.FetchResponse, 12)
    listed = k02.ListOffsetsTopic(
        name=t, partitions=(k02.ListOffsetsPartition(partition_index=0, timestamp=-1),)
    )
    yield Request(
        f"ListOffsets {t}",
        k02.ListOffsetsRequest(replica_id=-1, topics=(listed,)),
        k02.ListOffsetsResponse,
        6,
    )
    asked = k03.MetadataRequest(
        topics=(k03.MetadataRequestTopic(name=t),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    yield Request(f"Metadata {t}", asked, k03.MetadataResponse, 10)
    yield Request(
        f"DescribeTopicPartitions {t}",
        k75.DescribeTopicPartitionsRequest(topics=(k75.TopicRequest(name=t),)),
        k75.DescribeTopicPartitionsResponse,
        0,
    )


def _on_changed_topic(t: str) -> Iterator[Request]:
    creatable = k19.CreatableTopic(name=t, num_partitions=1, replication_factor=1)
    yield Request(
        f"CreateTopics {t}",
        k19.CreateTopicsRequest(topics=(creatable,), timeout_ms=TIMEOUT_MS, validate_only=True),
        k19.CreateTopicsResponse,
        7,
    )
    if t == GONE:
        yield Request(
            f"DeleteTopics {t}",
            k20.DeleteTopicsRequest(topic_names=(t,), timeout_ms=TIMEOUT_MS),
            k20.DeleteTopicsResponse,
            5,
        )
    low = k21.DeleteRecordsTopic(
        name=t, partitions=(k21.DeleteRecordsPartition(partition_index=0, offset=0),)
    )
    yield Request(
        f"DeleteRecords {t}",
        k21.DeleteRecordsRequest(topics=(low,), timeout_ms=TIMEOUT_MS),
        k21.DeleteRecordsResponse,
        2,
    )
    yield from _configs(2, t)
    yield from _on_replicas(t)


def _on_replicas(t: str) -> Iterator[Request]:
    epochs = k23.OffsetForLeaderTopic(
        topic=t, partitions=(k23.OffsetForLeaderPartition(partition=0, leader_epoch=0),)
    )
    yield Request(
        f"OffsetForLeaderEpoch {t}",
        k23.OffsetForLeaderEpochRequest(replica_id=-1, topics=(epochs,)),
        k23.OffsetForLeaderEpochResponse,
        4,
    )
    grown = k37.CreatePartitionsTopic(name=t, count=3, assignments=None)
    yield Request(
        f"CreatePartitions {t}",
        k37.CreatePartitionsRequest(topics=(grown,), timeout_ms=TIMEOUT_MS, validate_only=True),
        k37.CreatePartitionsResponse,
        3,
    )
    yield Request(
        f"ElectLeaders {t}",
        k43.ElectLeadersRequest(
            topic_partitions=(k43.TopicPartitions(topic=t, partitions=(0,)),),
            timeout_ms=TIMEOUT_MS,
        ),
        k43.ElectLeadersResponse,
        2,
    )
    moved = k45.ReassignableTopic(
        name=t, partitions=(k45.ReassignablePartition(partition_index=0),)
    )
    yield Request(
        f"AlterPartitionReassignments {t}",
        k45.AlterPartitionReassignmentsRequest(topics=(moved,), timeout_ms=TIMEOUT_MS),
        k45.AlterPartitionReassignmentsResponse,
        0,
    )
    yield Request(
        f"DescribeProducers {t}",
        k61.DescribeProducersRequest(topics=(k61.TopicRequest(name=t, partition_indexes=(0,)),)),
        k61.DescribeProducersResponse,
        0,
    )


def _configs(kind: int, name: str) -> Iterator[Request]:
    where = {2: name, 4: "the broker", 16: "client metrics", 32: f"group {name}"}[kind]
    yield Request(
        f"DescribeConfigs {where}",
        k32.DescribeConfigsRequest(
            resources=(
                k32.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=("none.such",)
                ),
            )
        ),
        k32.DescribeConfigsResponse,
        4,
    )
    if kind not in (2, 4):
        return
    key = "retention.ms" if kind == 2 else "log.cleaner.threads"
    old = k33.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=(k33.AlterableConfig(name=key, value="2"),),
    )
    yield Request(
        f"AlterConfigs {where}",
        k33.AlterConfigsRequest(resources=(old,), validate_only=True),
        k33.AlterConfigsResponse,
        2,
    )
    new = k44.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=(k44.AlterableConfig(name=key, config_operation=0, value="2"),),
    )
    yield Request(
        f"IncrementalAlterConfigs {where}",
        k44.IncrementalAlterConfigsRequest(resources=(new,), validate_only=True),
        k44.IncrementalAlterConfigsResponse,
        1,
    )


def _on_group(g: str) -> Iterator[Request]:
    for t in (HERE, GONE):
        row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        commit = k08.OffsetCommitRequest(
            group_id=g,
            generation_id_or_member_epoch=7,
            member_id="stranger",
            topics=(k08.OffsetCommitRequestTopic(name=t, partitions=(row,)),),
        )
        yield Request(f"OffsetCommit {g} of {t}", commit, k08.OffsetCommitResponse, 8)
        asked = k09.OffsetFetchRequestTopics(name=t, partition_indexes=(0,))
        one = k09.OffsetFetchRequestGroup(group_id=g, topics=(asked,))
        yield Request(
            f"OffsetFetch {g} of {t}",
            k09.OffsetFetchRequest(groups=(one,)),
            k09.OffsetFetchResponse,
            8,
        )
        away = k47.OffsetDeleteRequestTopic(
            name=t, partitions=(k47.OffsetDeleteRequestPartition(partition_index=1),)
        )
        yield Request(
            f"OffsetDelete {g} of {t}",
            k47.OffsetDeleteRequest(group_id=g, topics=(away,)),
            k47.OffsetDeleteResponse,
            0,
        )
    yield from _on_members(g)


def _on_members(g: str) -> Iterator[Request]:
    every = k09.OffsetFetchRequestGroup(group_id=g, topics=None)
    yield Request(
        f"OffsetFetch {g} of all",
        k09.OffsetFetchRequest(groups=(every,)),
        k09.OffsetFetchResponse,
        8,
    )
    for kind, what in ((0, "group"), (1, "transactional id")):
        yield Request(
            f"FindCoordinator {what} {g}",
            k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=(g,)),
            k10.FindCoordinatorResponse,
            4,
        )
    protocols = (k11.JoinGroupRequestProtocol(name="range", metadata=b""),)
    join = k11.JoinGroupRequest(
        group_id=g,
        session_timeout_ms=1,  # refused: a member would stay
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    yield Request(f"JoinGroup {g}", join, k11.JoinGroupResponse, 7)
    beat = k12.HeartbeatRequest(group_id=g, generation_id=7, member_id="stranger")
    yield Request(f"Heartbeat {g}", beat, k12.HeartbeatResponse, 4)
    member = (k13.MemberIdentity(member_id="stranger"),)
    yield Request(
        f"LeaveGroup {g}", k13.LeaveGroupRequest(group_id=g, members=member),
        k13.LeaveGroupResponse, 4,
    )  # fmt: skip
    sync = k14.SyncGroupRequest(group_id=g, generation_id=7, member_id="stranger", assignments=())
    yield Request(f"SyncGroup {g}", sync, k14.SyncGroupResponse, 4)
    described = k15.DescribeGroupsRequest(groups=(g,), include_authorized_operations=True)
    yield Request(f"DescribeGroups {g}", described, k15.DescribeGroupsResponse, 5)
    if g == GONE:
        yield Request(
            f"DeleteGroups {g}", k42.DeleteGroupsRequest(groups_names=(g,)),
            k42.DeleteGroupsResponse, 2,
        )  # fmt: skip
    yield from _configs(32, g)


def _on_transaction(x: str) -> Iterator[Request]:
    if x == GONE:
        yield Request(
            "InitProducerId", k22.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000
            ), k22.InitProducerIdResponse, 4,
        )  # fmt: skip
    wrong = k22.InitProducerIdRequest(
        transactional_id=x, transaction_timeout_ms=1000, producer_id=NO_PRODUCER, producer_epoch=9
    )
    yield Request(f"InitProducerId {x}", wrong, k22.InitProducerIdResponse, 4)
    for t in (HERE, GONE):
        enlist = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=x,
            v3_and_below_producer_id=NO_PRODUCER,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=(k24.AddPartitionsToTxnTopic(name=t, partitions=(0,)),),
        )
        yield Request(f"AddPartitionsToTxn {x} of {t}", enlist, k24.AddPartitionsToTxnResponse, 3)
        row = k28.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=None
        )
        commit = k28.TxnOffsetCommitRequest(
            transactional_id=x,
            group_id=HERE,
            producer_id=NO_PRODUCER,
            producer_epoch=0,
            generation_id=7,
            member_id="stranger",
            topics=(k28.TxnOffsetCommitRequestTopic(name=t, partitions=(row,)),),
        )
        yield Request(f"TxnOffsetCommit {x} of {t}", commit, k28.TxnOffsetCommitResponse, 3)
    verify = k24.AddPartitionsToTxnTransaction(
        transactional_id=x, producer_id=NO_PRODUCER, producer_epoch=0, verify_only=True,
        topics=(k24.AddPartitionsToTxnTopic(name=HERE, partitions=(0,)),),
    )  # fmt: skip
    yield Request(
        f"a broker's AddPartitionsToTxn {x}",
        k24.AddPartitionsToTxnRequest(transactions=(verify,)),
        k24.AddPartitionsToTxnResponse,
        4,
    )
    offsets = k25.AddOffsetsToTxnRequest(
        transactional_id=x, producer_id=NO_PRODUCER, producer_epoch=0, group_id=HERE
    )
    yield Request(f"AddOffsetsToTxn {x}", offsets, k25.AddOffsetsToTxnResponse, 3)
    end = k26.EndTxnRequest(
        transactional_id=x, producer_id=NO_PRODUCER, producer_epoch=0, committed=False
    )
    yield Request(f"EndTxn {x}", end, k26.EndTxnResponse, 3)
    described = k65.DescribeTransactionsRequest(transactional_ids=(x,))
    yield Request(f"DescribeTransactions {x}", described, k65.DescribeTransactionsResponse, 0)


def _on_cluster() -> Iterator[Request]:
    everything = k03.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    yield Request("Metadata of all", everything, k03.MetadataResponse, 9)
    yield Request("ListGroups", k16.ListGroupsRequest(), k16.ListGroupsResponse, 4)
    yield Request(
        "ListTransactions", k66.ListTransactionsRequest(), k66.ListTransactionsResponse, 1
    )
    marker = k27.WritableTxnMarker(
        producer_id=NO_PRODUCER, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
        topics=(k27.WritableTxnMarkerTopic(name=GONE, partition_indexes=(0,)),),
    )  # fmt: skip
    yield Request(
        "WriteTxnMarkers", k27.WriteTxnMarkersRequest(markers=(marker,)),
        k27.WriteTxnMarkersResponse, 1,
    )  # fmt: skip
    yield from _configs(4, "0")
    yield from _configs(16, "metrics")
    moved = k34.AlterReplicaLogDir(
        path="/none", topics=(k34.AlterReplicaLogDirTopic(name=GONE, partitions=(0,)),)
    )
    yield Request(
        "AlterReplicaLogDirs", k34.AlterReplicaLogDirsRequest(dirs=(moved,)),
        k34.AlterReplicaLogDirsResponse, 2,
    )  # fmt: skip
    folders = k35.DescribeLogDirsRequest(topics=())
    yield Request("DescribeLogDirs", folders, k35.DescribeLogDirsResponse, 4)
    ongoing = k46.ListPartitionReassignmentsRequest(topics=None)
    yield Request("ListPartitionReassignments", ongoing, k46.ListPartitionReassignmentsResponse, 0)
    quotas = k48.DescribeClientQuotasRequest(components=())
    yield Request("DescribeClientQuotas", quotas, k48.DescribeClientQuotasResponse, 1)
    entry = k49.AlterEntryData(
        entity=(k48.EntityData(entity_type="user", entity_name=GONE),),
        ops=(k49.OpData(key="producer_byte_rate", value=1.0, remove=False),),
    )
    yield Request(
        "AlterClientQuotas", k49.AlterClientQuotasRequest(entries=(entry,), validate_only=True),
        k49.AlterClientQuotasResponse, 1,
    )  # fmt: skip
    listed = k74.ListConfigResourcesRequest(resource_types=(2, 16, 32))
    yield Request("ListConfigResources", listed, k74.ListConfigResourcesResponse, 1)
    shown = k60.DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield Request("DescribeCluster", shown, k60.DescribeClusterResponse, 1)


def _on_users() -> Iterator[Request]:
    about = {"principal": f"User:{GONE}", "host": "*", "operation": 3, "permission_type": 3}
    where = {"resource_type_filter": 2, "resource_name_filter": GONE, "pattern_type_filter": 3}
    selects = {
        **where,
        "principal_filter": f"User:{GONE}",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Request("DescribeAcls", k29.DescribeAclsRequest(**selects), k29.DescribeAclsResponse, 3)
    added = k30.AclCreation(resource_type=2, resource_name=HERE, resource_pattern_type=3, **about)
    yield Request(
        "CreateAcls", k30.CreateAclsRequest(creations=(added,)), k30.CreateAclsResponse, 3
    )
    yield Request(
        "DeleteAcls", k31.DeleteAclsRequest(filters=(k31.DeleteAclsFilter(**selects),)),
        k31.DeleteAclsResponse, 3,
    )  # fmt: skip
    yield Request(
        "DescribeUserScramCredentials",
        k50.DescribeUserScramCredentialsRequest(users=(k50.UserName(name=GONE),)),
        k50.DescribeUserScramCredentialsResponse,
        0,
    )
    gone = k51.ScramCredentialDeletion(name=GONE, mechanism=1)
    yield Request(
        "AlterUserScramCredentials",
        k51.AlterUserScramCredentialsRequest(deletions=(gone,), upsertions=()),
        k51.AlterUserScramCredentialsResponse,
        0,
    )


def _on_tokens() -> Iterator[Request]:
    made = k38.CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=GONE, renewers=(), max_lifetime_ms=60_000
    )
    yield Request(f"CreateDelegationToken of {GONE}", made, k38.CreateDelegationTokenResponse, 3)
    yield Request(
        "RenewDelegationToken", k39.RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=1),
        k39.RenewDelegationTokenResponse, 2,
    )  # fmt: skip
    yield Request(
        "ExpireDelegationToken",
        k40.ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=1),
        k40.ExpireDelegationTokenResponse,
        2,
    )
    owner = k41.DescribeDelegationTokenOwner(principal_type="User", principal_name=ADMIN)
    yield Request(
        f"DescribeDelegationToken of {ADMIN}",
        k41.DescribeDelegationTokenRequest(owners=(owner,)),
        k41.DescribeDelegationTokenResponse,
        3,
    )
