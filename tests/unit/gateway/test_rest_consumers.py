"""v2's consumers: made, driven, ended; one principal does not see another's."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from headwater.client.values import ConsumerRecord
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_gateway.app.login import Login
from headwater_gateway.rest.consumer_instance import ConsumerInstance, InstanceSettings
from headwater_gateway.rest.formats import Format
from headwater_gateway.rest.v2_consumers import accepts
from unit.gateway.gateways import PASSWORD
from unit.gateway.memory_cluster import MemoryCluster
from unit.gateway.rest_gateways import BINARY_V2, JSON_V2, V2, Rest, with_rest

ONE = "/consumers/g/instances/one"
BOTH = [{"topic": "flights", "partition": 0}, {"topic": "flights", "partition": 1}]


async def make(rest: Rest, name: str = "one", **more: Any) -> Any:
    body = {"name": name, "format": "json", "auto.offset.reset": "earliest", **more}
    return await rest.ask("POST", "/consumers/g", body, V2)


async def fill(rest: Rest, *values: Any) -> None:
    body = {"records": [{"value": value} for value in values]}
    await rest.ask("POST", "/topics/flights", body, JSON_V2)


async def values(rest: Rest, query: str = "?timeout=0") -> Any:
    found = await rest.ask("GET", f"{ONE}/records{query}")
    return found if found and isinstance(found[0], int) else [row["value"] for row in found]


def test_a_consumer_from_its_birth_to_its_end() -> None:
    async def work(rest: Rest) -> None:
        made = await make(rest)
        assert made == {"instance_id": "one", "base_uri": f"http://localhost:8082{ONE}"}
        assert await rest.ask("POST", f"{ONE}/subscription", {"topics": ["flights"]}, V2) == 204
        assert await rest.ask("GET", f"{ONE}/subscription") == {"topics": ["flights"]}
        assert await rest.ask("GET", f"{ONE}/assignments") == {"partitions": BOTH}
        await fill(rest, {"delay": 11}, 2)
        rows = await rest.ask("GET", f"{ONE}/records?timeout=0")
        first = {"topic": "flights", "key": None, "partition": 0, "offset": 0}
        assert rows[0] == {**first, "value": {"delay": 11}}
        assert await values(rest) == []
        assert await rest.ask("POST", f"{ONE}/offsets") == 200
        named = {"partitions": BOTH[:1]}
        committed = {"offsets": [{**BOTH[0], "offset": 2, "metadata": ""}]}
        assert await rest.ask("GET", f"{ONE}/offsets", named, V2) == committed
        assert await rest.ask("DELETE", f"{ONE}/subscription") == 204
        assert await rest.ask("DELETE", ONE) == 204
        assert rest.cluster.closed_consumers == 1
        assert await rest.ask("GET", f"{ONE}/records") == [404, 40403]

    with_rest(work)


def test_positions_are_moved() -> None:
    async def work(rest: Rest) -> None:
        await fill(rest, 0, 1, 2)
        await make(rest)
        assert await rest.ask("POST", f"{ONE}/assignments", {"partitions": BOTH}, V2) == 204
        assert await values(rest) == [0, 1, 2]
        offsets = {"offsets": [{**BOTH[0], "offset": 1}]}
        assert await rest.ask("POST", f"{ONE}/positions", offsets, V2) == 204
        assert await values(rest) == [1, 2]
        body = {"partitions": BOTH}
        assert await rest.ask("POST", f"{ONE}/positions/beginning", body, V2) == 204
        assert await values(rest) == [0, 1, 2]
        await fill(rest, 3)
        assert await rest.ask("POST", f"{ONE}/positions/end", body, V2) == 204
        assert await values(rest) == []
        other = {"offsets": [{"topic": "other", "partition": 0, "offset": 1}]}
        assert await rest.ask("POST", f"{ONE}/positions", other, V2) == [409, 40903]
        given = {"offsets": [{**BOTH[1], "offset": 5, "metadata": "here"}]}
        assert await rest.ask("POST", f"{ONE}/offsets", given, V2) == 200
        found = await rest.ask("GET", f"{ONE}/offsets", {"partitions": BOTH[1:]}, V2)
        assert found == given

    with_rest(work)


def test_what_exceeds_max_bytes_comes_with_the_next_read() -> None:
    async def work(rest: Rest) -> None:
        await fill(rest, "a" * 8, "b" * 8, "c" * 8)
        await make(rest)
        await rest.ask("POST", f"{ONE}/subscription", {"topics": ["flights"]}, V2)
        for size, found in ((25, ["a" * 8, "b" * 8]), (1, ["c" * 8])):
            assert await values(rest, f"?timeout=0&max_bytes={size}") == found

    with_rest(work)


def test_a_record_that_is_no_json_is_named_and_not_skipped() -> None:
    async def work(rest: Rest) -> None:
        await fill(rest, 1)
        body = {"records": [{"value": "eyg="}]}
        await rest.ask("POST", "/topics/flights", body, BINARY_V2)
        await fill(rest, 3)
        await make(rest)
        await rest.ask("POST", f"{ONE}/subscription", {"topics": ["flights"]}, V2)
        assert await values(rest) == [1]
        refused = await rest.send("GET", f"{ONE}/records?timeout=0")
        assert refused.json()["error_code"] == 42203
        assert "flights-0 offset 1" in refused.json()["message"]
        skip = {"offsets": [{**BOTH[0], "offset": 2}]}
        await rest.ask("POST", f"{ONE}/positions", skip, V2)
        assert await values(rest) == [3]

    with_rest(work)


@pytest.mark.parametrize("blob", [b'"\\ud800"', b"1e999", b"NaN", b"9" * 5_000, b"[" * 100_000])
def test_json_that_no_reply_can_hold_is_named(blob: bytes) -> None:
    async def work(rest: Rest) -> Any:
        body = {"records": [{"value": base64.b64encode(blob).decode()}]}
        await rest.ask("POST", "/topics/flights", body, BINARY_V2)
        await make(rest)
        await rest.ask("POST", f"{ONE}/subscription", {"topics": ["flights"]}, V2)
        refused = await rest.send("GET", f"{ONE}/records?timeout=0")
        assert "flights-0 offset 0" in refused.json()["message"]
        return [refused.status_code, refused.json()["error_code"]]

    assert with_rest(work) == [422, 42203]


def test_a_name_is_taken_once() -> None:
    async def work(rest: Rest) -> None:
        assert (await make(rest))["instance_id"] == "one"
        assert await make(rest) == [409, 40902]
        names = {(await rest.ask("POST", "/consumers/g", {}, V2))["instance_id"] for _ in range(3)}
        assert len(names) == 3

    with_rest(work)


def test_an_instance_lives_five_minutes_past_its_last_request() -> None:
    async def work(rest: Rest) -> None:
        import asyncio

        await make(rest)
        await make(rest, "idle")
        rest.gateway.clock.advance(299_000)
        assert await rest.ask("GET", f"{ONE}/assignments") == {"partitions": []}
        rest.gateway.clock.advance(299_000)
        part: Any = rest.gateway.parts[0]
        part.end_idle_consumers()
        await asyncio.sleep(0)
        assert rest.cluster.closed_consumers == 1
        assert await rest.ask("GET", f"{ONE}/assignments") == {"partitions": []}
        assert await rest.ask("GET", "/consumers/g/instances/idle/assignments") == [404, 40403]

    with_rest(work)


def test_a_principal_has_a_limited_number() -> None:
    async def work(rest: Rest) -> None:
        for n in range(3):
            assert (await make(rest, str(n)))["instance_id"] == str(n)
        assert await make(rest, "more") == [429, 429]
        await rest.ask("DELETE", "/consumers/g/instances/0")
        assert (await make(rest, "more"))["instance_id"] == "more"

    with_rest(work, consumers_max=3)


def test_principals_do_not_see_each_others() -> None:
    async def work(rest: Rest) -> None:
        await make(rest)
        bob = httpx.BasicAuth("bob", PASSWORD)
        assert await rest.ask("GET", f"{ONE}/assignments", auth=bob) == [404, 40403]
        assert await rest.ask("DELETE", ONE, auth=bob) == [404, 40403]
        assert await rest.ask("GET", f"{ONE}/assignments") == {"partitions": []}

    with_rest(work, has_login=True, auth=httpx.BasicAuth("alice", PASSWORD))


def test_all_leave_their_groups_at_the_end() -> None:
    cluster = MemoryCluster().create("flights")

    async def work(rest: Rest) -> None:
        await make(rest)
        await make(rest, "two")

    with_rest(work, cluster)
    assert cluster.closed_consumers == 2


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"format": "xml"}, [422, 422]),
        ({"format": "string"}, [422, 422]),
        ({"auto.offset.reset": "smallest"}, [422, 42204]),
        ({"auto.commit.enable": 3}, [422, 422]),
        ({"name": 5}, [422, 422]),
        ({"name": "a\nb"}, [422, 422]),
        ({"consumer.request.timeout.ms": -5}, [422, 422]),
        ([], [422, 422]),
    ],
)
def test_settings_that_cannot_be(body: Any, answer: list[int]) -> None:
    async def work(rest: Rest) -> Any:
        return await rest.ask("POST", "/consumers/g", body, V2)

    assert with_rest(work) == answer


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        ("flight.*", 204),
        ("(flights|delays)-[0-9]+", 204),
        ("(", [422, 422]),
        ("(a+)+", [422, 422]),
        ("(a|a)*b", [422, 422]),
        (".*.*.*.*x", [422, 422]),
        ("(?:flights|delays)s?", 204),
        (".?" * 60 + "x", [422, 422]),
        ("(|.)" * 50 + "x", [422, 422]),
        ("a" * 300, [422, 422]),
    ],
)
def test_a_pattern_cannot_keep_the_process(pattern: str, answer: Any) -> None:
    async def work(rest: Rest) -> Any:
        await make(rest)
        return await rest.ask("POST", f"{ONE}/subscription", {"topic_pattern": pattern}, V2)

    assert with_rest(work) == answer


def test_a_consumer_that_reads_nothing_says_so() -> None:
    async def work(rest: Rest) -> Any:
        await make(rest)
        return await rest.ask("GET", f"{ONE}/records?timeout=0")

    assert with_rest(work) == [409, 40903]


def test_a_group_may_have_any_name() -> None:
    async def work(rest: Rest) -> Any:
        made = await rest.ask("POST", "/consumers/a%2Fb%20c", {"name": "x/y"}, V2)
        path = made["base_uri"].removeprefix("http://localhost:8082")
        assert path == "/consumers/a%2Fb%20c/instances/x%2Fy"
        return await rest.ask("GET", f"{path}/assignments")

    assert with_rest(work) == {"partitions": []}


@pytest.mark.parametrize(
    ("header", "is_fine"),
    [
        ("", True),
        ("*/*", True),
        (V2, True),
        (JSON_V2, True),
        (f"text/html, {JSON_V2};q=0.5", True),
        (BINARY_V2, False),
        ("text/html", False),
    ],
)
def test_what_a_client_accepts(header: str, is_fine: bool) -> None:
    assert accepts(header, Format.JSON) is is_fine


class BreakingConsumer:
    """Gives one record, then what the brokers refuse."""

    def __init__(self) -> None:
        self.polls = 0

    async def getmany(self, timeout_ms: float, max_records: int) -> list[ConsumerRecord]:
        self.polls += 1
        if self.polls > 1:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [ConsumerRecord("flights", 0, 7, 0, 0, None, b"one", [], -1)]


def test_an_error_does_not_lose_the_records_that_came_before_it() -> None:
    """Their offsets are passed, and would be committed."""

    async def decode(record: ConsumerRecord) -> Any:
        return record.offset

    async def work() -> list[Any]:
        settings = InstanceSettings("g", "one", Format.JSON, fetch_min_bytes=100)
        consumer: Any = BreakingConsumer()
        one = ConsumerInstance(Login.anonymous(), settings, consumer, ManualClock())
        found = await one.read(decode, 60_000, 1_000)
        with pytest.raises(KafkaError):
            await one.read(decode, 60_000, 1_000)
        return found

    assert asyncio.run(work()) == [7]
