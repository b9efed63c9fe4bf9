"""The city's pages in a browser: a track grows, hostile texts stay texts, dark and narrow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from city.child import Child
from city.clock import DAY_START_MS
from city.fields import ALARMS, STATISTICS, TOPICS, VEHICLES, Alarm
from city.live import LiveService
from city.lookup import checkpoints_of, save_lookup
from city.world import WorldPlan, make_world
from city_records import vehicle
from headwater import Admin, NewTopic, Producer
from headwater.system import SystemClock
from integration.browser_page import BrowserPage, open_page
from integration.cluster import LocalCluster
from integration.conftest import Start, next_base_port

pytestmark = pytest.mark.integration

WAIT_S = 20
HOSTILE = "<img src=x onerror=document.title='hit'>\u202e浙A"
SEEN = "document.body.dataset.seen === 'yes'"
PLATE = "浙A00017"


@pytest.fixture
def city_cluster(start_cluster: Start) -> LocalCluster:
    """A broker with the city's topics, for one test: their names are fixed."""
    cluster = start_cluster(1)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(t.name, t.partitions, 1, configs=t.configs) for t in TOPICS])
    return cluster


@contextmanager
def pages(cluster: LocalCluster, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The pages with the live service behind them: their address, and the checkpoints' ids."""
    checkpoints = checkpoints_of(make_world(WorldPlan(vehicles=500, faces=10)).deployment)
    save_lookup(checkpoints, folder / "checkpoints.json")
    port = next_base_port(folder)
    service = LiveService(cluster.bootstrap, {}, SystemClock())
    thread = threading.Thread(target=service.run)
    thread.start()
    arguments = ["--bootstrap-server", cluster.bootstrap, "--port", str(port)]
    arguments += ["--checkpoints", str(folder / "checkpoints.json")]
    child = Child("city.web.server", arguments, folder / "pages.log")
    try:
        assert service.ready.wait(WAIT_S)
        yield child.wait_ready()["url"], [c.checkpoint_id for c in checkpoints]
    finally:
        child.stop()
        service.stopping.set()
        thread.join()


def fill(page: BrowserPage, name: str, text: str) -> None:
    page.run(f"document.querySelector('[name={name}]').value = {json.dumps(text)}")


def test_the_police_page_follows_a_car(city_cluster: LocalCluster, tmp_path: Path) -> None:
    with (
        pages(city_cluster, tmp_path) as (url, places),
        open_page(tmp_path / "profile", dark=True) as page,
        Producer(city_cluster.bootstrap, linger_ms=0) as producer,
    ):
        page.go(f"{url}police")
        page.wait(SEEN)
        fill(page, "plate", PLATE)
        page.run("document.querySelector('#watch button').click()")
        page.wait("document.querySelector('#instructions .total')?.textContent === '0'")
        page.wait("!document.querySelector('#instructions').innerText.includes('sent')")
        for n in range(3):
            value = vehicle(1000 + n, PLATE, at_s=600 * n, checkpoint=places[n])
            producer.send(VEHICLES, value, key=PLATE)
            page.wait(f"document.querySelectorAll('[data-point]').length === {n + 1}")
        assert page.text("#points tr").startswith("00:20:00")  # the newest comes first
        page.wait("document.querySelector('#track-said').textContent === '3 captures, live'")
        page.wait("document.querySelectorAll('#map .stop').length === 3")
        fill(page, "plate", HOSTILE)
        page.run("document.querySelector('#watch button').click()")
        page.wait("document.querySelectorAll('#instructions li').length === 2")
        assert "<img src=x" in page.text("#instructions") and "\\u202e" in page.text(
            "#instructions"
        )
        assert page.run("document.title") == "Police · City"
        page.run("document.querySelector('[value=face]').click()")
        fill(page, "face", "1, 2")
        page.run("document.querySelector('#watch button').click()")
        page.wait("document.querySelector('#watch-problem').textContent.includes('16 numbers')")
        page.shape(400)
        assert not page.is_wider_than_window()
        refused = [p for p in page.problems if "400 (Bad Request)" not in p]
        assert refused == []  # no script failed, the policy had nothing to refuse


def test_the_traffic_page_shows_the_city(city_cluster: LocalCluster, tmp_path: Path) -> None:
    with (
        pages(city_cluster, tmp_path) as (url, places),
        open_page(tmp_path / "profile") as page,
        Producer(city_cluster.bootstrap, linger_ms=0) as producer,
    ):
        page.go(url)
        page.wait(SEEN)
        assert page.run("document.querySelectorAll('#map .cam').length") == len(places)
        for n in range(40):
            value = vehicle(2000 + n, f"浙C{n:05}", at_s=60 * n, checkpoint=places[n % 5])
            producer.send(VEHICLES, value, key=f"浙C{n:05}")
        alarm = Alarm("quality", HOSTILE, "2017-08-24 18:40:00", HOSTILE)
        producer.send(ALARMS, alarm.to_wire(), key="a")
        for hour in range(3):
            told = {"kind": "latency", "hour": hour, "mean_s": 2.5}
            producer.send(STATISTICS, json.dumps(told))
            told = {"kind": "quality", "bucket_ms": DAY_START_MS + hour * 600_000}
            producer.send(STATISTICS, json.dumps({**told, "produced": 10, "consumed": 9}))
        rows = [{"ip": "10.0.0.1", "place": HOSTILE, "abnormal": 4, "total": 9}]
        producer.send(STATISTICS, json.dumps({"kind": "ranking", "rows": rows}))
        page.wait("Number(document.querySelector('#t-day').textContent) >= 40")
        page.wait("document.querySelectorAll('#c-latency .line').length === 1")
        page.wait("document.querySelectorAll('#c-quality .line').length === 2")
        page.wait("document.querySelector('#ranking').innerText.includes('<img src=x')")
        page.wait("document.querySelector('#alarms').innerText.includes('<img src=x')")
        assert page.run("document.title") == "Traffic · City"
        page.run("document.querySelector('#map .cam').dispatchEvent(new MouseEvent('click'))")
        page.run("document.querySelector('#count button').click()")
        page.wait("document.querySelectorAll('.counted').length === 1")
        page.shape(400, dark=True)
        assert not page.is_wider_than_window()
        assert page.problems == []
