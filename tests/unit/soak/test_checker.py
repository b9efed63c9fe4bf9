"""The soak's checker: each class of anomaly, planted in a history, is named; a clean one passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from soak.checker import Anomaly, Findings, check
from soak.history import TORN, Event, History, decode, encode, excerpt, read

Row = tuple[int, str]


class Told:
    """Builds a history of one partition (0), event by event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, **fields: Any) -> Told:
        self.events.append({"t": float(len(self.events)), "e": kind, **fields})
        return self

    def send(self, *values: str, x: str = "") -> Told:
        for value in values:
            self.add("send", c=value.split(":")[0], p=0, v=value, **({"x": x} if x else {}))
        return self

    def ack(self, value: str, offset: int) -> Told:
        return self.add("ack", c=value.split(":")[0], p=0, v=value, o=offset)

    def poll(self, client: str, *rows: Row, **extra: str) -> Told:
        return self.add("poll", c=client, p=0, rows=[list(row) for row in rows], **extra)

    def member_polls(self, client: str, *rows: Row) -> Told:
        return self.poll(client, *rows, g="g")

    def assign(self, client: str, **extra: str) -> Told:
        return self.add("assign", c=client, p=[0], **extra)

    def commit(self, client: str, offset: int, ok: bool = True) -> Told:
        return self.add("commit", c=client, g="g", p=0, o=offset, ok=ok, t0=0.0)

    def final(self, *rows: Row) -> Told:
        return self.add("final", p=0, rows=[list(row) for row in rows])

    def judged(self) -> Findings:
        return check(self.events)


A, B, C = "a:0:0", "a:0:1", "a:0:2"
LOG = ((0, A), (1, B), (2, C))


def three_acked() -> Told:
    return Told().send(A, B, C).ack(A, 0).ack(B, 1).ack(C, 2)


def only(findings: Findings, kind: str) -> Anomaly:
    assert findings.kinds() == {kind: 1}, findings.anomalies
    return findings.anomalies[0]


def test_a_clean_history_passes() -> None:
    told = three_acked().assign("r").poll("r", *LOG[:2]).poll("r", LOG[2])
    told.assign("m", g="g").member_polls("m", *LOG[:2]).commit("m", 2)
    told.assign("n", g="g").member_polls("n", LOG[2]).commit("n", 3)
    findings = told.final(*LOG).judged()
    assert findings.anomalies == []
    assert (findings.sent, findings.acked, findings.commits) == (3, 3, 2)
    assert findings.read == {"r": 3, "g": 3, "final": 3}


def test_what_has_no_outcome_may_be_there_or_not() -> None:
    """A send without an answer, or failed by its time limit, promises nothing."""
    told = Told().send(A, B, C).ack(A, 0)
    told.add("fail", c="a", p=0, v=B, why="timed out", definite=False)
    assert told.final((0, A), (1, B)).judged().anomalies == []


def test_an_ack_without_an_offset_counts() -> None:
    """librdkafka tells offset -1 for a batch that the broker had already."""
    assert Told().send(A).ack(A, -1).final((7, A)).judged().anomalies == []
    only(Told().send(A).ack(A, -1).final().judged(), "lost write")


def test_lost_write() -> None:
    found = only(three_acked().final(LOG[0], LOG[2]).judged(), "lost write")
    assert found.what == "a:0:1, acknowledged at 0:1, is not in the log"
    assert found.lines == (1, 4), "its send and its ack"


def test_vanished_read() -> None:
    told = Told().send(A, B).ack(A, 0).assign("r").poll("r", (0, A), (1, B))
    found = only(told.final((0, A)).judged(), "vanished read")
    assert B in found.what


def test_duplicate() -> None:
    found = only(three_acked().final(*LOG, (3, B)).judged(), "duplicate")
    assert found.what == "a:0:1 is at 0:1 and at 0:3"


def test_reordered() -> None:
    told = Told().send(A, B, C).final((0, A), (1, C), (2, B))
    found = only(told.judged(), "reordered")
    assert found.what == "a:0:1 at 0:2 stands after a:0:2, but was sent before it"


