"""Random mutations of frames: no crash, no hang, no effect on other connections.

A fixed seed and small counts here; `make fuzz` feeds millions (`tests/fuzz`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.batches import fuzz_batches
from fuzz.frames import complaints, fuzz_frames
from fuzz.logins import GSSAPI, PARSERS, fuzz_login
from fuzz.spoiling import fetch, framed, produce, seeds, spoil
from headwater.client.connection import Connection, open_connection
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.framing import encode_request
from headwater_broker.api import k00_produce
from headwater_broker.api.fetch.request_codec import parse_fetch
from headwater_broker.api.fetch.request_codec import parse_plain as parse_plain_fetch
from headwater_broker.api.produce.request_codec import (
    parse_flexible,
    parse_plain,
    parse_single,
    parse_single_flexible,
)
from headwater_broker.network.connection import MALFORMED
from headwater_broker.security.plain_mechanism import PlainMechanism
from solo_broker import SoloBroker

SEED = 20260101
FRAMES = 1500
BATCHES = 300
LOGIN_BYTES = 50_000
PER_CONNECTION = 10
PARSE_MAX_S = 1.0
CANARY_EVERY = 250
CANARY_MAX_S = 10.0
ANSWERED_WITHIN_S = 20.0


@pytest.mark.parametrize(
    ("parse", "make", "versions"),
    [
        (parse_plain, produce, range(3, 9)),
        (lambda view, at, end, _: parse_single(view, at, end), produce, range(7, 9)),
        (parse_flexible, produce, range(9, 14)),
        (parse_single_flexible, produce, range(9, 14)),
        (parse_fetch, fetch, range(4, 19)),
        (parse_plain_fetch, fetch, range(4, 19)),
    ],
    ids=[
        "produce",
        "single produce",
        "flexible produce",
        "single flexible produce",
        "fetch",
        "plain fetch",
    ],
)
def test_the_parsers_in_place_refuse_or_parse(
    parse: Callable[..., object], make: Callable[[int], ProduceRequest], versions: range
) -> None:
    chance = random.Random(SEED)
    for count in range(FRAMES * 2):
        version = versions[count % len(versions)]
        good = encode_request(make(version), version, 7, "me")
        header = 8 + 2 + 2 + (1 if version >= make(version).flexible else 0)
        body = memoryview(bytearray(spoil(good, chance)))
        start = time.thread_time()
        with contextlib.suppress(*MALFORMED):
            parse(body, header, len(body), version)
        assert time.thread_time() - start < PARSE_MAX_S, (version, bytes(body).hex())


@pytest.mark.parametrize("size", [-1, -2, -6, -32768])
def test_a_negative_length_does_not_go_round_for_ever(size: int) -> None:
    """The reader would go back to the same position as often as the count says."""
    body = struct.pack(">hhiihii", -1, 1, 1, 1 << 30, size, 0, 0)
    with pytest.raises(MALFORMED):
        parse_plain(memoryview(body), 0, len(body), 7)
    body = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0) + struct.pack(">ihii", 1 << 30, size, 0, 0)
    with pytest.raises(MALFORMED):
        parse_fetch(memoryview(body), 0, len(body), 7)


async def still_fine(other: Connection) -> None:
    reply = await other.call(MetadataRequest(topics=None), MetadataResponse, timeout_s=CANARY_MAX_S)
    assert "t" in [topic.name for topic in reply.topics]


async def throw(port: int, frames: list[bytes]) -> None:
    """Send frames until the broker closes the connection; replies are ignored."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for frame in frames:
            writer.write(frame)
            await writer.drain()
        await asyncio.sleep(0)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_a_broker_under_spoiled_frames(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(SEED + 1)
    good = seeds()

    async def scenario() -> None:
        async with SoloBroker(tmp_path, socket_request_max_bytes="1048576") as broker:
            broker.create_topic("t")
            other = await open_connection("127.0.0.1", broker.port)
            for count in range(0, FRAMES, PER_CONNECTION):
                frames = [
                    framed(spoil(chance.choice(good), chance), chance)
                    for _ in range(PER_CONNECTION)
                ]
                await throw(broker.port, frames)
                if count % CANARY_EVERY == 0:
                    await still_fine(other)
            await still_fine(other)
            other.close()
            meters = broker.services.meters
            deadline = time.monotonic() + ANSWERED_WITHIN_S
            while meters.connections > 1 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)  # some wait for a group's reply until then
            assert meters.connections_closed_malformed > 0
            assert meters.connections <= 1, "closed connections are forgotten"

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    unforeseen = [r for r in caplog.records if r.exc_info or "internal error" in r.getMessage()]
    assert not unforeseen, unforeseen[0].exc_text or unforeseen[0].getMessage()


def test_frames_are_judged_one_by_one() -> None:
    with complaints() as found:
        counts = asyncio.run(fuzz_frames(FRAMES, SEED, found))
    assert counts["frames"] == FRAMES
    assert 0 < counts["closed their connection"] < FRAMES


def test_a_handler_that_fails_is_told_with_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> bytes:
        raise RuntimeError("planted")

    monkeypatch.setattr(k00_produce, "parse_single", break_down)
    with complaints() as found, pytest.raises(AssertionError, match="planted"):
        asyncio.run(fuzz_frames(FRAMES, SEED, found))


def test_spoiled_batches_are_refused_or_read_alike() -> None:
    counts = fuzz_batches(BATCHES, SEED)
    assert counts["batches"] == BATCHES
    assert min(counts.values()) >= 0 < counts["read"] <= counts["appended"] < BATCHES


def test_readers_that_differ_are_told_with_the_batch() -> None:
    with pytest.raises(AssertionError, match="the decoder"):
        fuzz_batches(BATCHES, SEED, lambda data: [(0, b"planted", None)])


@pytest.mark.parametrize("parser", [name for name in PARSERS if name != GSSAPI])
def test_spoiled_logins_harm_nobody(parser: str) -> None:
    with complaints() as found:
        outcome = asyncio.run(fuzz_login(parser, LOGIN_BYTES, SEED, found))
    assert outcome.sent >= LOGIN_BYTES
    assert 0 < outcome.closed <= outcome.attempts


def test_a_mechanism_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(PlainMechanism, "begin", break_down)
    with complaints() as found, pytest.raises(AssertionError, match="planted"):
        asyncio.run(fuzz_login("PLAIN", LOGIN_BYTES, SEED, found))
