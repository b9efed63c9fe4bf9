"""The rights matrix has every API key of Headwater's own."""

from __future__ import annotations

from uuid import UUID

from headwater_broker.api.registry import load_handlers
from suites.rights_own_keys import own_requests

FIRST_OWN_KEY = 10_000


def test_every_own_key_is_in_the_matrix() -> None:
    asked = {own.request.message.api_key for own in own_requests(UUID(int=1))}
    assert asked == {key for key in load_handlers() if key >= FIRST_OWN_KEY}
