"""The pages' door: who may send instructions, what the pages carry, what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from city.instructions import parse_instruction
from city.lookup import checkpoints_of
from city.web.app import CityPages
from city.web.state import CityState
from city.world import WorldPlan, make_world

HOST = "127.0.0.1:8085"
WATCH = {"instruction_id": "w1", "action": "watch", "person": "P000001"}


class Sent:
    """Stands for the producer: keeps what is sent."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, bytes]] = []

    def send(self, topic: str, value: bytes, key: str) -> Sent:
        self.all.append((topic, key, value))
        return self

    def result(self, _timeout: float) -> Any:
        return type("Place", (), {"offset": len(self.all) - 1})


class StillTail:
    """Stands for the tail: nothing has come."""

    def __init__(self) -> None:
        self.state = CityState()
        self.is_full = False


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def client(sent: Sent, tmp_path: Path) -> TestClient:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "video-0.npy").write_bytes(b"")
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "video-0.gif").write_bytes(b"GIF89a")
    checkpoints = checkpoints_of(make_world(WorldPlan(vehicles=500, faces=10)).deployment)
    tail: Any = StillTail()
    producer: Any = sent
    pages = CityPages(tail, producer, checkpoints, tmp_path / "videos", tmp_path / "clips")
    return TestClient(pages.app(frozenset((HOST,))), base_url=f"http://{HOST}")


def test_pages_allow_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/police"):
        answer = client.get(path)
        assert answer.status_code == 200 and "<script" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "//" not in answer.text.replace("<!doctype", "").replace("http://www.w3.org", "")
    assert len(client.get("/checkpoints.json").json()) == 240


def test_an_instruction_goes_to_its_topic(client: TestClient, sent: Sent) -> None:
    count = {"instruction_id": "c1", "action": "count", "what": "face"}
    video = {"instruction_id": "v1", "action": "analyse", "video_id": "video-0"}
    for told in (WATCH, count, video):
        assert client.post("/instructions", json=told).status_code == 201
    topics = [topic for topic, _, _ in sent.all]
    assert topics == ["watch-instructions", "statistics-instructions", "video-instructions"]
    assert parse_instruction(sent.all[0][2]) == parse_instruction(b"%s" % sent.all[0][2])
    assert b"video-0.npy" in sent.all[2][2]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_other_sites_cannot_send_one(
    client: TestClient, sent: Sent, headers: dict[str, str], status: int
) -> None:
    answer = client.post("/instructions", json=WATCH, headers=headers)
    assert (answer.status_code, sent.all) == (status, [])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"watch him", 400, "JSON object"),
        (b'{"instruction_id": "a", "action": "hunt"}', 400, "hunt"),
        (b'{"instruction_id": "a", "action": "analyse", "video_id": "../x"}', 400, "video-0"),
        (b'{"instruction_id": "<", "action": "analyse", "video_id": "video-0"}', 400, "letters"),
        (b" " * 20_000, 413, "16,384"),
    ],
)
def test_what_is_wrong_is_named(
    client: TestClient, sent: Sent, body: bytes, status: int, said: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/instructions", content=body, headers=headers)
    assert answer.status_code == status and said in answer.json()["error"], answer.text
    assert sent.all == []


def test_only_clips_are_served(client: TestClient) -> None:
    assert client.get("/clips/video-0.gif").headers["content-type"] == "image/gif"
    for name in ("video-1.gif", "..%2Fvideos%2Fvideo-0.npy", "%2e%2e"):
        assert client.get(f"/clips/{name}").status_code == 404
    assert client.get("/events/other").status_code == 404
