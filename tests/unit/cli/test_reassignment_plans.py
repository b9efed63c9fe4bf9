"""Reassignment plans: parsed, refused, generated, verified."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from headwater.cli.reassign.plan import (
    COMPLETE,
    FAILED,
    IN_PROGRESS,
    current_log_dirs,
    current_plan,
    log_dir_moves,
    plan_document,
    propose,
    read_log_dirs,
    read_partitions,
    read_plan,
    read_topics,
    states_of,
)
from headwater.client.values import (
    Broker,
    LogDirDescription,
    PartitionDescription,
    ReplicaInfo,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import KafkaError, UsageError
from headwater.testing.clocks import SeededEntropy


def topic(name: str, *replicas: tuple[int, ...]) -> TopicDescription:
    rows = tuple(PartitionDescription(i, r[0], 0, r, r, ()) for i, r in enumerate(replicas))
    return TopicDescription(name, UUID(int=1), False, rows)


def brokers(*ids: int, racks: tuple[str, ...] = ()) -> tuple[Broker, ...]:
    named = racks or (None,) * len(ids)
    return tuple(Broker(i, "host", 9092, rack) for i, rack in zip(ids, named, strict=True))


def test_a_plan_is_what_kafkas_tool_writes_and_comes_back_the_same() -> None:
    text = '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[4,1],"log_dirs":[]}]}'
    plan = read_plan(text, "plan.json")
    assert plan == {TopicPartition("t", 1): (4, 1)}
    assert read_plan(json.dumps(plan_document(plan)), "again") == plan
    assert read_topics('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}', "f") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "not JSON"),
        ("[]", 'no list "partitions"'),
        ('{"partitions":[]}', "no partitions to move"),
        ('{"partitions":[{"topic":"t"}]}', 'has no "partition": give a whole number from 0 on'),
        ('{"partitions":[{"topic":"t","partition":0}]}', 'has no "replicas": give a list of'),
        ('{"partitions":[{"partition":0,"replicas":[1]}]}', 'has no "topic": name the topic'),
        ('{"partitions":[7]}', "7 is not a JSON object: write one"),
        ('{"partitions":[{"topic":7,"partition":0,"replicas":[1]}]}', "topic 7 is not a name"),
        ('{"partitions":[{"topic":"t","partition":1.5,"replicas":[1]}]}', "partition 1.5: give"),
        ('{"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}', "partition True: give"),
        ('{"partitions":[{"topic":"t","partition":"²","replicas":[1]}]}', "partition '²': give"),
        ('{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}', "partition -1: give"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":"12"}]}', "replicas '12': give"),
        (
            '{"partitions":[{"topic":"t","partition":2147483648,"replicas":[1]}]}',
            "2147483648: give",
        ),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[2147483648]}]}', "[2147483648]:"),
        ("[" * 100_000, "nested too deep"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1.5]}]}', "replicas [1.5]: give"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[true]}]}', "replicas [True]: "),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,2,1]}]}', "more than once: [1]"),
        (
            json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
            "t-0 is listed more than once",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_plan(text, "plan.json")
    assert words in str(caught.value) and "plan.json" in str(caught.value)


def test_partitions_to_elect_may_have_their_numbers_in_quotes() -> None:
    rows = '{"partitions":[{"topic":"t","partition":"1"},{"topic":"t","partition":0}]}'
    assert read_partitions(rows, "f") == [("t", 1), ("t", 0)]
    with pytest.raises(UsageError, match="more than once: t-1"):
        read_partitions('{"partitions":[{"topic":"t","partition":"1"},'
                        '{"topic":"t","partition":1}]}', "f")  # fmt: skip
    with pytest.raises(UsageError, match="no partitions"):
        read_partitions('{"partitions":[]}', "f")
    with pytest.raises(UsageError, match='has no "topic": name the topic'):
        read_topics('{"topics":[{}]}', "f")


def test_a_proposal_uses_just_the_brokers_named_and_keeps_the_counts() -> None:
    found = [topic("a", (1, 2), (2, 1), (1, 2)), topic("b", (3,))]
    plan = propose(found, [4, 5, 6], brokers(1, 2, 3, 4, 5, 6), SeededEntropy(3))
    assert {tp: len(r) for tp, r in plan.items()} == {
        ("a", 0): 2,
        ("a", 1): 2,
        ("a", 2): 2,
        ("b", 0): 1,
    }
    assert {b for replicas in plan.values() for b in replicas} <= {4, 5, 6}
    assert sorted(plan[TopicPartition("a", i)][0] for i in range(3)) == [4, 5, 6]


def test_a_proposal_spreads_over_racks_where_all_are_known() -> None:
    live = brokers(1, 2, 3, 4, racks=("x", "x", "y", "y"))
    rows = [topic("a", *[(1, 2)] * 8)]
    for seed in range(5):
        plan = propose(rows, [1, 2, 3, 4], live, SeededEntropy(seed))
        assert all((a < 3) != (b < 3) for a, b in plan.values())
    flat = propose(rows, [1, 2], live, SeededEntropy(1), by_rack=False)
    assert {frozenset(r) for r in flat.values()} == {frozenset({1, 2})}


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([1, 1], UsageError, "more than once"),
        ([1, 9], UsageError, "[9] do not run"),
        ([1], KafkaError, "replication factor"),
    ],
)
def test_brokers_that_cannot_hold_it(ids: list[int], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        propose([topic("a", (1, 2))], ids, brokers(1, 2), SeededEntropy(1))
    assert words.lower() in str(caught.value).lower()


def test_a_plan_is_judged_by_what_moves_and_what_is() -> None:
    a, b, c, d = (TopicPartition("t", i) for i in range(4))
    plan = {a: (1, 2), b: (1, 2), c: (1, 2), d: (1, 2)}
    now = current_plan([topic("t", (1, 2), (2, 1), (3,))])
    assert states_of(plan, now, {c}) == {a: COMPLETE, b: FAILED, c: IN_PROGRESS, d: FAILED}


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"plan\.json: version 2, this command reads 1"):
        read_plan('{"version": 2, "partitions": []}', "plan.json")


@pytest.mark.parametrize("folder", [None, 5, True, "", ["/a"]])
def test_a_folder_is_a_path(folder: object) -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", folder]}
    with pytest.raises(UsageError) as caught:
        read_log_dirs(json.dumps({"partitions": [row]}), "plan.json")
    assert str(caught.value) == f"plan.json: t-0: log_dirs has {folder!r}: give a path, or any"


@pytest.mark.parametrize(
    "more", [{"topic": "t\ud800"}, {"topic": "t", "replicas": [1], "log_dirs": ["/a\ud800"]}]
)
def test_half_of_a_surrogate_pair_is_no_text(more: dict[str, object]) -> None:
    row = {"partition": 0, "replicas": [], **more}
    with pytest.raises(UsageError, match=r"plan.json: '.*\\ud800' is not text in UTF-8"):
        read_log_dirs(json.dumps({"partitions": [{"log_dirs": [], **row}]}), "plan.json")


def test_folders_of_a_plan_are_read_and_judged() -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "log_dirs": ["/a", "any", "/b"]}
    more = {"topic": "t", "partition": 1, "replicas": [1]}
    folders = read_log_dirs(json.dumps({"partitions": [row, more]}), "plan.json")
    tp = TopicPartition("t", 0)
    assert folders == {(1, tp): "/a", (3, tp): "/b"}
    short = json.dumps({"partitions": [{**row, "log_dirs": ["/a"]}]})
    with pytest.raises(UsageError, match=r"plan.json: t-0: log_dirs must have"):
        read_log_dirs(short, "plan.json")

    def held(path: str, *, is_future: bool) -> LogDirDescription:
        return LogDirDescription(path, None, 0, 0, {tp: ReplicaInfo(1, 0, is_future)})

    assert log_dir_moves(folders, {1: [held("/a", is_future=False)], 3: []}) == {
        "t-0 on broker 3": "failed, not in /b and not on its way"
    }
    assert log_dir_moves(folders, {1: [held("/a", is_future=False)]}) == {
        "t-0 on broker 3": "failed, broker 3 does not run: start it"
    }
    both = {1: [held("/x", is_future=False), held("/a", is_future=True)],
            3: [held("/b", is_future=False)]}  # fmt: skip
    assert log_dir_moves(folders, both) == {"t-0 on broker 1": "in progress, to /a"}
    assert current_log_dirs(folders, both) == {(1, tp): "/x"}, "where it is served from"
    assert current_log_dirs(folders, {}) == {}