def test_two_producers_may_interleave_in_any_order() -> None:
    told = Told().send("a:0:0", "b:0:0", "b:0:1", "a:0:1")
    rows = ((0, "b:0:0"), (1, "b:0:1"), (2, "a:0:0"), (3, "a:0:1"))
    assert told.final(*rows).judged().anomalies == []


def test_inconsistent_offset_between_readers() -> None:
    told = Told().send(A, B).assign("r").assign("s").poll("r", (0, A)).poll("s", (0, B))
    findings = told.final((0, A), (1, B)).judged()
    assert "inconsistent offset" in findings.kinds(), findings.anomalies


def test_inconsistent_offset_between_ack_and_log() -> None:
    told = Told().send(A, B).ack(A, 0).ack(B, 1)
    findings = told.final((0, B), (1, A)).judged()
    assert findings.kinds()["inconsistent offset"] == 2
    assert findings.kinds()["reordered"] == 1


@pytest.mark.parametrize("partition", [0, 1])
def test_inconsistent_offset_of_an_ack_at_a_place_that_the_log_lacks(partition: int) -> None:
    """Nobody else is at 0:7, so only the value's own place tells."""
    told = Told().send(A).ack(A, 7 - 7 * partition)
    told.add("final", p=1 - partition, rows=[]).add("final", p=partition, rows=[[0, A]])
    found = only(told.judged(), "inconsistent offset")
    assert found.what == f"a:0:0 was acknowledged at 0:{7 - 7 * partition}, and is at {partition}:0"
    assert found.lines == (1, 3), "its ack and the log"


def test_an_ack_of_either_copy_of_a_duplicate_is_no_second_anomaly() -> None:
    told = Told().send(A, B).ack(A, 2).ack(B, 1)
    only(told.final((0, A), (1, B), (2, A)).judged(), "duplicate")


@pytest.mark.parametrize("second", [0, 1])
def test_non_monotonic_poll(second: int) -> None:
    told = three_acked().assign("r").poll("r", *LOG[:2]).poll("r", LOG[second])
    found = only(told.final(*LOG).judged(), "non-monotonic poll")
    assert found.what == f"r was given 0:{second} after 0:1"


def test_an_assignment_may_begin_again() -> None:
    told = three_acked().assign("r").poll("r", *LOG).assign("r").poll("r", *LOG)
    assert told.final(*LOG).judged().anomalies == []


def test_skipped_by_poll() -> None:
    told = three_acked().assign("r").poll("r", LOG[0]).poll("r", LOG[2])
    found = only(told.final(*LOG).judged(), "skipped by poll")
    assert found.what == "r went from 0:0 to 0:2, past 1"


def test_skipped_by_poll_of_a_record_that_nobody_knew_acknowledged() -> None:
    told = Told().send(A, B, C).assign("r").poll("r", LOG[0], LOG[2])
    only(told.final(*LOG).judged(), "skipped by poll")


def test_gaps_of_the_log_itself_are_no_skips() -> None:
    """Control records and aborted batches take offsets."""
    rows = ((0, A), (5, B))
    told = (
        Told().send(A, B).assign("r").poll("r", *rows).assign("m", g="g").member_polls("m", *rows)
    )
    assert told.final(*rows).judged().anomalies == []


def test_skipped_by_group() -> None:
    told = three_acked().assign("m", g="g").member_polls("m", LOG[0])
    told.assign("n", g="g").member_polls("n", LOG[2])
    found = only(told.final(*LOG).judged(), "skipped by group")
    assert "the first is 0:1" in found.what


def test_lost_commit() -> None:
    told = three_acked().assign("m", g="g").member_polls("m", *LOG[:2]).commit("m", 2)
    told.assign("n", g="g").member_polls("n", *LOG)
    found = only(told.final(*LOG).judged(), "lost commit")
    assert "went on at 0:0, though a commit of 2 was acknowledged" in found.what


