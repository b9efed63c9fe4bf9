"""The judge of the Spark suite sees each class of anomaly, and none where there is none."""

from __future__ import annotations

import pytest

from suites import spark_judge
from suites.spark_judge import Output, Seen, judged, key_of, transformed

COUNT = 40
TOPIC = [Output(n % 4, n // 4, key_of(n), transformed(n)) for n in range(COUNT)]
TABLE = [row.value for row in TOPIC]
SEEN = [Seen(10.0, value) for value in TABLE]
COMMITS_S = dict.fromkeys(TABLE, 9.0)


def kinds(**changed: object) -> list[str]:
    given = {"topic": TOPIC, "seen": SEEN, "table": TABLE, "commits_s": COMMITS_S, **changed}
    return [finding.kind for finding in judged(COUNT, **given)]  # type: ignore[arg-type]


def test_an_exact_output_has_no_anomaly() -> None:
    assert kinds() == []
    assert kinds(table=None, seen=(), commits_s=None) == []


def test_a_row_that_is_lost_in_both() -> None:
    assert kinds(topic=TOPIC[1:], table=TABLE[1:], seen=SEEN[1:]) == [
        spark_judge.MISSING, spark_judge.MISSING,
    ]  # fmt: skip


def test_a_row_that_only_the_table_has() -> None:
    assert kinds(topic=TOPIC[1:], seen=SEEN[1:]) == [spark_judge.MISSING, spark_judge.DISAGREEMENT]


def test_a_row_that_is_written_twice() -> None:
    again = TOPIC[-1]._replace(offset=99)
    assert kinds(topic=[*TOPIC, again]) == [spark_judge.DUPLICATE, spark_judge.DISAGREEMENT]
    assert kinds(table=[*TABLE, TABLE[3]]) == [spark_judge.DUPLICATE, spark_judge.DISAGREEMENT]


def test_a_row_that_nobody_wrote() -> None:
    made_up = Output(0, 99, key_of(400), transformed(400))
    assert kinds(topic=[*TOPIC, made_up], table=None) == [spark_judge.UNEXPECTED]


@pytest.mark.parametrize("other", [8, 4], ids=["of the key", "of another key"])
def test_rows_that_change_places(other: int) -> None:
    places = [row for row in TOPIC if row.partition == 0]
    first, second = places[0], next(r for r in places if spark_judge.number_of(r.value) == other)
    swapped = [
        first._replace(offset=second.offset) if row is first
        else second._replace(offset=first.offset) if row is second
        else row
        for row in TOPIC
    ]  # fmt: skip
    is_one_key = first.key == second.key
    assert kinds(topic=swapped) == ([spark_judge.OUT_OF_ORDER] if is_one_key else [])


def test_a_key_in_two_partitions() -> None:
    moved = TOPIC[-1]._replace(partition=0, offset=99)
    assert kinds(topic=[*TOPIC[:-1], moved]) == [spark_judge.OUT_OF_ORDER]


def test_a_row_that_a_reader_saw_and_that_is_gone() -> None:
    assert kinds(seen=[*SEEN, Seen(11.0, "99:1")]) == [spark_judge.VANISHED]


def test_a_row_that_a_reader_saw_before_its_commit() -> None:
    assert kinds(seen=[*SEEN, Seen(8.9, TABLE[0])]) == [spark_judge.EARLY]
