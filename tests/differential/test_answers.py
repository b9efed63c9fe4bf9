"""Headwater answers the same requests as Apache Kafka: its answers are recorded in a file."""

from __future__ import annotations

from typing import Any

import pytest

from differential.differences import DIFFERENCES, check
from differential.record import CASES, recorded
from differential.servers import headwater, run_cases
from differential.session import Case

KAFKA = recorded()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Headwater's answers, by case."""
    with headwater(tmp_path_factory.mktemp("differential")) as exchange:
        return run_cases(exchange, CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_the_answers_are_those_of_kafka(case: Case, answers: dict[str, list[Any]]) -> None:
    check(case, answers[case.name], KAFKA[case.name])


def test_each_case_is_recorded() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(KAFKA) == set(names), "python -m differential.record"
    for difference in DIFFERENCES:
        assert difference.cases.keys() <= set(names), difference.reason
