"""Where Headwater's answers are meant to differ from Kafka's, with the reason.

`cases`: case -> number of the step -> Headwater's answer. A difference that is no longer there
fails the test, so that this list stays true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from differential.session import Answer, Case


@dataclass(frozen=True)
class Difference:
    """Cases that differ for the same reason."""

    reason: str
    cases: dict[str, dict[int, Any]]


FENCED = {"error": "PRODUCER_FENCED", "producer": "none", "epoch": -1}
UNTOUCHED = {
    "error": "NONE",
    "state": "Ongoing",
    "timeout": 60000,
    "began": True,
    "producer": "id1",
    "epoch": 0,
    "partitions": ["-0"],
}
REJECTED = {"error": "INVALID_RECORD", "offset": -1}
CLAIMED = ["TRANSACTION_COORDINATOR_FENCED"]


def _two_records(*records: str) -> dict[str, Any]:
    return {
        "error": "NONE",
        "high watermark": 2,
        "stable": 2,
        "aborted": [],
        "records": list(records),
    }


DIFFERENCES = (
    Difference(
        "Kafka checks the epoch of an InitProducerId once the open transaction is aborted: one of "
        "another epoch than the current aborts it, and one of a future epoch even gets the next. "
        "Here it is fenced at once, and the transaction goes on.",
        {
            "init ongoing older": {4: "Ongoing", 5: UNTOUCHED},
            "init ongoing newer": {3: FENCED, 4: "Ongoing", 5: UNTOUCHED},
            "init ongoing TV2 older": {3: "Ongoing", 4: UNTOUCHED},
            "init ongoing TV2 newer": {2: FENCED, 3: "Ongoing", 4: UNTOUCHED},
        },
    ),
    Difference(
        "Kafka appends a transactional batch without a producer id. No marker can end it, so it "
        "belongs to no transaction; here it is rejected.",
        {"write TV1 nobody": {0: REJECTED}, "write TV2 nobody": {0: REJECTED}},
    ),
    Difference(
        "A marker of an administrator would tear a transaction that its coordinator still ends. In "
        "Kafka it is written, and one of a lower epoch is an UNKNOWN_SERVER_ERROR.",
        {
            "marker TV1 lower epoch": {3: CLAIMED},
            "marker TV2 lower epoch": {2: CLAIMED},
            "marker ends an open transaction": {
                3: CLAIMED,
                4: {
                    "error": "NONE",
                    "high watermark": 1,
                    "stable": 0,
                    "aborted": [],
                    "records": [],
                },
                6: {
                    "error": "NONE",
                    "active": [
                        {
                            "producer": "id1",
                            "epoch": 0,
                            "sequence": 0,
                            "timestamp": True,
                            "marked": False,
                            "began": 0,
                        }
                    ],
                },
            },
        },
    ),
    Difference(
        "An administrator can abort a hanging transaction; only a coordinator knows that one is to "
        "be committed. Kafka writes any commit marker.",
        {
            "marker TV1 commit of nothing": {
                5: ["INVALID_REQUEST"],
                6: _two_records("0 v0", "1 commit of id1/0"),
            },
            "marker TV2 commit of nothing": {
                4: ["INVALID_REQUEST"],
                5: _two_records("0 v0", "1 commit of id1/1"),
            },
        },
    ),
    Difference(
        "A repeated marker of transaction version 2 is in the log already: it is answered, and not "
        "written again.",
        {
            "marker v2 TV2 same epoch, nothing open": {
                5: _two_records("0 v0", "1 commit of id1/1"),
            },
        },
    ),
    Difference(
        "The commit of a transaction that has timed out. Flink's committer takes INVALID_TXN_STATE "
        "for a commit that has happened, and loses the records without a word; for "
        "TRANSACTION_ABORTABLE it stops the job. What it resumes, it ends by EndTxn v4.",
        {
            "timed out TV1": {8: "TRANSACTION_ABORTABLE"},
            "timed out TV2": {
                6: {"error": "TRANSACTION_ABORTABLE", "producer": "none", "epoch": -1},
            },
        },
    ),
)


ROTATED = {"error": "NONE", "producer": "id2", "epoch": 0}


def _described(state: str, producer: str, epoch: int, timeout_ms: int = 60000) -> dict[str, Any]:
    return {
        "error": "NONE",
        "state": state,
        "timeout": timeout_ms,
        "began": state != "Empty",
        "producer": producer,
        "epoch": epoch,
        "partitions": [],
    }


EXHAUSTED_DIFFERENCES = (
    Difference(
        "When the coordinator aborts at the last epoch, Kafka rotates the producer id with the "
        "abort, and the next InitProducerId raises the epoch. Here InitProducerId rotates it: the "
        "producer gets the new id with epoch 0 instead of 1.",
        {
            "exhausted, init while a transaction is open": {
                3: ROTATED,
                5: _described("Empty", "id2", 0),
            },
            "exhausted, timed out": {
                3: _described("CompleteAbort", "id1", 32767, timeout_ms=300),
                5: ROTATED,
                6: _described("Empty", "id2", 0),
            },
        },
    ),
)


def wanted(case: str) -> dict[int, Any]:
    """The answers of a case that differ from Kafka's, by step."""
    found: dict[int, Any] = {}
    for difference in (*DIFFERENCES, *EXHAUSTED_DIFFERENCES):
        found.update(difference.cases.get(case, {}))
    return found


def check(case: Case, found: list[Answer], kafka: list[Answer]) -> None:
    """Raises AssertionError for an answer that is neither Kafka's nor meant to differ."""
    differs = wanted(case.name)
    for number, (step, answer) in enumerate(zip(case.steps, found, strict=True)):
        if number in differs:
            assert differs[number] != kafka[number], f"{step}: no longer a difference"
            assert answer == differs[number], f"{step}: the wanted difference is another"
        else:
            assert answer == kafka[number], f"step {number}: {step}"
