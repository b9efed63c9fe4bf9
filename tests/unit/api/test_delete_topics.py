"""DeleteTopics by name and by id against a real controller, and the SDK's view of its responses."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.client.admin.topics import apply_deleted
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater_broker.api.k20_delete_topics import delete_topics
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster, FakeBroker
from unit.controller.test_controller import create

GONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = ErrorCode.UNKNOWN_TOPIC_ID

Told = tuple[str | None, int]


async def deleted(broker: FakeBroker, *rows: DeleteTopicState) -> list[Told]:
    reply = await delete_topics(
        context(broker, 6), DeleteTopicsRequest(topics=rows, timeout_ms=3000)
    )
    return [(row.name, row.error_code) for row in reply.responses]


def test_each_topic_is_deleted_or_refused_for_itself() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        for name in ("a", "b", "c"):
            await create(asked, name, (1, 2))
        a, none = (DeleteTopicState(name=name) for name in ("a", "none"))
        assert await deleted(asked, none, a) == [("none", UNKNOWN), ("a", GONE)]
        assert set(asked.view.topics) == {"b", "c"}
        b = DeleteTopicState(name=None, topic_id=asked.view.topics["b"].topic_id)
        lost = DeleteTopicState(name=None, topic_id=UUID(int=77))
        assert await deleted(asked, b, lost) == [("b", GONE), (None, NO_ID)]
        assert await deleted(asked, b, a) == [(None, NO_ID), ("a", UNKNOWN)], "they are gone"
        both = DeleteTopicState(name="c", topic_id=asked.view.topics["c"].topic_id)
        assert await deleted(asked, both) == [("c", ErrorCode.INVALID_REQUEST)]
        assert set(asked.view.topics) == {"c"}

    play(story)


def test_a_deletion_that_was_late_and_is_unknown_at_the_next_try_was_done() -> None:
    outcomes: dict[str, KafkaError | None] = {}
    late: set[str] = set()

    def take(**codes: ErrorCode) -> None:
        rows = tuple(DeletableTopicResult(name=n, error_code=code) for n, code in codes.items())
        apply_deleted(DeleteTopicsResponse(responses=rows), outcomes, late)

    with pytest.raises(KafkaError, match="slow"):
        take(done=GONE, slow=ErrorCode.REQUEST_TIMED_OUT, never=UNKNOWN)
    assert outcomes.keys() == {"done", "never"}
    take(slow=UNKNOWN)
    assert (outcomes["done"], outcomes["slow"]) == (None, None)
    never = outcomes["never"]
    assert never is not None and never.code is UNKNOWN
