"""Bodies of megabytes are parsed beside the loop, by the same rules."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest import documents
from headwater_gateway.rest.documents import LARGE_BYTES, Document
from headwater_gateway.rest.turns import ROWS, in_turns

LARGE = {"records": [{"value": {"text": "x" * 100, "n": n}} for n in range(2_000)]}


def read(body: bytes) -> Document:
    return asyncio.run(Document.read(body))


def test_a_large_body_is_the_same_document() -> None:
    body = json.dumps(LARGE).encode()
    assert len(body) > LARGE_BYTES
    assert read(body).values("records") == LARGE["records"]


@pytest.mark.parametrize("size", [LARGE_BYTES - 20, LARGE_BYTES], ids=["small", "large"])
def test_only_a_large_one_leaves_the_loop(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def parsed(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return {}

    monkeypatch.setattr(documents, "parsed", parsed)
    read(b"x" * size)
    assert (threads == [threading.get_ident()]) is (size < LARGE_BYTES)


@pytest.mark.parametrize(
    ("tail", "status"),
    [(b"", 400), (b', "n": NaN}', 400), (b', "n": ' + b"[" * 100_000, 400), (b"}" * 2, 400),
     (b', "n": [' + b"1," * 1_000_000 + b"1]}", 413)],
    ids=["cut", "NaN", "deep", "more", "many"],
)  # fmt: skip
def test_a_large_body_is_refused_by_the_same_rules(tail: bytes, status: int) -> None:
    body = json.dumps(LARGE).encode()[:-1] + tail
    with pytest.raises(GatewayError) as refused:
        read(body)
    assert refused.value.status == status


def test_others_have_their_turn_between_records() -> None:
    async def run() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        assert [row async for row in in_turns(range(10 * ROWS))] == list(range(10 * ROWS))
        task.cancel()
        return turns

    assert asyncio.run(run()) >= 10
