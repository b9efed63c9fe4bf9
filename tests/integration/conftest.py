"""Fixtures of the integration tests: ports that no other test uses, and a shared cluster."""

from __future__ import annotations

import itertools
import os

import pytest

from headwater.errors import UsageError
from headwater.local.slots import ClusterSpec, check_ports_free

# Each cluster takes base .. base+300. The range can be moved for runs side by side.
PORTS_FROM = int(os.environ.get("HEADWATER_TEST_PORTS_FROM", "23000"))
PORTS_STEP = 10
PORTS_COUNT = 8

_numbers = itertools.cycle(range(PORTS_COUNT))


@pytest.fixture
def free_base_port(tmp_path_factory: pytest.TempPathFactory) -> int:
    """A base port all of whose ports are free."""
    for _ in range(PORTS_COUNT):
        base = PORTS_FROM + PORTS_STEP * next(_numbers)
        spec = ClusterSpec(tmp_path_factory.getbasetemp(), "ports", PORTS_STEP // 2, base)
        try:
            check_ports_free(spec)
        except UsageError:
            continue
        return base
    raise RuntimeError(f"no free ports from {PORTS_FROM} on: set HEADWATER_TEST_PORTS_FROM")
