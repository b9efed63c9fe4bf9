"""The recipes for consume, transform, produce: exact output though workers and brokers die."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.conftest import Start
from suites import recipes
from suites.clusters import HeadwaterUnderTest
from suites.parts import MissingPartError

WORKER_KILLS = 6
BROKER_KILLS = 2
PYTHON_RECIPES = [name for name in recipes.RECIPES if name != "Java"]


@pytest.mark.long
@pytest.mark.parametrize("recipe", PYTHON_RECIPES)
def test_killed_workers(start_cluster: Start, tmp_path: Path, recipe: str) -> None:
    _run(start_cluster, tmp_path, recipe)


@pytest.mark.integrations
def test_killed_java_workers(start_cluster: Start, tmp_path: Path) -> None:
    try:
        _run(start_cluster, tmp_path, "Java")
    except MissingPartError as error:
        pytest.skip(str(error))


def _run(start_cluster: Start, folder: Path, recipe: str) -> None:
    cluster = HeadwaterUnderTest(start_cluster())
    found = recipes.killed(cluster, folder, recipe, WORKER_KILLS, BROKER_KILLS)
    assert found.lines > 0
    assert found.differences == [], found
