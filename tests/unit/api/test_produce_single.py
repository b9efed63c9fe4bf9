"""Produce requests of one partition: the fast path answers and writes as the general path does."""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest

from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.schema import encode
from headwater_broker.api import k00_produce
from headwater_broker.api.replies import CloseConnectionError
from solo_broker import SoloBroker
from unit.api.test_fetch_fast_path import flat, peer_of
from unit.network.test_data_plane import batch, produce_request
from unit.network.test_out_of_order_confirmed import sequenced

VERSIONS = (7, 8, 9, 12, 13)
NOISE = b"\x01" * 40
"""What lies around a frame in the receive buffer."""
REQUESTS = 600
UNKNOWN = UUID(int=1)
PER_CONNECTION = 10
"""What was refused is remembered per connection, and then the long way is gone."""


class NoWrites(AllowAll):
    """Nobody writes to "closed"."""

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return not (operation is Operation.WRITE and name == "closed")


def requests(version: int, topic_ids: dict[str, UUID]) -> list[ProduceRequest]:
    """Good and bad ones, in an order that is always the same."""
    chance = random.Random(11)
    spoilt = bytearray(batch(2))
    spoilt[-1] ^= 1
    asked = []
    for _ in range(REQUESTS):
        topic = chance.choice(("t",) * 12 + ("none", "closed", "__consumer_offsets", "é"))
        data = chance.choice(
            (
                batch(chance.randint(1, 9), chance.randint(0, 900)), batch(1, 50_000),
                bytes(spoilt), b"", None, b"short", sequenced(chance.randint(0, 5)),
                batch(1) + batch(1),
            )
        )  # fmt: skip
        acks = chance.choice((1, -1) * 5 + (0, 5, -2))
        partition = chance.choice((0,) * 12 + (1, -1))
        key: dict[str, UUID] = {}
        if version >= 13:
            key["topic_id"] = topic_ids.get(topic, UNKNOWN)
        request = produce_request("" if key else topic, data, acks, partition=partition, **key)
        transactional_id = chance.choice((None,) * 9 + ("tx",))
        asked.append(replace(request, transactional_id=transactional_id))
    return asked


def outcomes(folder: Path, version: int, *, is_short: bool) -> tuple[list[object], bytes]:
    """What one broker, and one connection to it, makes of them all; and the log it wrote.

    A byte behind the last field, which is ignored, leaves a request to the long way.
    """

    async def scenario() -> tuple[list[object], bytes]:
        broker = SoloBroker(folder, message_max_bytes="20000")
        broker.authorizer = NoWrites()
        async with broker:
            ids = {topic: broker.create_topic(topic) for topic in ("t", "closed")}
            found: list[object] = []
            for count, request in enumerate(requests(version, ids)):
                if count % PER_CONNECTION == 0:
                    peer = peer_of(broker)
                body = encode(request, version) + (b"" if is_short else b"\0")
                view = memoryview(bytearray(NOISE + body + NOISE))
                try:
                    answer = k00_produce.produce(
                        peer, view, len(NOISE), len(view) - len(NOISE), version, 77
                    )
                    text = flat(answer) or type(answer)
                except CloseConnectionError as error:
                    text = str(error)
                for topic, topic_id in ids.items():  # another broker's are others
                    if isinstance(text, bytes):
                        text = text.replace(topic_id.bytes, topic.encode().ljust(16))
                found.append(text)
            meter = broker.services.meters.topic("t")
            found.append((meter.bytes_in, meter.records_in))
            log = broker.services.replicas.partitions["t", 0].log
            return found, log.active.file.read_at(0, log.size_bytes)

    try:
        return asyncio.run(scenario())
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_agree(tmp_path: Path, version: int) -> None:
    short, short_log = outcomes(tmp_path / "kafka", version, is_short=True)
    whole, whole_log = outcomes(tmp_path / "kafka", version, is_short=False)
    assert short == whole
    assert short_log == whole_log
    assert len(short_log) > 20_000


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("data", [batch(3), sequenced(0)], ids=["plain", "idempotent"])
def test_one_partition_goes_the_short_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, data: bytes
) -> None:
    def parsed_at_length(*_: object) -> NoReturn:
        raise AssertionError("the long way")

    for parse in ("parse_plain", "parse_flexible"):
        monkeypatch.setattr(k00_produce, parse, parsed_at_length)

    async def scenario() -> bytes | None:
        async with SoloBroker(tmp_path) as broker:
            topic_id = broker.create_topic("t")
            key = {"topic_id": topic_id} if version >= 13 else {}
            body = encode(produce_request("" if key else "t", data, **key), version)
            view = memoryview(bytearray(body))
            return flat(k00_produce.produce(peer_of(broker), view, 0, len(view), version, 77))

    assert asyncio.run(scenario())


@pytest.mark.parametrize("version", range(3, 7))
def test_what_lies_behind_a_frame_decides_nothing(tmp_path: Path, version: int) -> None:
    async def scenario() -> list[str]:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            body = encode(produce_request("t", b"short"), version)
            found = []
            for tail in (b"", bytes(60), b"\x04" * 60):
                view = memoryview(bytearray(NOISE + body + tail))
                with pytest.raises(IndexError) as refused:
                    k00_produce.produce(
                        peer_of(broker), view, len(NOISE), len(NOISE) + len(body), version, 77
                    )
                found.append(str(refused.value))
            return found

    assert len(set(asyncio.run(scenario()))) == 1
