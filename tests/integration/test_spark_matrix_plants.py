"""The judge of Spark's crash matrix finds each planted bug, and calls it by its name."""

from __future__ import annotations

import pytest

from suites import spark_matrix

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("plant", spark_matrix.PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    assert spark_matrix.PLANTS[plant].finding in spark_matrix.caught(plant)