def test_a_commit_of_unknown_outcome_may_come_late() -> None:
    told = three_acked().assign("m", g="g").member_polls("m", *LOG)
    told.commit("m", 1, ok=False).commit("m", 3).assign("n", g="g")
    told.member_polls("n", *LOG[1:])
    assert told.final(*LOG).judged().anomalies == []


def test_a_commit_after_the_assignment_is_no_floor() -> None:
    told = three_acked().assign("m", g="g").assign("n", g="g")
    told.member_polls("m", *LOG).commit("m", 3).member_polls("n", *LOG)
    assert told.final(*LOG).judged().anomalies == []


def test_aborted_read_of_a_send_that_failed_for_sure() -> None:
    told = Told().send(A, B).ack(A, 0)
    told.add("fail", c="a", p=0, v=B, why="never sent", definite=True)
    found = only(told.final((0, A), (1, B)).judged(), "aborted read")
    assert B in found.what


def test_aborted_read_of_a_transaction() -> None:
    told = Told().send(A, x="t1").add("end", c="a", x="t1", how="abort")
    told.send(B, x="t2").add("end", c="a", x="t2", how="commit")
    found = only(told.final((0, A), (2, B)).judged(), "aborted read")
    assert "aborted transaction t1" in found.what


def test_a_transaction_aborted_and_unread_passes() -> None:
    told = Told().send(A, x="t1").ack(A, 0).add("end", c="a", x="t1", how="abort")
    told.send(B).ack(B, 2).final((2, B))
    findings = told.judged()
    assert findings.anomalies == []


def test_a_committed_transaction_that_is_gone_is_a_lost_write() -> None:
    told = Told().send(A, x="t1").ack(A, 0).add("end", c="a", x="t1", how="commit")
    only(told.final().judged(), "lost write")


@pytest.mark.parametrize("how", ["commit", "unknown"])
def test_torn_transaction(how: str) -> None:
    told = Told().send(A, B, x="t1").add("end", c="a", x="t1", how=how)
    found = only(told.final((0, A)).judged(), "torn transaction")
    assert found.what == "transaction t1: a:0:0 is in the log, a:0:1 is not"


def test_torn_read() -> None:
    told = Told().send(A).final((0, A), (1, TORN + "a:0:1:12"))
    only(told.judged(), "torn read")


def test_a_value_that_nobody_sent() -> None:
    only(Told().send(A).final((0, A), (1, B)).judged(), "torn read")


def test_divergent_replicas() -> None:
    told = Told()
    for broker, sha in ((0, "aa"), (1, "aa"), (2, "bb")):
        told.add("replica", p=0, b=broker, bytes=10, sha=sha)
    found = only(told.judged(), "divergent replicas")
    assert found.what == "brokers 0 and 2 hold 0 with other bytes"


def test_thrown_off_and_stuck() -> None:
    only(Told().add("thrown", c="a", why="OUT_OF_ORDER_SEQUENCE").judged(), "thrown off")
    only(Told().add("stuck", why="no writes").judged(), "stuck")


def test_a_client_that_stood_still_is_told_and_is_no_anomaly() -> None:
    findings = Told().add("stood_still", c="reader", why="a deadlock").judged()
    assert (findings.stood_still, findings.anomalies) == (["reader: a deadlock"], [])


def test_a_value_tells_when_its_bytes_were_changed() -> None:
    whole = encode("p:3:17")
    assert decode(whole) == "p:3:17"
    for spoiled in (None, b"", whole[:-1], whole + b".", b"q" + whole[1:], whole[:50] * 2):
        assert decode(spoiled).startswith(TORN)


def test_history_file_and_excerpt(tmp_path: Path) -> None:
    history = History(tmp_path / "h.jsonl")
    history.add("poll", c="r", p=0, rows=[[n, f"a:0:{n}"] for n in range(1000)])
    history.close()
    (event,) = read(history.path)
    shown = json.loads(excerpt(event, (500, "a:0:7")))
    assert shown["rows"] == [[7, "a:0:7"], [500, "a:0:500"]]
    assert (shown["of_rows"], shown["span"]) == (1000, [0, 999])
