"""The demo's verdict on its alerts: what is wrong is counted, named and shown in red."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flights import proof, report
from flights.proof import AlertVerdict, judge_alerts

EXPECTED = {3, 7, 11}
RIGHT: dict[str, Any] = {"last_batch": 4, "last_epoch": 4, "open_epochs": 0}


def values(*ids: int) -> list[bytes]:
    """Alerts of flights with these ids."""
    return [b'{"flight_id":%d,"origin":"JFK"}' % number for number in ids]


def judged(*ids: int, **changed: int) -> AlertVerdict:
    return judge_alerts(values(*ids), EXPECTED, **{**RIGHT, **changed})


def test_every_alert_once_is_clean() -> None:
    verdict = judged(11, 3, 7)
    assert verdict.is_clean and verdict.wrong == 0
    assert (verdict.records, verdict.distinct, verdict.expected) == (3, 3, 3)


@pytest.mark.parametrize(
    ("ids", "missing", "unexpected", "duplicates"),
    [
        ((3, 7), 1, 0, 0),
        ((3, 7, 11, 12), 0, 1, 0),
        ((3, 7, 11, 11, 11), 0, 0, 2),
        ((3, 3, 12), 2, 1, 1),
        ((), 3, 0, 0),
    ],
)
def test_what_is_wrong_with_the_records_is_counted(
    ids: tuple[int, ...], missing: int, unexpected: int, duplicates: int
) -> None:
    verdict = judged(*ids)
    assert (verdict.missing, verdict.unexpected, verdict.duplicates) == (
        missing, unexpected, duplicates,
    )  # fmt: skip
    assert verdict.wrong == missing + unexpected + duplicates and not verdict.is_clean


@pytest.mark.parametrize(
    "changed", [{"last_epoch": 3}, {"last_batch": 5}, {"open_epochs": 1}, {"last_epoch": -1}]
)
def test_epochs_that_do_not_agree_with_the_checkpoint_are_not_clean(
    changed: dict[str, int],
) -> None:
    assert not judged(3, 7, 11, **changed).is_clean


def shown(verdict: AlertVerdict) -> str:
    console = Console(width=120, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(report.alerts_table(verdict))
    return captured.get()


def test_the_table_shows_in_red_what_differs() -> None:
    red = "\x1b[1;31m"
    assert red not in shown(judged(3, 7, 11))
    for wrong in (judged(3, 7), judged(3, 7, 11, open_epochs=1), judged(3, 7, 11, last_epoch=3)):
        assert red in shown(wrong)


def test_the_checkpoint_names_the_sink_and_the_last_micro_batch(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "0f1e"}))
    assert proof.query_id(tmp_path) == "0f1e"
    assert proof.last_batch(tmp_path) == -1
    (tmp_path / "commits").mkdir()
    for name in ("0", "9", "10", ".10.crc"):
        (tmp_path / "commits" / name).touch()
    assert proof.last_batch(tmp_path) == 10
