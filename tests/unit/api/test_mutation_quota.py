"""controller_mutation_rate: partitions created and deleted per second by user (KIP-599)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis import k19_create_topics as k19
from headwater_broker.api.admin.mutation_quota import STRICT_SINCE
from headwater_broker.quota.controller_mutation import MutationQuota, TokenBucket
from headwater_broker.quota.rate import Windows
from solo_broker import SoloBroker
from unit.network.test_data_plane import serve

PER_S = 2.0
BURST = 20
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Now:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def quota(now: Now, *, is_strict: bool) -> MutationQuota:
    return MutationQuota(TokenBucket(PER_S, Windows(10, 1.0), now()), now, is_strict=is_strict)


def test_one_change_may_exceed_the_quota_and_the_next_one_waits() -> None:
    now = Now()
    strict = quota(now, is_strict=True)
    assert strict.allows(BURST + 4) and strict.throttle_ms == 0
    assert not strict.allows(1) and strict.throttle_ms == 2000
    now.s += 1
    assert not strict.allows(1) and strict.throttle_ms == 1000
    now.s += 1.001
    assert strict.allows(1)


def test_old_clients_are_throttled_after_the_change() -> None:
    permissive = quota(Now(), is_strict=False)
    assert permissive.allows(BURST) and permissive.throttle_ms == 0
    assert permissive.allows(4) and permissive.throttle_ms == 2000
    assert permissive.allows(4) and permissive.throttle_ms == 4000
    permissive.give_back(8)
    assert permissive.throttle_ms == 0


def test_a_change_that_fails_is_not_charged_and_no_bucket_overflows() -> None:
    now = Now()
    strict = quota(now, is_strict=True)
    assert strict.allows(BURST + 4)
    strict.give_back(BURST + 4)
    now.s += 1000
    assert strict.allows(BURST + 2) and not strict.allows(1) and strict.throttle_ms == 1000


@pytest.mark.parametrize("version", [STRICT_SINCE[19] - 1, STRICT_SINCE[19]])
def test_topics_beyond_the_quota_of_a_user(tmp_path: Path, version: int) -> None:
    """Strict: the second topic is refused. Permissive: it is made, and the client waits."""
    is_strict = version >= STRICT_SINCE[19]

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.services.quotas.update({"users/ANONYMOUS": {"controller_mutation_rate": "1"}})

        async def create(name: str) -> tuple[int, int]:
            asked = k19.CreatableTopic(name=name, num_partitions=15, replication_factor=1)
            request = k19.CreateTopicsRequest(topics=(asked,), timeout_ms=10_000)
            reply = await c.call(request, k19.CreateTopicsResponse, version=version)
            return reply.topics[0].error_code, reply.throttle_time_ms

        code, throttle_ms = await create("a")
        assert (code, throttle_ms > 0) == (0, not is_strict)
        if is_strict:
            code, throttle_ms = await create("b")
            assert code == EXCEEDED and 0 < throttle_ms <= 4000
            assert "b" not in broker.view.topics

    serve(tmp_path, story)
