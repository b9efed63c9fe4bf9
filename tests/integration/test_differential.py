"""What takes long of the differential test: Apache Kafka itself, and epochs that are used up."""

from __future__ import annotations

from pathlib import Path

import pytest

from differential.differences import check
from differential.exhausted_cases import EXHAUSTED_CASES
from differential.record import EXHAUSTED, asked, recorded
from differential.servers import headwater, run_cases

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_kafka_still_answers_as_recorded(tmp_path: Path) -> None:
    assert asked(tmp_path / "kafka") == recorded()


def test_exhausted_epochs_are_answered_as_by_kafka(tmp_path: Path) -> None:
    kafka = recorded(EXHAUSTED)
    assert set(kafka) == {case.name for case in EXHAUSTED_CASES}
    with headwater(tmp_path) as exchange:
        found = run_cases(exchange, EXHAUSTED_CASES)
    for case in EXHAUSTED_CASES:
        check(case, found[case.name], kafka[case.name])
