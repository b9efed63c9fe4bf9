"""Fixtures for tests of the controller's state machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.controller.machine_world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    for broker_id in (1, 2, 3):
        made.up(broker_id)
    yield made
    made.close()
